package world

import (
	"context"
	"io"
	"net/http"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"yurtcoordinator/internal/cloud"
	"yurtcoordinator/internal/ends"
	"yurtcoordinator/internal/lab/pki"
	"yurtcoordinator/internal/sim/network"
)

// control is the machine of coordinator-controller, in the cloud beside that of the API server.
const control = "control"

// control makes coordinator-controller. It has what is for heartbeats, and what holds evictions from a pool
// whose NodePool asks for it.
func (w *World) control() error {
	m, err := w.machine(control, "10.0.0.2")
	if err != nil {
		return err
	}
	cert, err := w.ca.Issue(pki.Request{
		Name: control, CommonName: "system:serviceaccount:kube-system:coordinator-controller", Client: true,
	})
	if err != nil {
		return err
	}
	access, err := w.direct(cert)
	if err != nil {
		return err
	}
	w.controls = m.program("coordinator-controller", func(ctx context.Context, p *network.Process) error {
		return cloud.Run(klog.NewContext(ctx, logr.Discard()), cloud.Config{
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

// ending has answers that break off end. Of a watch of metadata that breaks off, controller-runtime tells an error; when nobody
// listens any more, since the program ends, a goroutine waits for ever, which a bubble does not forgive.
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
