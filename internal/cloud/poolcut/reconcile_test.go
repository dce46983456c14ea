package poolcut

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"yurtcoordinator/apis/apps/v1alpha1"
	"yurtcoordinator/internal/cloud/control"
	"yurtcoordinator/internal/edge"
)

var twoHours = map[string]string{edge.AnnotationHoldEvictions: "2h"}

// well is a pool of three nodes that have been heard of for a while.
func well(t *testing.T, annotations map[string]string) *world {
	w := newWorld(t, annotations, "n1", "n2", "n3")
	w.pass(time.Minute)
	w.wantReasons("all is well")
	w.wantSaid("all is well")
	return w
}

// cutOff is such a pool after it was cut off.
func cutOff(t *testing.T) *world {
	w := well(t, twoHours)
	w.cut("n1", "n2", "n3")
	w.pass(2 * time.Minute)
	w.wantReasons("cut", "n1 WholePoolCut", "n2 WholePoolCut", "n3 WholePoolCut")
	w.wantSaid("cut", "Warning WholePoolCut All nodes")
	return w
}

func TestWithoutTheAnnotation(t *testing.T) {
	w := well(t, nil)
	w.cut("n1", "n2", "n3")
	w.pass(2 * time.Minute)
	w.wantEvicting("cut", "n1", "n2", "n3")
	w.wantReasons("cut")
	w.annotate("2h")
	w.pass(2 * time.Second)
	w.wantReasons("annotated when cut off already", "n1 WholePoolCut", "n2 WholePoolCut", "n3 WholePoolCut")
	w.wantEvicting("annotated when cut off already")
	w.annotate("")
	w.pass(2 * time.Second)
	w.wantSaid("taken away", "Warning WholePoolCut", "Normal HoldWithdrawn The hold was withdrawn")
	w.wantReasons("taken away", "n1 HoldWithdrawn", "n2 HoldWithdrawn", "n3 HoldWithdrawn")
	w.wantEvicting("taken away", "n1", "n2", "n3")
}

// TestByDefault: a pool that has a coordinator is held without being asked, and can be let go by hand.
func TestByDefault(t *testing.T) {
	w := well(t, nil)
	w.unless = 24 * time.Hour
	w.start()
	y := w.coordinator("c1")
	w.pass(time.Minute)
	w.cut("n1", "n2", "n3")
	w.pass(time.Minute)
	w.wantReasons("cut", "n1 WholePoolCut", "n2 WholePoolCut", "n3 WholePoolCut")
	w.wantSaid("cut", "Warning WholePoolCut All nodes of the pool fell silent together: probably its link is "+
		"down. No Pod of 3 nodes is evicted for that for 24h0m0s")
	if c := w.says("n1"); !strings.Contains(c.Message, "until 2026-11-22T00:0") ||
		!strings.Contains(c.Message, edge.AnnotationHoldEvictions+"=0s") {
		t.Errorf("the condition is %+v", c)
	}
	w.start() // the default holds for who finds the hold, too
	w.pass(12 * time.Hour)
	w.wantReasons("half of it", "n1 WholePoolCut", "n2 WholePoolCut", "n3 WholePoolCut")
	w.wantEvicting("half of it")
	w.annotate("0s")
	w.pass(5 * time.Second)
	w.wantReasons("let go", "n1 HoldWithdrawn", "n2 HoldWithdrawn", "n3 HoldWithdrawn")
	w.wantEvicting("let go", "n1", "n2", "n3")
	w.wantSaid("let go", "Normal HoldWithdrawn The hold was withdrawn")
	w.pass(13 * time.Hour)
	w.wantSaid("and it stays so")

	w.heal("n1", "n2", "n3")
	w.annotate("")
	w.pass(time.Minute)
	w.cut("n1", "n2", "n3")
	w.pass(24 * time.Hour)
	w.wantSaid("once more", "Warning WholePoolCut")
	w.pass(2 * time.Minute)
	w.wantReasons("over", "n1 HoldExpired", "n2 HoldExpired", "n3 HoldExpired")
	w.wantSaid("over", "Normal HoldExpired The time of the hold is over")

	w.heal("n1", "n2", "n3")
	w.pass(time.Minute)
	w.cut("n1", "n2", "n3")
	w.pass(2 * time.Minute)
	w.wantSaid("and again", "Warning WholePoolCut")
	if err := w.client.Delete(t.Context(), y); err != nil { // which our finalizer holds up
		t.Fatal(err)
	}
	going := &v1alpha1.YurtCoordinator{}
	if err := w.client.Get(t.Context(), client.ObjectKey{Name: "c1"}, going); err != nil {
		t.Fatal(err)
	}
	w.c.coordinatorHandler().Update(t.Context(),
		event.TypedUpdateEvent[*v1alpha1.YurtCoordinator]{ObjectOld: y, ObjectNew: going}, worldQueue{w: w})
	w.pass(2 * time.Second)
	w.wantReasons("the coordinator goes", "n1 HoldWithdrawn", "n2 HoldWithdrawn", "n3 HoldWithdrawn")
}

