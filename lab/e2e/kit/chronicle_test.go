package kit

import (
	"testing"
	"testing/synctest"
	"time"

	"yurtcoordinator/internal/edge"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// The assertions of the scenarios are only as good as these: each is shown a history that it must object to.

func newHistory() *Chronicle {
	return &Chronicle{
		nodes: map[string][]NodeAt{}, leases: map[string][]LeaseAt{}, pods: map[types.UID][]PodAt{},
		slices: map[string][]sliceAt{},
	}
}

func node(ready corev1.ConditionStatus) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n"},
		Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}},
	}
}

func TestNeverNotReadySeesAMoment(t *testing.T) {
	h, start := newHistory(), time.Now()
	h.record(node(corev1.ConditionTrue), false)
	if err := h.NeverNotReady("n", start); err != nil {
		t.Errorf("a Ready node: %v", err)
	}
	h.record(node(corev1.ConditionUnknown), false)
	h.record(node(corev1.ConditionTrue), false)
	if h.NeverNotReady("n", start) == nil {
		t.Error("a moment of not being Ready went unnoticed")
	}
	if err := h.NeverNotReady("n", time.Now()); err != nil {
		t.Errorf("what was before counts: %v", err)
	}
}

// A node that is lost, or whose evictions are held, is told from one that is not; the Pods that were on it count.
func TestLostAndHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, start := newHistory(), time.Now()
		pod := func(name string, deleted bool) {
			p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: Namespace, UID: types.UID(name)}}
			p.Spec.NodeName = "n"
			p.Spec.Tolerations = []corev1.Toleration{
				{Key: corev1.TaintNodeUnreachable, TolerationSeconds: ptr.To[int64](5)}, {Key: corev1.TaintNodeNotReady},
			}
			if deleted {
				p.DeletionTimestamp = ptr.To(metav1.Now())
			}
			h.record(p, false)
			time.Sleep(time.Second)
		}
		pod("early", false)
		pod("early", true)
		pod("stays", false)
		if on := h.PodsOn("n"); len(on) != 1 || on[0] != "stays" {
			t.Errorf("before it is lost, there are %v", on)
		}
		n := node(corev1.ConditionUnknown)
		n.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoSchedule}}
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{
			Type: edge.ConditionEvictionsHeld, Status: corev1.ConditionTrue, Reason: "WholePoolCut", Message: "until ten",
		})
		h.record(n, false)
		if is := h.Node("n"); is.Lost || is.Evicts || is.Held != corev1.ConditionTrue || is.HeldWhy != "WholePoolCut" ||
			is.HeldSays != "until ten" {
			t.Errorf("a held node is %+v", is)
		}
		time.Sleep(time.Second)
		n.Spec.Taints[0].Effect = corev1.TaintEffectNoExecute
		h.record(n, false)
		if is := h.Node("n"); !is.Lost || !is.Evicts {
			t.Errorf("a lost node is %+v", is)
		}
		time.Sleep(time.Second)
		pod("stays", true)
		if on := h.PodsOn("n"); len(on) != 1 || on[0] != "stays" {
			t.Errorf("after it was lost, there are %v", on)
		}
		at, was := h.FirstPod("stays", start, PodAt.Ends)
		if p := h.Pod("stays"); !was || !p.At.Equal(at) || p.NotReady != nil || *p.Unreachable != 5 || p.Remembers {
			t.Errorf("%+v, first ended %v, %t", p, at, was)
		}
	})
}

