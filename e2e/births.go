package e2e

import (
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"yurtcoordinator/internal/lab"
	"yurtcoordinator/internal/lab/wire"
)

// Seven nodes: five are born at a time, beside the leader and the coordinator's node.
var birthScenarios = []Scenario{{
	Name: "cut-at-birth", run: cutAtBirth,
	Lab: lab.Config{Pools: 1, Nodes: 7, Timing: lab.Stock, Kubelet: lab.Hollow, NoProxy: true},
	Doc: "ten nodes register, and are cut 1 to 12 s later, before or after kubelet has made their Leases: each is delegated, " +
		"and none becomes NotReady",
}}

// births are how long after their registration the nodes of each round are cut. kubelet makes its Lease after 10 s.
var births = [][]time.Duration{
	{1 * time.Second, 3 * time.Second, 5 * time.Second, 8 * time.Second, 10 * time.Second},
	{2 * time.Second, 4 * time.Second, 6 * time.Second, 9 * time.Second, 12 * time.Second},
}

// birth is a node's that has registered.
type birth struct {
	registered, cut time.Time
	uid             types.UID // of the Node
}

func cutAtBirth(t *T) {
	leader := t.settledAway()
	without := 0
	for _, delays := range births {
		nodes := []string{leader}
		for range delays {
			nodes = append(nodes, t.follower(nodes...))
		}
		without += t.births(nodes[1:], delays)
		t.settled(30 * time.Second)
	}
	t.figure("cut_without_a_lease", float64(without))
	if without == 0 {
		t.fail("all nodes had their Leases before they were cut")
	}
}

// births has nodes registered anew and cut, each after its time, and returns how many had no Lease by then.
func (t *T) births(nodes []string, delays []time.Duration) (without int) {
	before := map[string]types.UID{}
	for _, node := range nodes {
		t.must(t.lab.Node(t.ctx, lab.Kill, node, lab.KubeletC))
		is, err := t.cloud.CoreV1().Nodes().Get(t.ctx, node, metav1.GetOptions{})
		t.must(err)
		before[node] = is.UID
		t.must(t.cloud.CoreV1().Nodes().Delete(t.ctx, node, metav1.DeleteOptions{}))
		leases := t.cloud.CoordinationV1().Leases(corev1.NamespaceNodeLease)
		if err := leases.Delete(t.ctx, node, metav1.DeleteOptions{}); !apierrors.IsNotFound(err) {
			t.must(err)
		}
	}
	t.hold(2*time.Second, "the nodes are forgotten")
	for _, node := range nodes {
		t.must(t.lab.Node(t.ctx, lab.Start, node, lab.KubeletC))
	}
	born := t.cutWhenBorn(nodes, delays, before)
	var last time.Time
	for _, node := range nodes {
		b := born[node]
		made := func(l leaseAt) bool { return l.at.Before(b.cut) }
		if _, has := t.seen.firstLease(node, b.registered, made); !has {
			without++
		}
		t.delegated(node, b.cut)
		if b.cut.After(last) {
			last = b.cut
		}
	}
	t.hold(time.Until(last.Add(t.cfg.Timing.Grace+20*time.Second)), "a grace period and 20 s after the last cut")
	leases := map[string]types.UID{}
	for _, node := range nodes {
		t.must(t.neverLost(node, born[node]))
		lease, err := t.cloud.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(t.ctx, node, metav1.GetOptions{})
		t.must(err)
		if o := lease.OwnerReferences; len(o) != 1 || o[0].Kind != "Node" || o[0].UID != born[node].uid {
			t.fail("the Lease of %s is owned by %v, want the Node %s", node, o, born[node].uid)
		}
		leases[node] = lease.UID
	}
	t.say("healing all links")
	healed := time.Now()
	for _, node := range nodes {
		t.must(t.lab.Heal(t.ctx, lab.WAN, node))
	}
	for _, node := range nodes {
		t.direct(node, healed)
		t.must(t.neverLost(node, born[node]))
		if now := t.seen.lease(node).uid; now != leases[node] {
			t.fail("%s has another Lease after healing: %s, was %s", node, now, leases[node])
		}
	}
	return without
}

// cutWhenBorn cuts each node its time after it has registered, and returns when that was.
func (t *T) cutWhenBorn(nodes []string, delays []time.Duration, before map[string]types.UID) map[string]*birth {
	born, cut := map[string]*birth{}, 0
	t.eventually(time.Minute, "all nodes have registered, and were cut", func() error {
		for i, node := range nodes {
			if born[node] == nil {
				n, err := t.cloud.CoreV1().Nodes().Get(t.ctx, node, metav1.GetOptions{})
				if apierrors.IsNotFound(err) || err == nil && n.UID == before[node] {
					continue
				}
				t.must(err)
				born[node] = &birth{registered: time.Now(), uid: n.UID}
			}
			if b := born[node]; b.cut.IsZero() && time.Since(b.registered) >= delays[i] {
				b.cut = time.Now()
				cut++
				t.must(t.lab.Cut(t.ctx, lab.WAN, node, wire.Drop))
				t.say("%s is cut %v after it has registered; Ready is %q", node, delays[i], t.seen.node(node).ready)
			}
		}
		if cut < len(nodes) {
			return errors.New("not yet")
		}
		return nil
	})
	return born
}

// neverLost returns an error if the cloud has called a node NotReady since it was cut: one that had not told it yet that it
// is ready stays as it was, but is not given up.
func (t *T) neverLost(node string, b *birth) error {
	if at, lost := t.seen.firstNode(node, b.cut, func(n nodeAt) bool { return n.ready == corev1.ConditionUnknown }); lost {
		return fmt.Errorf("%s was given up %.1fs after it was cut", node, at.Sub(b.cut).Seconds())
	}
	ready := func(n nodeAt) bool { return n.ready == corev1.ConditionTrue && n.at.Before(b.cut) }
	if _, was := t.seen.firstNode(node, b.registered, ready); was {
		return t.seen.neverNotReady(node, b.cut)
	}
	return nil
}