// TestNoDefault: it is for pools that have a coordinator, and where nobody has turned it off.
func TestNoDefault(t *testing.T) {
	for name, test := range map[string]struct {
		unless time.Duration
		made   bool
	}{"the pool has none": {unless: 24 * time.Hour}, "it is turned off": {made: true}} {
		t.Run(name, func(t *testing.T) {
			w := well(t, nil)
			w.unless = test.unless
			w.start()
			if test.made {
				w.coordinator("c1")
			} else { // one that was refused
				y := &v1alpha1.YurtCoordinator{Spec: v1alpha1.YurtCoordinatorSpec{NodePool: "p1"}}
				y.Name = "refused"
				if err := w.client.Create(t.Context(), y); err != nil {
					t.Fatal(err)
				}
			}
			w.pass(time.Minute)
			w.cut("n1", "n2", "n3")
			w.pass(2 * time.Minute)
			w.wantReasons("cut")
			w.wantEvicting("cut", "n1", "n2", "n3")
		})
	}
}

func TestHealing(t *testing.T) {
	w := cutOff(t)
	w.wantEvicting("held")
	if len(w.evicting) > 0 || w.refused == 0 {
		t.Errorf("tainted %v, refused %d times: want it refused, and never there", w.evicting, w.refused)
	}
	if c := w.says("n1"); !strings.Contains(c.Message, "until 2026-11-21T02:01:") {
		t.Errorf("the condition is %+v", c)
	}
	writes := w.writes
	w.pass(30 * time.Minute)
	if w.writes != writes {
		t.Errorf("%d writes while nothing happens", w.writes-writes)
	}
	w.heal("n1", "n2", "n3")
	w.pass(time.Minute)
	w.wantReasons("healed", "n1 NodeSpeaks", "n2 NodeSpeaks", "n3 NodeSpeaks")
	w.wantSaid("healed", "Normal PoolSpeaks A node of the pool reports")
	if len(w.evicting) > 0 {
		t.Errorf("tainted %v by the healing", w.evicting)
	}
	w.cut("n1", "n2", "n3")
	w.pass(2 * time.Hour)
	w.wantSaid("cut again", "Warning WholePoolCut")
	w.pass(2 * time.Minute)
	w.wantSaid("over", "Normal HoldExpired The time of the hold")
	w.wantReasons("over", "n1 HoldExpired", "n2 HoldExpired", "n3 HoldExpired")
	w.wantEvicting("over", "n1", "n2", "n3")
	w.pass(3 * time.Hour)
	w.start()
	w.pass(time.Hour)
	w.wantSaid("long over")
	w.heal("n1", "n2", "n3")
	w.pass(time.Minute)
	w.wantReasons("healed again", "n1 NodeSpeaks", "n2 NodeSpeaks", "n3 NodeSpeaks")
	w.cut("n1", "n2", "n3")
	w.pass(time.Minute)
	w.wantSaid("cut once more", "Warning WholePoolCut")
}

