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

// controls are the machines of coordinator-controller's replicas, which elect a leader. They are in the cloud. It is a constant.
var controls = []string{"control1", "control2"}

// controller is the name of the program.
const controller = "coordinator-controller"

// control makes the machine of coordinator-controller's replica i. It has the controllers for heartbeats and for pool cuts only.
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

// ending turns an error that breaks off the answer to a watch into a normal end of the answer. If the watch is of metadata only,
// controller-runtime passes such an error on to another goroutine. If the program is ending, nobody receives the error, and the
// sender waits for ever. A bubble of testing/synctest does not allow that.
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
