package thief

import (
	"sync"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yurtcoordinator/e2e/kit"
	"yurtcoordinator/internal/lab"
)

var clockScenarios = []kit.Scenario{{
	Name: "clock-step", Lab: lab.Config{Pools: 1, Nodes: 3, Timing: lab.Stock}, Run: clockStep,
	Doc: "Nodes' clocks jump an hour forwards and backwards, with Kubernetes' own timing: on a connected node, on one " +
		"that is cut off, in the whole pool. No node turns NotReady.",
}}

// beats are heartbeats of nodes whose kubelets are off, sent through their hubs with stamps of a clock that can be put.
type beats struct {
	t      *kit.T
	ahead  sync.Map // of each node, a time.Duration
	failed atomic.Int32
}

// begin switches a node's kubelet off when it has made the node's Lease (an interval after the Node), and sends its
// heartbeats from now on.
func (b *beats) begin(node string) {
	leases := b.t.Node(node).Client().CoordinationV1().Leases(corev1.NamespaceNodeLease)
	var lease *coordinationv1.Lease
	b.t.Eventually(3*b.t.Config.Timing.Lease, node+" has a Lease", func() (err error) {
		lease, err = leases.Get(b.t.Ctx, node, metav1.GetOptions{})
		return err
	})
	b.t.Must(b.t.Lab.Node(b.t.Ctx, lab.Kill, node, lab.KubeletC))
	b.put(node, 0)
	b.t.Background.Go(func() {
		for ticker := time.NewTicker(b.t.Config.Timing.Lease / 4); ; {
			known, _ := b.ahead.Load(node)
			ahead, _ := known.(time.Duration)
			lease.Spec.RenewTime = &metav1.MicroTime{Time: time.Now().Add(ahead)}
			if answer, err := leases.Update(b.t.Ctx, lease, metav1.UpdateOptions{}); err == nil {
				lease = answer
			} else {
				b.failed.Add(1)
				if fresh, err := leases.Get(b.t.Ctx, node, metav1.GetOptions{}); err == nil {
					lease = fresh
				}
			}
			select {
			case <-b.t.Ctx.Done():
				ticker.Stop()
				return
			case <-ticker.C:
			}
		}
	})
}

// put puts a node's clock.
func (b *beats) put(node string, ahead time.Duration) { b.ahead.Store(node, ahead) }

func clockStep(t *kit.T) {
	leader := t.Pool.SettledAway()
	node := t.Pool.Follower(leader)
	b := &beats{t: t}
	began := time.Now()
	for _, n := range t.Pool.Nodes() {
		b.begin(n)
	}
	hold := t.Config.Timing.Grace + 4*time.Second
	steps := func(how string, nodes ...string) {
		for _, ahead := range []time.Duration{-time.Hour, time.Hour} {
			t.Say("%s: the clock of %v is put to %s from now", how, nodes, ahead)
			for _, n := range nodes {
				b.put(n, ahead)
			}
			t.Hold(hold, "longer than a grace period")
			t.NeverNotReady(began, t.Pool.Nodes()...)
		}
	}
	steps("reports itself", node)
	if t.Seen.Node(node).LinkDown != corev1.ConditionFalse {
		t.Fail("%s is said to have lost its link", node)
	}
	b.put(node, 0)
	cut := t.Cut(node)
	t.Node(node).Delegated(cut)
	steps("cut off", node)
	steps("the whole pool", t.Pool.Nodes()...)
	t.Heal(node)
	t.Node(node).Direct(time.Now())
	t.Figure("heartbeats_refused", float64(b.failed.Load()))
}