func TestOneSpeaks(t *testing.T) {
	w := cutOff(t)
	w.heal("n2")
	w.pass(30 * time.Second)
	w.wantReasons("one speaks", "n1 WholePoolCut", "n2 NodeSpeaks", "n3 WholePoolCut")
	w.wantSaid("one speaks")
	w.pass(30 * time.Second)
	w.wantReasons("a grace period later", "n1 OtherNodesSpeak", "n2 NodeSpeaks", "n3 OtherNodesSpeak")
	w.wantEvicting("a grace period later", "n1", "n3")
	w.wantSaid("a grace period later", "Normal PoolSpeaks A node of the pool reports")
	w.cut("n2")
	w.pass(10 * time.Minute)
	w.wantReasons("and it is lost too", "n1 OtherNodesSpeak", "n2 NodeSpeaks", "n3 OtherNodesSpeak")
	w.wantEvicting("and it is lost too", "n1", "n2", "n3")
	w.wantSaid("and it is lost too")
}

// TestDelegatedAfterTheCut: its kubelet can't say that it is Ready, and it lives.
func TestDelegatedAfterTheCut(t *testing.T) {
	w := cutOff(t)
	for range 10 {
		w.pass(10 * time.Second)
		w.renew("n1")
	}
	w.wantReasons("heard of by another", "n1 WholePoolCut", "n2 OtherNodesSpeak", "n3 OtherNodesSpeak")
	w.wantEvicting("heard of by another", "n2", "n3")
	w.pass(time.Minute)
	w.wantReasons("not any more", "n1 WholePoolCut", "n2 OtherNodesSpeak", "n3 OtherNodesSpeak")
}

func TestNewLeader(t *testing.T) {
	w := cutOff(t)
	began := w.says("n1").LastTransitionTime
	for range 3 {
		w.start()
		w.pass(time.Minute)
	}
	w.wantReasons("three leaders later", "n1 WholePoolCut", "n2 WholePoolCut", "n3 WholePoolCut")
	w.wantSaid("three leaders later")
	if now := w.says("n1").LastTransitionTime; !now.Equal(&began) {
		t.Errorf("the hold began at %v, and at %v for a new leader", began, now)
	}
	w.pass(2*time.Hour - time.Minute)
	w.wantReasons("over", "n1 HoldExpired", "n2 HoldExpired", "n3 HoldExpired")
	w.wantSaid("over", "Normal HoldExpired")
	if len(w.evicting) != 3 {
		t.Errorf("evicting from %v, want all", w.evicting)
	}
}

// TestBlindLeader: who has seen nobody alive goes by when kube-controller-manager found the nodes silent.
func TestBlindLeader(t *testing.T) {
	for name, began := range map[string]time.Duration{
		"after the cut": 10 * time.Second, "after the verdict": 5 * time.Minute, "long after": time.Hour,
	} {
		t.Run(name, func(t *testing.T) {
			w := well(t, twoHours)
			w.cut("n1", "n2", "n3")
			w.c = nil // neither replica runs
			w.pass(began)
			w.start()
			w.pass(2 * time.Minute)
			w.wantReasons("held", "n1 WholePoolCut", "n2 WholePoolCut", "n3 WholePoolCut")
			w.wantSaid("held", "Warning WholePoolCut")
			w.wantEvicting("held")
			w.pass(2*time.Hour - began)
			w.wantReasons("over: it counts from the verdict", "n1 HoldExpired", "n2 HoldExpired", "n3 HoldExpired")
			w.wantSaid("over", "Normal HoldExpired")
			w.start()
			w.pass(2 * time.Minute)
			w.wantSaid("and over for the next one")
		})
	}
	t.Run("too late", func(t *testing.T) {
		w := well(t, twoHours)
		w.cut("n1", "n2", "n3")
		w.c = nil
		w.pass(2*time.Hour + time.Minute)
		w.start()
		w.pass(2 * time.Minute)
		w.wantReasons("it would be over")
	})
	t.Run("one after the other", func(t *testing.T) {
		w := well(t, twoHours)
		w.c = nil
		for _, node := range []string{"n1", "n2", "n3"} {
			w.cut(node)
			w.pass(2 * time.Minute)
		}
		w.start()
		w.pass(2 * time.Minute)
		w.wantReasons("no two together")
		w.wantEvicting("no two together", "n1", "n2", "n3")
	})
	t.Run("one of them lives", func(t *testing.T) {
		w := well(t, twoHours)
		w.cut("n1", "n2")
		w.c = nil
		w.pass(5 * time.Minute)
		w.start()
		w.pass(2 * time.Minute)
		w.wantReasons("n3 speaks")
		w.wantEvicting("n3 speaks", "n1", "n2")
	})
}

