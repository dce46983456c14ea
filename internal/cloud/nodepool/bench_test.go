package nodepool

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"yurtcoordinator/apis/apps/v1beta2"
)

// site is a pool as real ones are, with nodes that have what it wants.
func site(size int) (*v1beta2.NodePool, []corev1.Node) {
	p := pool(func(s *v1beta2.NodePoolSpec) {
		s.Labels = map[string]string{"region": "north", "tier": "edge"}
		s.Annotations = map[string]string{"owner": "somebody"}
		s.Taints = []corev1.Taint{taint("edge", "", "NoSchedule")}
	})
	w := WantedBy(p)
	nodes := make([]corev1.Node, size)
	for i := range nodes {
		n := member(fmt.Sprintf("node-%04d", i), corev1.ConditionTrue)
		n.UID = types.UID(n.Name)
		for k, v := range w.Labels {
			n.Labels[k] = v
		}
		for i := range 10 { // those of kubelet and others
			n.Labels[fmt.Sprintf("example.org/label-%d", i)] = "x"
		}
		n.Spec.Taints = w.Taints
		n.Annotations = map[string]string{"owner": "somebody", AnnotationAttributes: w.memo(),
			AnnotationTaints: memoOf(w.Taints)}
		nodes[i] = n
	}
	return p, nodes
}

// BenchmarkNodeReportsItsStatus is what each such report costs both controllers, of 1000 pools of 10 nodes: it enqueues
// nothing.
func BenchmarkNodeReportsItsStatus(b *testing.B) {
	_, nodes := site(10)
	c := New(Config{})
	q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer q.ShutDown()
	writes, says := c.nodes.nodeHandler(), c.pools.nodeHandler()
	before := &nodes[0]
	after := before.DeepCopy()
	after.Status.Conditions[1].LastHeartbeatTime = metav1.NewTime(time.Unix(1, 0))
	e := event.TypedUpdateEvent[*corev1.Node]{ObjectOld: before, ObjectNew: after}
	b.ReportAllocs()
	for b.Loop() {
		writes.Update(b.Context(), e, q)
		says.Update(b.Context(), e, q)
	}
	if q.Len() > 0 {
		b.Error("it enqueues")
	}
}

// BenchmarkJudgePool is a look at one pool of 10 nodes that changes nothing.
func BenchmarkJudgePool(b *testing.B) {
	p, nodes := site(10)
	p.Status = statusOf(p, nodes, metav1.Time{})
	if p.Status.Conditions[0].Reason != ReasonAllNodes {
		b.Fatal("the nodes do not have what the pool wants")
	}
	b.ReportAllocs()
	for b.Loop() {
		if !equal(statusOf(p, nodes, metav1.Time{}), p.Status) {
			b.Fatal("the status changes")
		}
	}
}
