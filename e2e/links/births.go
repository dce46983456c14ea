package links

import (
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"yurtcoordinator/e2e/kit"
	"yurtcoordinator/internal/lab"
)

// Seven nodes: five are born at a time, besides the leader and the coordinator's node.
var birthScenarios = []kit.Scenario{{
	Name: "cut-at-birth", Run: cutAtBirth,
	Lab: lab.Config{Pools: 1, Nodes: 7, Timing: lab.Stock, Kubelet: lab.Hollow, NoProxy: true},
	Doc: "Ten nodes register and lose their link 1 to 12 s later, before or after kubelet has created their Leases. Each " +
		"is delegated; none becomes NotReady.",
}}

// births say how long after their registration the nodes of each round are cut. kubelet makes its Lease after 10 s.
var births = [][]time.Duration{
	{1 * time.Second, 3 * time.Second, 5 * time.Second, 8 * time.Second, 10 * time.Second},
	{2 * time.Second, 4 * time.Second, 6 * time.Second, 9 * time.Second, 12 * time.Second},
}

// birth is a node that has registered.
type birth struct {
	registered, cut time.Time
	uid             types.UID // of the Node
}

func cutAtBirth(t *kit.T) {
	leader := t.Pool.SettledAway()
	without := 0
	for _, delays := range births {
		nodes := []string{leader}
		for range delays {
			nodes = append(nodes, t.Pool.Follower(nodes...))
		}
		without += bornAndCut(t, nodes[1:], delays)
		t.Pool.Settled(30 * time.Second)
	}
	t.Figure("cut_without_a_lease", float64(without))
	if without == 0 {
		t.Fail("all nodes had their Leases before they were cut")
	}
}

// bornAndCut makes nodes register again and cuts each after its time. It returns how many had no Lease by then.
func bornAndCut(t *kit.T, nodes []string, delays []time.Duration) (without int) {
	before := map[string]types.UID{}
	for _, node := range nodes {
		t.Must(t.Lab.Node(t.Ctx, lab.Kill, node, lab.KubeletC))
		is, err := t.Cloud.CoreV1().Nodes().Get(t.Ctx, node, metav1.GetOptions{})
		t.Must(err)
		before[node] = is.UID
		t.Must(t.Cloud.CoreV1().Nodes().Delete(t.Ctx, node, metav1.DeleteOptions{}))
		leases := t.Cloud.CoordinationV1().Leases(corev1.NamespaceNodeLease)
		if err := leases.Delete(t.Ctx, node, metav1.DeleteOptions{}); !apierrors.IsNotFound(err) {
			t.Must(err)
		}
	}
	t.Hold(2*time.Second, "the nodes are forgotten")
	for _, node := range nodes {
		t.Must(t.Lab.Node(t.Ctx, lab.Start, node, lab.KubeletC))
	}
	born := cutWhenBorn(t, nodes, delays, before)
	var last time.Time
	for _, node := range nodes {
		b := born[node]
		made := func(l kit.LeaseAt) bool { return l.At.Before(b.cut) }
		if _, has := t.Seen.FirstLease(node, b.registered, made); !has {
			without++
		}
		t.Node(node).Delegated(b.cut)
		if b.cut.After(last) {
			last = b.cut
		}
	}
	t.Hold(time.Until(last.Add(t.Config.Timing.Grace+20*time.Second)), "a grace period and 20 s after the last cut")
	leases := map[string]types.UID{}
	for _, node := range nodes {
		t.Must(neverLost(t, node, born[node]))
		lease, err := t.Cloud.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(t.Ctx, node, metav1.GetOptions{})
		t.Must(err)
		if o := lease.OwnerReferences; len(o) != 1 || o[0].Kind != "Node" || o[0].UID != born[node].uid {
			t.Fail("the Lease of %s is owned by %v, want the Node %s", node, o, born[node].uid)
		}
		leases[node] = lease.UID
	}
	t.Say("healing all links")
	healed := time.Now()
	for _, node := range nodes {
		t.Heal(node)
	}
	for _, node := range nodes {
		t.Node(node).Direct(healed)
		t.Must(neverLost(t, node, born[node]))
		if now := t.Seen.Lease(node).UID; now != leases[node] {
			t.Fail("%s has another Lease after healing: %s, was %s", node, now, leases[node])
		}
	}
	return without
}

// cutWhenBorn cuts each node its time after it registered, and returns when that was.
func cutWhenBorn(t *kit.T, nodes []string, delays []time.Duration, before map[string]types.UID) map[string]*birth {
	born, cut := map[string]*birth{}, 0
	t.Eventually(time.Minute, "all nodes have registered, and were cut", func() error {
		for i, node := range nodes {
			if born[node] == nil {
				n, err := t.Cloud.CoreV1().Nodes().Get(t.Ctx, node, metav1.GetOptions{})
				if apierrors.IsNotFound(err) || err == nil && n.UID == before[node] {
					continue
				}
				t.Must(err)
				born[node] = &birth{registered: time.Now(), uid: n.UID}
			}
			if b := born[node]; b.cut.IsZero() && time.Since(b.registered) >= delays[i] {
				b.cut = time.Now()
				cut++
				t.Cut(node)
				t.Say("%s is cut %v after it has registered; Ready is %q", node, delays[i], t.Seen.Node(node).Ready)
			}
		}
		if cut < len(nodes) {
			return errors.New("not yet")
		}
		return nil
	})
	return born
}

// neverLost fails if the cloud has called a node NotReady since it was cut. A node that had not yet told the cloud that
// it is ready stays as it was, but is not given up.
func neverLost(t *kit.T, node string, b *birth) error {
	if at, lost := t.Seen.FirstNode(node, b.cut, func(n kit.NodeAt) bool { return n.Ready == corev1.ConditionUnknown }); lost {
		return fmt.Errorf("%s was given up %.1fs after it was cut", node, at.Sub(b.cut).Seconds())
	}
	ready := func(n kit.NodeAt) bool { return n.Ready == corev1.ConditionTrue && n.At.Before(b.cut) }
	if _, was := t.Seen.FirstNode(node, b.registered, ready); was {
		return t.Seen.NeverNotReady(node, b.cut)
	}
	return nil
}