func TestClockSetBack(t *testing.T) {
	w := cutOff(t)
	w.clock.SetTime(w.clock.Now().Add(-24 * time.Hour))
	w.start()
	w.pass(2*time.Hour - time.Minute)
	w.wantReasons("bounded", "n1 WholePoolCut", "n2 WholePoolCut", "n3 WholePoolCut")
	w.pass(2 * time.Minute)
	w.wantReasons("bounded", "n1 HoldExpired", "n2 HoldExpired", "n3 HoldExpired")
}

func TestDurationChanges(t *testing.T) {
	w := cutOff(t)
	w.annotate("3h")
	w.pass(time.Second)
	if c := w.says("n3"); !strings.Contains(c.Message, "until 2026-11-21T03:01:") {
		t.Errorf("the condition is %+v", c)
	}
	w.annotate("soon")
	w.pass(time.Minute)
	w.wantReasons("mistyped", "n1 WholePoolCut", "n2 WholePoolCut", "n3 WholePoolCut")
	w.wantSaid("mistyped", "Warning InvalidHoldEvictions The annotation apps.openyurt.io/hold-evictions is \"soon\"")
	w.annotate("1m")
	w.pass(time.Second)
	w.wantReasons("shorter than it has lasted", "n1 HoldExpired", "n2 HoldExpired", "n3 HoldExpired")
	w.wantSaid("shorter than it has lasted", "Normal HoldExpired")
}

func TestNodesComeAndGo(t *testing.T) {
	w := cutOff(t)
	w.edit("n1", func(n *corev1.Node) { n.Labels = nil })
	w.edit("n2", func(n *corev1.Node) { n.Labels[edge.LabelNodePool] = "p2" })
	w.c.poolOf("p2", nil, w.c.ends.Now()) // was looked at before
	w.pass(time.Second)
	w.wantReasons("moved", "n1 NotInHeldPool", "n2 NotInHeldPool", "n3 WholePoolCut")
	n3 := w.node("n3")
	if err := w.client.Delete(t.Context(), n3); err != nil {
		t.Fatal(err)
	}
	w.c.nodeHandler().Delete(t.Context(), event.TypedDeleteEvent[*corev1.Node]{Object: n3}, worldQueue{w: w})
	w.pass(time.Second)
	w.wantSaid("deleted", "Normal HoldEmptied No held node is left")
	w.c.leaseHandler().Delete(t.Context(),
		event.TypedDeleteEvent[*coordinationv1.Lease]{Object: w.leases["n3"]}, worldQueue{w: w})
	if o := w.c.sightings.Observe("n3"); o.Found {
		t.Errorf("a Node and its Lease are gone, and it is remembered: %+v", o)
	}
}

func TestFailures(t *testing.T) {
	t.Run("conflicts, and an error", func(t *testing.T) {
		w := well(t, twoHours)
		failed := 0
		w.fail = func(node string) error {
			failed++
			switch {
			case failed%3 == 0:
				return conflict(node)
			case failed == 4:
				return errors.New("refused")
			}
			return nil
		}
		w.cut("n1", "n2", "n3")
		w.pass(2 * time.Minute)
		w.wantReasons("held", "n1 WholePoolCut", "n2 WholePoolCut", "n3 WholePoolCut")
		w.wantSaid("held", "Warning WholePoolCut")
		w.annotate("")
		w.pass(10 * time.Second)
		w.wantReasons("ended", "n1 HoldWithdrawn", "n2 HoldWithdrawn", "n3 HoldWithdrawn")
		w.wantSaid("ended", "Normal HoldWithdrawn")
		if failed < 6 {
			t.Errorf("%d writes tried", failed)
		}
	})
	t.Run("the name of the Node is in the error", func(t *testing.T) {
		w := well(t, twoHours)
		w.cut("n1", "n2", "n3")
		w.clock.Step(time.Minute)
		w.fail = func(string) error { return errors.New("refused") }
		_, err := w.c.Reconcile(t.Context(), control.Request("p1"))
		if err == nil || !strings.Contains(err.Error(), "Node n1: refused") {
			t.Errorf("Reconcile = %v", err)
		}
		w.wantSaid("nothing is announced that is not written")
	})
	t.Run("an outdated copy", func(t *testing.T) {
		w := well(t, twoHours)
		outdated := w.node("n1")
		w.edit("n1", func(n *corev1.Node) { n.Labels["x"] = "y" })
		h := &inProgress{since: w.clock.Now(), found: w.c.ends.Now(), length: time.Hour}
		if err := w.c.write(t.Context(), outdated, held(), h); err == nil || !strings.Contains(err.Error(), "Node n1") {
			t.Errorf("write = %v, want a conflict", err)
		}
		w.wantReasons("refused")
	})
	t.Run("the NodePool goes", func(t *testing.T) {
		w := cutOff(t)
		if err := w.client.DeleteAllOf(t.Context(), newNodePool()); err != nil {
			t.Fatal(err)
		}
		w.due["p1"] = w.clock.Now()
		w.pass(time.Second)
		w.wantReasons("gone", "n1 HoldWithdrawn", "n2 HoldWithdrawn", "n3 HoldWithdrawn")
	})
}

