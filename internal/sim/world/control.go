package world

import (
	"context"

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
				return c, nil
			},
			Ends:       ends.Ends{Clock: m.clock(), Chance: ends.Chance{Source: w.numbers()}},
			Heartbeats: true, PoolCuts: true, Approver: cloud.ApproverElsewhere,
			LeaderElect: true, MetricsAddress: "0", HealthAddress: "0",
		})
	})
	return nil
}
