package links

import (
	"context"
	"fmt"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/lab"
	"yurtcoordinator/lab/e2e/kit"
)

var leaderScenarios = []kit.Scenario{
	{
		Name: "cut-leader", Lab: kit.OnePool, Run: cutLeader,
		Doc: "The leader loses its link while it forwards for another node. A new leader takes over within 1 s of the " +
			"loss being noticed, and no Lease gets older than half a grace period.",
	},
	{
		Name: "kill-leader", Lab: kit.OnePool, Run: killLeader,
		Doc: "The leader is powered off while it forwards for another node. Another hub takes over, and only the dead " +
			"node is called NotReady.",
	},
}

// elections records who holds the election Lease in the first pool's coordinator, and since when.
type elections struct {
	mu  sync.Mutex
	all []heldAt
}

type heldAt struct {
	at     time.Time
	holder string
}

// watchElections follows the election Lease as the operator, until the scenario ends.
func watchElections(t *kit.T) *elections {
	e := &elections{}
	client := t.Pool.Coordinator(lab.Operator)
	record := func(o any) {
		l, ok := o.(*coordinationv1.Lease)
		if !ok || l.Name != edge.LeaseElection {
			return
		}
		e.mu.Lock()
		defer e.mu.Unlock()
		holder := ptr.Deref(l.Spec.HolderIdentity, "")
		if len(e.all) == 0 || e.all[len(e.all)-1].holder != holder {
			e.all = append(e.all, heldAt{time.Now(), holder})
		}
	}
	_, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.NewListWatchFromClient(client.CoordinationV1().RESTClient(), "leases",
			edge.NamespaceSystem,
			fields.OneTermEqualSelector(metav1.ObjectNameField, edge.LeaseElection)),
		ObjectType: &coordinationv1.Lease{},
		Handler:    cache.ResourceEventHandlerFuncs{AddFunc: record, UpdateFunc: func(_, o any) { record(o) }},
	})
	t.Background.Go(func() { informer.RunWithContext(t.Ctx) })
	ctx, cancel := context.WithTimeout(t.Ctx, 10*time.Second)
	defer cancel()
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		t.Fail("the coordinator does not let the operator watch the election Lease")
	}
	return e
}

// handover returns when the holder released or lost the Lease after since, and when another hub got it.
func (e *elections) handover(from string, since time.Time) (lost, won time.Time, winner string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, h := range e.all {
		if !h.at.After(since) || h.holder == from {
			continue
		}
		if lost.IsZero() {
			lost = h.at
		}
		if h.holder != "" {
			return lost, h.at, h.holder
		}
	}
	return lost, time.Time{}, ""
}

func cutLeader(t *kit.T) {
	leader := t.Pool.SettledAway()
	e := watchElections(t)
	other := t.Pool.Follower(leader)
	t.Say("cutting the WAN link of %s, so that %s forwards its heartbeats", other, leader)
	cut := t.Cut(other)
	t.Node(other).Delegated(cut)

	t.Say("cutting the WAN link of %s, the leader", leader)
	cut = t.Cut(leader)
	known := noticed(t, leader, cut)
	t.Eventually(10*time.Second, "another hub leads", func() error {
		if _, _, winner := e.handover(leader, cut); winner == "" {
			return fmt.Errorf("nobody does")
		}
		return nil
	})
	lost, won, winner := e.handover(leader, cut)
	t.Say("%s leads now", winner)
	t.Figure("released_to_taken_over_s", won.Sub(lost).Seconds())
	takeover := won.Sub(cut.Add(known))
	t.Figure("noticed_to_taken_over_s", max(0, takeover.Seconds()))
	if takeover > time.Second {
		t.Fail("%s led %v after %s had noticed its dead link, want at most 1 s", winner, takeover, leader)
	}
	for _, name := range []string{other, leader} {
		t.Eventually(15*time.Second, name+"'s heartbeats arrive delegated", func() error {
			if _, ok := t.Seen.FirstLease(name, won, func(l kit.LeaseAt) bool { return l.Delegated }); !ok {
				return fmt.Errorf("none yet")
			}
			return nil
		})
	}
	t.Hold(2*t.Config.Timing.Grace, "two grace periods under the new leader")
	worst := time.Duration(0)
	for _, name := range t.Pool.Nodes() {
		age := t.Seen.LargestAge(name, cut, time.Now())
		worst = max(worst, age)
		t.NeverNotReady(cut, name)
		if age > t.Config.Timing.Grace/2 {
			t.Fail("the Lease of %s in the cloud went %v without being renewed, want at most half a grace period, %v",
				name, age, t.Config.Timing.Grace/2)
		}
	}
	t.Figure("largest_lease_age_s", worst.Seconds())

	t.Say("healing both links")
	t.Heal("pool/p1")
	t.Node(leader).Direct(time.Now())
	t.Pool.Settled(15 * time.Second)
}

func killLeader(t *kit.T) {
	pods := t.DeployWeb()
	leader := t.Pool.SettledAway()
	e := watchElections(t)
	other := t.Pool.Follower(leader)
	kept := kit.On(pods, other)
	t.Say("cutting the WAN link of %s, so that %s forwards its heartbeats", other, leader)
	cut := t.Cut(other)
	t.Node(other).Delegated(cut)

	t.Say("cutting the power of %s, the leader", leader)
	killed := time.Now()
	// Another scenario is about its death; here the pool must go on without it.
	t.Must(t.Lab.Node(t.Ctx, lab.Kill, leader, lab.All))
	t.Eventually(10*time.Second, "another hub leads", func() error {
		if _, _, winner := e.handover(leader, killed); winner == "" {
			return fmt.Errorf("nobody does")
		}
		return nil
	})
	_, won, winner := e.handover(leader, killed)
	t.Say("%s leads now", winner)
	t.Figure("death_to_taken_over_s", won.Sub(killed).Seconds())
	t.Eventually(15*time.Second, "the new leader forwards", func() error {
		if _, ok := t.Seen.FirstLease(other, won, func(l kit.LeaseAt) bool { return l.Delegated }); !ok {
			return fmt.Errorf("no delegated heartbeat of %s", other)
		}
		return nil
	})
	first, _ := t.Seen.FirstLease(other, won, func(l kit.LeaseAt) bool { return l.Delegated })
	t.Figure("death_to_forwarding_s", first.Sub(killed).Seconds())
	t.Eventually(t.Config.Timing.Grace+5*time.Second, leader+" is NotReady", func() error {
		if t.Seen.Node(leader).Ready == corev1.ConditionTrue {
			return fmt.Errorf("it is Ready")
		}
		return nil
	})
	t.Hold(t.Config.Timing.Grace+t.Config.Timing.Toleration, "long enough to evict what should not be evicted")
	t.NeverNotReady(cut, other)
	t.Must(t.Seen.Untouched(kept, cut))
	t.Figure("largest_lease_age_s", t.Seen.LargestAge(other, cut, time.Now()).Seconds())
}