func TestReadyButForStartsKnowsAStart(t *testing.T) {
	const own = "KubeletNotReady"
	for name, c := range map[string]struct {
		said string
		ok   bool
		back time.Duration // 0: never
	}{
		"its containers": {"PLEG is not healthy: pleg has yet to be successful", true, time.Second},
		"its containers and CSINode": {
			"[PLEG is not healthy: pleg has yet to be successful, CSINode is not yet initialized]", true, 2 * time.Second,
		},
		"the network besides": {
			"[CSINode is not yet initialized, container runtime network not ready: no]", false, time.Second,
		},
		"the cloud refuses": {"failed to initialize CSINode: forbidden", false, time.Second},
		"for too long":      {"CSINode is not yet initialized", false, time.Minute},
		"for ever":          {"CSINode is not yet initialized", false, 0},
		"nothing":           {"", false, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHistory()
				h.record(node(corev1.ConditionUnknown), false)
				start := time.Now()
				say := func(status corev1.ConditionStatus, reason, message string) {
					time.Sleep(time.Second)
					n := node(status)
					n.Status.Conditions[0].Reason, n.Status.Conditions[0].Message = reason, message
					h.record(n, false)
				}
				say(corev1.ConditionTrue, "KubeletReady", "")
				if took, err := h.ReadyButForStarts("n", start); err != nil || took != 0 {
					t.Fatalf("a Ready node: %v, %v", took, err)
				}
				say(corev1.ConditionFalse, own, c.said)
				if c.back > 0 {
					time.Sleep(c.back - time.Second)
					say(corev1.ConditionTrue, "KubeletReady", "")
				}
				took, err := h.ReadyButForStarts("n", start)
				if (err == nil) != c.ok || c.ok && took != c.back {
					t.Errorf("%v, %v", took, err)
				}
				if _, err := h.ReadyButForStarts("n", time.Now()); c.back > 0 && err != nil {
					t.Errorf("what was before counts: %v", err)
				}
			})
		})
	}
	h, start := newHistory(), time.Now()
	h.record(node(corev1.ConditionUnknown), false) // the cloud gives it up
	h.record(node(corev1.ConditionTrue), false)
	if _, err := h.ReadyButForStarts("n", start); err == nil {
		t.Error("a node that the cloud has given up is taken for one that starts")
	}
}

func lease(renewed time.Time) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: "n", Namespace: corev1.NamespaceNodeLease},
		Spec:       coordinationv1.LeaseSpec{RenewTime: ptr.To(metav1.NewMicroTime(renewed))},
	}
}

func TestOnlyAdvancesAreRenewals(t *testing.T) {
	h, start := newHistory(), time.Now()
	t0 := start.Add(-time.Hour)
	h.record(lease(t0), false)
	h.record(lease(t0), false)                   // written, not renewed
	h.record(lease(t0.Add(-time.Minute)), false) // went back
	h.record(lease(t0.Add(time.Minute)), false)
	if n := len(h.Renewals("n", start)); n != 2 {
		t.Errorf("%d renewals, want 2", n)
	}
	if age := h.LargestAge("n", start, start.Add(time.Minute)); age < 59*time.Second {
		t.Errorf("largest age %v: the time since the last renewal does not count", age)
	}
}

func pod(change func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "default", UID: "1"},
		Spec:       corev1.PodSpec{NodeName: "n"},
		Status: corev1.PodStatus{
			Conditions:        []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
			ContainerStatuses: []corev1.ContainerStatus{{RestartCount: 1}},
		},
	}
	if change != nil {
		change(p)
	}
	return p
}

func TestUntouchedSeesEveryTouch(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*corev1.Pod)
		gone   bool
		want   bool
	}{
		"same":      {nil, false, true},
		"gone":      {nil, true, false},
		"going":     {func(p *corev1.Pod) { p.DeletionTimestamp = ptr.To(metav1.Now()) }, false, false},
		"restarted": {func(p *corev1.Pod) { p.Status.ContainerStatuses[0].RestartCount = 2 }, false, false},
		"not ready": {func(p *corev1.Pod) { p.Status.Conditions[0].Status = corev1.ConditionFalse }, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHistory()
			h.record(pod(nil), false)
			before, since := h.LivePods(), time.Now()
			h.record(pod(tt.change), tt.gone)
			if err := h.Untouched(before, since); (err == nil) != tt.want {
				t.Errorf("untouched = %v", err)
			}
		})
	}
}

func slice(name string, ready bool, addresses ...string) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: "web"}},
		Endpoints: []discoveryv1.Endpoint{{
			Addresses: addresses, Conditions: discoveryv1.EndpointConditions{Ready: &ready},
		}},
	}
}

func TestEndpointsKeptSeesAMoment(t *testing.T) {
	h := newHistory()
	h.record(slice("a", true, "10.0.0.1"), false)
	h.record(slice("b", true, "10.0.0.2"), false)
	since := time.Now()
	both := []string{"10.0.0.1", "10.0.0.2"}
	h.record(slice("b", true, "10.0.0.2", "10.0.0.3"), false)
	if err := h.EndpointsKept(both, since); err != nil {
		t.Errorf("an endpoint more: %v", err)
	}
	h.record(slice("a", false, "10.0.0.1"), false)
	h.record(slice("a", true, "10.0.0.1"), false)
	if h.EndpointsKept(both, since) == nil {
		t.Error("a moment without an endpoint went unnoticed")
	}
	if err := h.EndpointsKept(both, time.Now()); err != nil {
		t.Errorf("what was before counts: %v", err)
	}
	if h.EndpointsKept([]string{"10.9.9.9"}, time.Now()) == nil {
		t.Error("an endpoint that never was went unnoticed")
	}
}
