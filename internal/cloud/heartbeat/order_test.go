package heartbeat

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"yurtcoordinator/internal/cloud/control"
)

// justCut makes nodes whose heartbeats come delegated since a moment ago.
func (w *world) justCut(names ...string) {
	for range 2 {
		for _, name := range names {
			if w.node(name) == nil {
				n := aNode(false, none, "")
				n.Name = name
				w.createNode(n)
			}
			w.renew(name, false)
		}
		w.pass(10 * time.Second)
	}
	for _, name := range names {
		w.renew(name, true)
	}
}

// TestTaintsGoFirst: what a node's taint is due goes before the condition of another that waits longer, and what is found at a
// start before that, too.
func TestTaintsGoFirst(t *testing.T) {
	w := newWorld(t)
	q := priorityqueue.New[reconcile.Request]("test")
	defer q.ShutDown()
	w.justCut("n1", "n2", "n3")
	bare := w.node("n1")
	tainted := bare.DeepCopy()
	tainted.Spec.Taints = append(tainted.Spec.Taints, ourTaint(corev1.TaintEffectNoSchedule))
	h := w.policy.nodeHandler()
	h.Update(t.Context(), event.TypedUpdateEvent[*corev1.Node]{ObjectOld: bare, ObjectNew: tainted}, q)
	h.Create(t.Context(), event.TypedCreateEvent[*corev1.Node]{Object: w.node("n2"), IsInInitialList: true}, q)
	h.Create(t.Context(), event.TypedCreateEvent[*corev1.Node]{Object: w.node("n3")}, q)
	var got []string
	for range 3 {
		r, _ := q.Get()
		got = append(got, r.Name)
	}
	if want := []string{"n3", "n2", "n1"}; !slices.Equal(got, want) {
		t.Errorf("in the order %v, want %v", got, want)
	}
}

// TestSecondHalf: the condition that goes with a taint is written by the next reconcile, also if the watch tells nothing.
func TestSecondHalf(t *testing.T) {
	w := newWorld(t)
	w.justCut("n1")
	w.said()
	result, err := w.policy.Reconcile(t.Context(), control.Request("n1"))
	if err != nil || result.RequeueAfter != echoLost || result.Priority == nil || *result.Priority != conditionsLast {
		t.Errorf("after the taint: %+v, %v", result, err)
	}
	if said := w.said(); !slices.Equal(said, []string{"taint"}) {
		t.Errorf("the first reconcile wrote %v", said)
	}
	result, err = w.policy.Reconcile(t.Context(), control.Request("n1"))
	if err != nil || result.RequeueAfter <= echoLost {
		t.Errorf("after the condition: %+v, %v", result, err)
	}
	if said := w.said(); len(said) != 2 || said[0] != "condition True" {
		t.Errorf("the second reconcile wrote %v", said)
	}
}
