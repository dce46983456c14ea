package heartbeat

import (
	"fmt"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"yurtcoordinator/internal/cloud/control"
)

// BenchmarkRenewal is the cost of one heartbeat that changes nothing: 100 of these a second for 1000 nodes.
func BenchmarkRenewal(b *testing.B) {
	w := newWorld(b)
	leases := make([]*coordinationv1.Lease, 1000)
	for i := range leases {
		name := fmt.Sprint("n", i)
		w.renew(name, false)
		w.clock.Step(time.Millisecond)
		w.renew(name, false)
		leases[i] = w.leases[name].DeepCopy()
	}
	update, q := w.policy.leaseHandler().UpdateFunc, worldQueue{w: w}
	clear(w.due)
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		lease := leases[i%len(leases)]
		lease.Spec.RenewTime = &metav1.MicroTime{Time: lease.Spec.RenewTime.Add(time.Second)}
		update(b.Context(), event.TypedUpdateEvent[*coordinationv1.Lease]{ObjectOld: lease, ObjectNew: lease}, q)
		i++
	}
	if len(w.due) != 0 {
		b.Errorf("%d nodes enqueued", len(w.due))
	}
}

// BenchmarkReconcileNothingToDo is the cost of a reconcile that a timer caused and that finds all as it should be, less
// the read of the Node: 25 of these a second for 1000 nodes.
func BenchmarkReconcileNothingToDo(b *testing.B) {
	w := newWorld(b)
	w.renew("n1", true)
	w.clock.Step(time.Second)
	w.renew("n1", true)
	node := aNode(true, yes, ReasonDelegated)
	b.ReportAllocs()
	for b.Loop() {
		finding, _ := w.policy.sightings.Judge("n1")
		if err := w.policy.apply(b.Context(), node, plan(node, finding, wish{show: ShowReady})); err != nil {
			b.Fatal(err)
		}
	}
	if w.writes != nil {
		b.Errorf("wrote %v", w.writes)
	}
}

// BenchmarkReconcile is a whole reconcile that finds all as it should be, with the read through a fake API server,
// which is slower than the cache.
func BenchmarkReconcile(b *testing.B) {
	w := newWorld(b)
	w.createNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}})
	w.renew("n1", false)
	w.clock.Step(time.Second)
	w.renew("n1", false)
	w.reconcile("n1")
	w.said()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := w.policy.Reconcile(b.Context(), control.Request("n1")); err != nil {
			b.Fatal(err)
		}
	}
	if w.writes != nil {
		b.Errorf("wrote %v", w.writes)
	}
}
