package thief

import (
	"fmt"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/lab"
	"yurtcoordinator/lab/e2e/kit"
)

var leaseScenarios = []kit.Scenario{
	{
		Name: "poisoned-lease", Lab: kit.OnePool.AsInstalled(), Run: poisonedLease,
		Doc: "A node acts as its pool's forwarder and marks a neighbour's Lease and stamps it with 2099, again and again. The " +
			"neighbour, connected or cut off, never turns NotReady, and its taint stops changing after the fourth time within " +
			"a minute. Powered off, it is NotReady all the same.",
	},
	{
		Name: "refused-lease", Lab: kit.Unrelayed(fourNodes.AsInstalled()), Run: refusedLease,
		Doc: "A node has a Lease of its own delegated that the cloud refuses, ten times a second: first one that is full, " +
			"then one whose owners a policy refuses. A neighbour that is cut off stays Ready, and the leader leads on.",
	},
}

// asForwarder returns the Leases of the cloud's nodes, as a node's own programs reach them over its link as its pool's forwarder.
func asForwarder(t *kit.T, node string) coordinationv1client.LeaseInterface {
	access, err := t.Lab.CloudConfigFrom(node)
	t.Must(err)
	access.Impersonate.UserName = edge.PoolName("p1").ForwardingUser()
	return t.Client(access).CoordinationV1().Leases(corev1.NamespaceNodeLease)
}

