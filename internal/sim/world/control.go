package world

import (
	"context"
	"fmt"
	"io"
	"net/http"

	"k8s.io/client-go/rest"

	"yurtcoordinator/internal/cloud"
	"yurtcoordinator/internal/ends"
	"yurtcoordinator/internal/sim/network"
	"yurtcoordinator/internal/sim/pki"
)

// controls are the machines of coordinator-controller's replicas. They are in the cloud, beside the machine of the API server.
// One replica leads, by its own election. It is a constant.
var controls = []string{"control1", "control2"}

// controller is the name of the program.
const controller = "coordinator-controller"

// control makes the machine of one replica of coordinator-controller. The replica has the controllers for heartbeats, and those
// that hold the evictions from a pool whose NodePool asks for it.
func (w *World) control(i int) error {
	m, err := w.machine(controls[i], fmt.Sprintf("10.0.0.%d", 2+i))
	if err != nil {
		return err
	}
	cert, err := w.ca.Issue(pki.Request{
		Name: m.name, CommonName: "system:serviceaccount:kube-system:coordinator-controller", Client: true,
	})
	if err != nil {
		return err
	}
	access, err := w.direct(cert)
	if err != nil {
		return err
	}
	m.program(controller, func(ctx context.Context, p *network.Process) error {
		return cloud.Run(w.logs(ctx, m.name), cloud.Config{
			Connect: func() (*rest.Config, error) {
				c := rest.CopyConfig(access)
				c.Dial = p.Dial
				c.Wrap(func(to http.RoundTripper) http.RoundTripper { return ending{to} })
				return c, nil
			},
			Ends:       ends.Ends{Clock: m.clock(), Chance: ends.Chance{Source: w.numbers()}},
			Heartbeats: true, PoolCuts: true, Approver: cloud.ApproverElsewhere,
			LeaderElect: true, MetricsAddress: "0", HealthAddress: "0",
		})
	})
	return nil
}

// ending makes the answers to watches end where they break off with an error. controller-runtime passes on such an error from a
// watch of metadata. If the program is ending and nobody receives the error any more, a goroutine waits for ever, which a
// bubble of testing/synctest does not allow.
type ending struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (e ending) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := e.RoundTripper.RoundTrip(r)
	if err == nil && r.URL.Query().Has("watch") {
		answer.Body = endingBody{answer.Body}
	}
	return answer, err
}

type endingBody struct{ io.ReadCloser }

// Read implements io.Reader.
func (b endingBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		err = io.EOF
	}
	return n, err
}