// TestLateTaint: one that is there already is removed, and others are left.
func TestLateTaint(t *testing.T) {
	w := cutOff(t)
	w.edit("n2", func(n *corev1.Node) {
		n.Spec.Taints = append(n.Spec.Taints,
			corev1.Taint{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute},
			corev1.Taint{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoSchedule},
			corev1.Taint{Key: "example.com/t", Effect: corev1.TaintEffectNoExecute})
	})
	if due := w.due["p1"]; due.After(w.clock.Now()) {
		t.Errorf("a taint that evicts waits until %v", due)
	}
	w.pass(time.Second)
	if taints := w.node("n2").Spec.Taints; len(taints) != 2 || tainted(w.node("n2"), corev1.TaintNodeUnreachable) {
		t.Errorf("taints %v, want all but the one that evicts for the silence", taints)
	}
}

func TestMetrics(t *testing.T) {
	w := cutOff(t)
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(w.c.Metrics()...)
	check := func(want string, names ...string) {
		t.Helper()
		if err := testutil.GatherAndCompare(registry, strings.NewReader(want), names...); err != nil {
			t.Error(err)
		}
	}
	check(`
# HELP coordinator_controller_pool_evictions_held 1 while the evictions of a pool that is wholly cut off are held, 0 for other pools that would be; none on a replica that does not lead.
# TYPE coordinator_controller_pool_evictions_held gauge
coordinator_controller_pool_evictions_held{pool="p1"} 1
# HELP coordinator_controller_pool_holds_begun_total Holds of evictions that began.
# TYPE coordinator_controller_pool_holds_begun_total counter
coordinator_controller_pool_holds_begun_total 1
# HELP coordinator_controller_pool_holds_ended_total Holds of evictions that ended, by outcome.
# TYPE coordinator_controller_pool_holds_ended_total counter
coordinator_controller_pool_holds_ended_total{outcome="Emptied"} 0
coordinator_controller_pool_holds_ended_total{outcome="Expired"} 0
coordinator_controller_pool_holds_ended_total{outcome="Spoke"} 0
coordinator_controller_pool_holds_ended_total{outcome="Withdrawn"} 0
`)
	w.heal("n1", "n2", "n3")
	w.pass(time.Minute)
	check(`
# HELP coordinator_controller_pool_evictions_held 1 while the evictions of a pool that is wholly cut off are held, 0 for other pools that would be; none on a replica that does not lead.
# TYPE coordinator_controller_pool_evictions_held gauge
coordinator_controller_pool_evictions_held{pool="p1"} 0
`, "coordinator_controller_pool_evictions_held")
	w.annotate("")
	w.pass(time.Second)
	check("", "coordinator_controller_pool_evictions_held")
	if got := testutil.ToFloat64(w.c.metrics.ends.WithLabelValues("Spoke")); got != 1 {
		t.Errorf("%v holds ended by speaking", got)
	}
	if err := w.client.Get(t.Context(), client.ObjectKey{Name: "p1"}, newNodePool()); err != nil {
		t.Error(err)
	}
}
