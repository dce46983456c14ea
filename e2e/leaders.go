package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/lab"
	"yurtcoordinator/internal/lab/wire"
)

var leaderScenarios = []Scenario{
	{
		Name: "cut-leader", Quick: true, Lab: pool, run: cutLeader,
		Doc: "the leader loses its WAN link while it forwards for another: another leads within 1 s, " +
			"no Lease gets older than half a grace period",
	},
	{
		Name: "kill-leader", Quick: true, Lab: pool, run: killLeader,
		Doc: "the leader is powered off while it forwards for another: another takes over, " +
			"only the dead node is called NotReady",
	},
	{
		Name: "pause-leader", Quick: false, Lab: pool, run: pauseLeader,
		Doc: "the leader is stopped for 60 s while a node that it forwards for dies: resumed, it renews nothing stale",
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

func (t *T) coordinator(name string) kubernetes.Interface {
	access, err := t.lab.CoordinatorConfig(1, name)
	t.must(err)
	client, err := kubernetes.NewForConfig(access)
	t.must(err)
	return client
}

// watchElections follows the election Lease as the operator, until the scenario ends.
func (t *T) watchElections() *elections {
	e := &elections{}
	client := t.coordinator(lab.Operator)
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
	t.background.Go(func() { informer.RunWithContext(t.ctx) })
	ctx, cancel := context.WithTimeout(t.ctx, 10*time.Second)
	defer cancel()
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		t.fail("the coordinator does not let the operator watch the election Lease")
	}
	return e
}

// released returns when the holder let go of the Lease since then, and when somebody else got it.
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

func cutLeader(t *T) {
	leader := t.settledAway()
	e := t.watchElections()
	other := t.follower(leader)
	t.say("cutting the WAN link of %s, so that %s forwards its heartbeats", other, leader)
	cut := time.Now()
	t.must(t.lab.Cut(t.ctx, lab.WAN, other, wire.Drop))
	t.delegated(other, cut)

	t.say("cutting the WAN link of %s, the leader", leader)
	cut = time.Now()
	t.must(t.lab.Cut(t.ctx, lab.WAN, leader, wire.Drop))
	noticed := t.eventually(10*time.Second, leader+"'s hub calls the cloud down", func() error {
		hub, err := t.lab.Hub(t.ctx, leader)
		if err == nil && hub.Cloud != "down" {
			err = fmt.Errorf("it says %+v", hub)
		}
		return err
	})
	t.figure("cut_to_noticed_s", noticed.Seconds())
	t.eventually(10*time.Second, "another hub leads", func() error {
		if _, _, winner := e.handover(leader, cut); winner == "" {
			return fmt.Errorf("nobody does")
		}
		return nil
	})
	lost, won, winner := e.handover(leader, cut)
	t.say("%s leads now", winner)
	t.figure("released_to_taken_over_s", won.Sub(lost).Seconds())
	takeover := won.Sub(cut.Add(noticed))
	t.figure("noticed_to_taken_over_s", max(0, takeover.Seconds()))
	if takeover > time.Second {
		t.fail("%s led %v after %s had noticed its dead link, want at most 1 s", winner, takeover, leader)
	}
	for _, name := range []string{other, leader} {
		t.eventually(15*time.Second, name+"'s heartbeats arrive delegated", func() error {
			if _, ok := t.seen.firstLease(name, won, func(l leaseAt) bool { return l.delegated }); !ok {
				return fmt.Errorf("none yet")
			}
			return nil
		})
	}
	t.hold(2*t.cfg.Timing.Grace, "two grace periods under the new leader")
	worst := time.Duration(0)
	for _, name := range t.nodeNames() {
		age := t.seen.largestAge(name, cut, time.Now())
		worst = max(worst, age)
		t.must(t.seen.neverNotReady(name, cut))
		if age > t.cfg.Timing.Grace/2 {
			t.fail("the Lease of %s in the cloud went %v without being renewed, want at most half a grace period, %v",
				name, age, t.cfg.Timing.Grace/2)
		}
	}
	t.figure("largest_lease_age_s", worst.Seconds())

	t.say("healing both links")
	t.must(t.lab.Heal(t.ctx, lab.WAN, "pool/p1"))
	t.direct(leader, time.Now())
	t.settled(15 * time.Second)
}

func killLeader(t *T) {
	pods := t.deployWeb()
	leader := t.settledAway()
	e := t.watchElections()
	other := t.follower(leader)
	kept := on(pods, other)
	t.say("cutting the WAN link of %s, so that %s forwards its heartbeats", other, leader)
	cut := time.Now()
	t.must(t.lab.Cut(t.ctx, lab.WAN, other, wire.Drop))
	t.delegated(other, cut)

	t.say("cutting the power of %s, the leader", leader)
	killed := time.Now()
	// Its death is another scenario's matter in full; here the pool must go on without it.
	t.must(t.lab.Node(t.ctx, lab.Kill, leader, lab.All))
	t.eventually(10*time.Second, "another hub leads", func() error {
		if _, _, winner := e.handover(leader, killed); winner == "" {
			return fmt.Errorf("nobody does")
		}
		return nil
	})
	_, won, winner := e.handover(leader, killed)
	t.say("%s leads now", winner)
	t.figure("death_to_taken_over_s", won.Sub(killed).Seconds())
	t.eventually(15*time.Second, "the new leader forwards", func() error {
		if _, ok := t.seen.firstLease(other, won, func(l leaseAt) bool { return l.delegated }); !ok {
			return fmt.Errorf("no delegated heartbeat of %s", other)
		}
		return nil
	})
	first, _ := t.seen.firstLease(other, won, func(l leaseAt) bool { return l.delegated })
	t.figure("death_to_forwarding_s", first.Sub(killed).Seconds())
	t.eventually(t.cfg.Timing.Grace+5*time.Second, leader+" is NotReady", func() error {
		if t.seen.node(leader).ready == corev1.ConditionTrue {
			return fmt.Errorf("it is Ready")
		}
		return nil
	})
	t.hold(t.cfg.Timing.Grace+t.cfg.Timing.Toleration, "long enough to evict what should not be evicted")
	t.must(t.seen.neverNotReady(other, cut))
	t.must(t.seen.untouched(kept, cut))
	t.figure("largest_lease_age_s", t.seen.largestAge(other, cut, time.Now()).Seconds())
}

func pauseLeader(t *T) {
	leader := t.settledAway()
	other := t.follower(leader)
	t.say("cutting the WAN link of %s, so that %s forwards its heartbeats", other, leader)
	cut := time.Now()
	t.must(t.lab.Cut(t.ctx, lab.WAN, other, wire.Drop))
	t.delegated(other, cut)
	if len(t.forwardedBy(leader, other, cut)) == 0 {
		t.fail("the cloud's audit log does not show what %s forwards: what follows could not fail", leader)
	}

	t.say("stopping the hub of %s with SIGSTOP for 60 s", leader)
	paused := time.Now()
	t.must(t.lab.Node(t.ctx, lab.Pause, leader, lab.Hub))
	t.eventually(15*time.Second, "another hub leads and forwards", func() error {
		l, err := t.leader(without(t.hubs(), leader))
		if err != nil {
			return err
		}
		if n := len(t.seen.renewals(other, paused.Add(6*time.Second))); n == 0 {
			return fmt.Errorf("%s leads, but no heartbeat of %s has come", l, other)
		}
		return nil
	})
	t.must(t.seen.neverNotReady(other, cut))
	t.say("cutting the power of %s", other)
	killed := time.Now()
	t.must(t.lab.Node(t.ctx, lab.Kill, other, lab.All))
	t.hold(time.Until(paused.Add(60*time.Second)), "until the old leader is resumed")
	died := t.seen.node(other)
	if died.ready == corev1.ConditionTrue {
		t.fail("%s is still Ready %v after its death", other, time.Since(killed))
	}

	t.say("resuming the hub of %s", leader)
	resumed := time.Now()
	t.must(t.lab.Node(t.ctx, lab.Resume, leader, lab.Hub))
	t.eventually(20*time.Second, leader+" is Ready again", func() error {
		if n := t.seen.node(leader); n.ready != corev1.ConditionTrue {
			return fmt.Errorf("Ready=%s", n.ready)
		}
		return nil
	})
	t.hold(t.cfg.Timing.Grace, "what the old leader might still send")
	if late := t.seen.renewals(other, killed.Add(t.cfg.Timing.Lease/4)); len(late) > 0 {
		t.fail("the Lease of %s was renewed %.1fs after its death", other, late[0].Sub(killed).Seconds())
	}
	writes := t.forwardedBy(leader, other, paused)
	stale := 0
	for _, at := range writes {
		if at.After(resumed) {
			stale++
		}
	}
	t.figure("writes_of_resumed_leader", float64(stale))
	if stale > 0 {
		t.fail("%s wrote the Lease of %s %d times after it was resumed, by the cloud's audit log", leader, other, stale)
	}
	if _, ok := t.seen.firstNode(other, resumed, func(n nodeAt) bool { return n.ready == corev1.ConditionTrue }); ok {
		t.fail("%s, dead, was called Ready again", other)
	}
}

func without(hubs map[string]lab.HubStatus, name string) map[string]lab.HubStatus {
	delete(hubs, name)
	return hubs
}

// forwardedBy returns when a hub successfully wrote another node's Lease, by the cloud's audit log.
func (t *T) forwardedBy(hub, node string, since time.Time) []time.Time {
	path, err := t.lab.AuditLog()
	t.must(err)
	f, err := os.Open(path)
	t.must(err)
	defer f.Close()
	var at []time.Time
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e auditv1.Event
		t.must(json.Unmarshal(lines.Bytes(), &e))
		if e.User.Username == edge.NodeName(hub).User() && e.ObjectRef != nil && e.ObjectRef.Name == node &&
			e.ObjectRef.Resource == "leases" && e.StageTimestamp.After(since) &&
			e.ResponseStatus != nil && e.ResponseStatus.Code < 300 {
			at = append(at, e.RequestReceivedTimestamp.Time)
		}
	}
	t.must(lines.Err())
	return at
}
