package bench

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/utils/ptr"
)

// heartbeats measures renewals of the node's Lease. It renews as kubelet does: it sends the last answer again with a new
// renewTime.
func (l *load) heartbeats(ctx context.Context) error {
	leases := map[Way]coordinationv1client.LeaseInterface{}
	ways := []Way{HTTP2, Hub}
	for _, w := range ways {
		c, err := l.client(w)
		if err != nil {
			return err
		}
		leases[w] = c.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	}
	first := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: l.spec.Node},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &l.spec.Node, LeaseDurationSeconds: ptr.To[int32](40)},
	}
	creating, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if _, err := leases[HTTP2].Create(creating, first, metav1.CreateOptions{}); err != nil {
		return err
	}
	var err error
	l.m.Heartbeat, err = alternate(ctx, beatRounds, ways, func(w Way) (Round, error) {
		return beat(ctx, leases[w], l.spec.Node)
	})
	return err
}

// beat is one round of renewals by one way. It reads the Lease first, because renewals by another way have changed it since;
// then neither its own first renewal nor the hub works on an outdated Lease.
func beat(ctx context.Context, leases coordinationv1client.LeaseInterface, node string) (Round, error) {
	ctx, cancel := context.WithTimeout(ctx, beatsEach*beatEvery+requestTimeout)
	defer cancel()
	lease, err := leases.Get(ctx, node, metav1.GetOptions{})
	if err != nil {
		return Round{}, err
	}
	every := time.NewTicker(beatEvery)
	defer every.Stop()
	start := time.Now()
	took := make([]time.Duration, beatsEach)
	for i := range took {
		select {
		case <-every.C:
		case <-ctx.Done():
			return Round{}, context.Cause(ctx)
		}
		began := time.Now()
		sent := lease.DeepCopy()
		sent.Spec.RenewTime = ptr.To(metav1.NewMicroTime(began))
		if lease, err = leases.Update(ctx, sent, metav1.UpdateOptions{}); err != nil {
			return Round{}, fmt.Errorf("heartbeat %d: %w", i+1, err)
		}
		took[i] = time.Since(began)
	}
	return Round{Requests: len(took), Elapsed: time.Since(start), Latency: quantiles(took)}, nil
}