// change edits a Lease through these leases, and tries again after a conflict.
func change(t *kit.T, leases coordinationv1client.LeaseInterface, name string, edit func(*coordinationv1.Lease)) error {
	for attempt := 0; ; attempt++ {
		lease, err := leases.Get(t.Ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		edit(lease)
		if _, err = leases.Update(t.Ctx, lease, metav1.UpdateOptions{}); !apierrors.IsConflict(err) || attempt == 5 {
			return err
		}
	}
}

var in2099 = time.Date(2099, 1, 1, 0, 0, 0, 0, time.UTC)

// poison gives a Lease a stamp from 2099, or a later one if its stamp is already later than that.
func poison(l *coordinationv1.Lease) {
	stamp := in2099
	if l.Spec.RenewTime != nil && !l.Spec.RenewTime.Before(&metav1.MicroTime{Time: stamp}) {
		stamp = l.Spec.RenewTime.Add(time.Second)
	}
	l.Spec.RenewTime = &metav1.MicroTime{Time: stamp}
	metav1.SetMetaDataAnnotation(&l.ObjectMeta, edge.DelegateHeartbeat, edge.DelegateHeartbeatOn)
}

func poisonedLease(t *kit.T) {
	leader := t.Pool.Settled(30 * time.Second)
	victim := t.Pool.Follower(leader)
	thief := leader
	for _, n := range t.Pool.Nodes() {
		if n != leader && n != victim {
			thief = n
		}
	}
	leases := asForwarder(t, thief)
	t.Say("%s, connected, is marked and stamped from 2099 on by %s, all the time", victim, thief)
	began := time.Now()
	underAttack(t, leases, victim, 70*time.Second)
	if n := taintChanges(t, victim); n > 4 { // in 70 s, begun anywhere in a minute
		t.Fail("the taint of %s changed %d times in 70 s", victim, n)
	}
	t.Eventually(20*time.Second, "an Event says so", func() error { return hasEvent(t, victim, "HeartbeatsFlap") })
	t.NeverNotReady(began, victim)

	t.Say("%s is cut off, and attacked as before", victim)
	cut := t.Cut(victim)
	underAttack(t, leases, victim, 3*t.Config.Timing.Grace)
	t.NeverNotReady(began, victim)
	t.Say("%s was Ready all the time", victim)
	t.Heal(victim)
	t.Node(victim).Direct(time.Now())
	t.NeverNotReady(began, victim)
	t.Figure("cut_for_s", time.Since(cut).Seconds())

	t.Say("%s is powered off, with a last stamp from 2099", victim)
	t.Must(t.Lab.Node(t.Ctx, lab.Kill, victim, lab.All))
	t.Must(change(t, leases, victim, poison))
	t.Eventually(t.Config.Timing.Grace+90*time.Second, "its stamp is put back, and it is NotReady", func() error {
		lease, err := t.Cloud.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(t.Ctx, victim, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if ahead := time.Until(lease.Spec.RenewTime.Time); ahead > 0 {
			return fmt.Errorf("its stamp is %s ahead", ahead.Round(time.Hour))
		}
		if t.Seen.Node(victim).Ready == "True" {
			return fmt.Errorf("it is Ready")
		}
		return hasEvent(t, victim, "RenewTimePutBack")
	})
}

// underAttack poisons a node's Lease every few hundred milliseconds.
func underAttack(t *kit.T, leases coordinationv1client.LeaseInterface, victim string, during time.Duration) {
	writes := 0
	for end := time.Now().Add(during); time.Now().Before(end); writes++ {
		if err := change(t, leases, victim, poison); err != nil && !apierrors.IsConflict(err) {
			t.Must(err)
		}
		t.Pause(500*time.Millisecond, "until the next write")
	}
	t.Say("%d writes in %s", writes, during)
}

// taintChanges is how often a node's taint has changed in the last 70 s.
func taintChanges(t *kit.T, node string) int {
	n, since := 0, time.Now().Add(-70*time.Second)
	for tainted := true; ; tainted = !tainted {
		at, ok := t.Seen.FirstNode(node, since, func(n kit.NodeAt) bool { return (n.Taint != "") == tainted })
		if !ok {
			return n
		}
		since, n = at, n+1
	}
}

func hasEvent(t *kit.T, node, reason string) error {
	events, err := t.Cloud.CoreV1().Events(metav1.NamespaceAll).List(t.Ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, e := range events.Items {
		if e.Reason == reason && e.InvolvedObject.Name == node {
			t.Say("%s: %s", node, e.Message)
			return nil
		}
	}
	return fmt.Errorf("no Event %s of %s", reason, node)
}

// fullLease is how many bytes of annotations leave less room in a Lease than the forwarder's mark needs.
const fullLease = 262_124

func refusedLease(t *kit.T) {
	leader := t.Pool.SettledAway()
	victim := t.Pool.Follower(leader)
	thief := t.Pool.Follower(leader, victim)
	own := nodeClient(t, thief).CoordinationV1().Leases(corev1.NamespaceNodeLease)
	copies := t.Pool.Coordinator(thief).CoordinationV1().Leases(corev1.NamespaceNodeLease)
	t.Eventually(30*time.Second, "the coordinator has a copy of the Lease of "+thief, func() error {
		_, err := copies.Get(t.Ctx, thief, metav1.GetOptions{})
		return err
	})
	t.Must(t.Lab.Node(t.Ctx, lab.Kill, thief, lab.KubeletC)) // it would renew
	t.Must(t.Lab.Node(t.Ctx, lab.Kill, thief, lab.Hub))
	cut := t.Cut(victim)
	t.Node(victim).Delegated(cut)

	t.Say("the Lease of %s in the cloud is full: the forwarder's mark is too much", thief)
	t.Must(change(t, own, thief, func(l *coordinationv1.Lease) {
		l.Annotations = map[string]string{"filler": strings.Repeat("x", fullLease-len("filler"))}
	}))
	underRefusals(t, leader, thief, nil)

	t.Say("the Lease of %s in the cloud is gone, and its copy has owners that a policy refuses", thief)
	t.Must(own.Delete(t.Ctx, thief, metav1.DeleteOptions{}))
	owner := func(name string) metav1.OwnerReference {
		return metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: name, UID: types.UID(name)}
	}
	underRefusals(t, leader, thief, []metav1.OwnerReference{owner(victim), owner(leader)})
	t.NeverNotReady(t.Start, victim, leader)
	t.Heal(victim)
	t.Node(victim).Direct(time.Now())
}

// underRefusals renews a node's copy at the coordinator as delegated, ten times a second, for longer than a node may be silent.
// The cloud must refuse what the leader forwards, and the leader must lead all the time.
func underRefusals(t *kit.T, leader, thief string, owners []metav1.OwnerReference) {
	copies := t.Pool.Coordinator(thief).CoordinationV1().Leases(corev1.NamespaceNodeLease)
	before := t.Node(leader).Metric("yurthub_dropped_heartbeats_total", `reason="refused"`)
	renewed := 0
	for end := time.Now().Add(2*t.Config.Timing.Grace + 10*time.Second); time.Now().Before(end); {
		err := change(t, copies, thief, func(l *coordinationv1.Lease) {
			metav1.SetMetaDataLabel(&l.ObjectMeta, edge.DelegateHeartbeat, edge.DelegateHeartbeatOn)
			metav1.SetMetaDataAnnotation(&l.ObjectMeta, edge.DelegateHeartbeat, edge.DelegateHeartbeatOn)
			l.OwnerReferences, l.Spec.RenewTime = owners, &metav1.MicroTime{Time: time.Now()}
		})
		switch {
		case err == nil:
			renewed++
		case !apierrors.IsTooManyRequests(err) && !apierrors.IsConflict(err):
			t.Must(err)
		}
		if renewed%20 == 0 {
			if now, err := t.Pool.Leader(t.Pool.Hubs()); err != nil || now != leader {
				t.Fail("%s led, now %q does: %v", leader, now, err)
			}
		}
		t.Pause(100*time.Millisecond, "until the next renewal")
	}
	refused := t.Node(leader).Metric("yurthub_dropped_heartbeats_total", `reason="refused"`) - before
	t.Say("%d renewals, %v of them refused by the cloud", renewed, refused)
	if refused < 2 {
		t.Fail("the cloud refused %v renewals of %s, of %d", refused, thief, renewed)
	}
}
