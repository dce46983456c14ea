package nodepool

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yurtcoordinator/apis/apps/v1beta1"
	"yurtcoordinator/apis/apps/v1beta2"
	"yurtcoordinator/internal/cloud/cloudtest"
)

func TestWithoutPrevious(t *testing.T) {
	const no, out = corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute
	type m = map[string]string
	a1, aOut, b := taint("a", "1", no), taint("a", "", out), taint("b", "", no)
	for _, tt := range []struct {
		name           string
		record         string
		spec           *v1beta2.NodePoolSpec // nil means no pool
		labels, notes  m                     // that are left, of x, y and own
		taints         []corev1.Taint        // that are left, of a1, aOut and b
		left           string                // of the record
		differs, plain bool
	}{
		{"no record", "",
			nil, m{"x": "1", "y": "2", "own": "o"}, m{"x": "1", "own": "o"}, []corev1.Taint{a1, aOut, b}, "", false, true},
		{"unreadable", "{",
			nil, m{"x": "1", "y": "2", "own": "o"}, m{"x": "1", "own": "o"}, []corev1.Taint{a1, aOut, b}, "{", false, true},
		{"it has left the pool", `{"labels":{"x":"other"},"annotations":{"x":"1"},"taints":[{"key":"a","effect":"NoSchedule"}]}`,
			nil, m{"y": "2", "own": "o"}, m{"own": "o"}, []corev1.Taint{aOut, b}, "", true, false},
		{"all is wanted", `{"labels":{"x":"1"},"taints":[{"key":"b","effect":"NoSchedule"}]}`,
			&v1beta2.NodePoolSpec{Labels: m{"x": "9"}, Taints: []corev1.Taint{b}},
			m{"x": "1", "y": "2", "own": "o"}, m{"x": "1", "own": "o"}, []corev1.Taint{a1, aOut, b},
			`{"labels":{"x":"1"},"taints":[{"key":"b","effect":"NoSchedule"}]}`, false, true},
		{"some is", `{"labels":{"x":"1","y":"2"},"annotations":{"x":"1"},"taints":[{"key":"a","effect":"NoExecute"}]}`,
			&v1beta2.NodePoolSpec{Labels: m{"y": "2"}}, m{"y": "2", "own": "o"}, m{"own": "o"}, []corev1.Taint{a1, b},
			`{"labels":{"y":"2"}}`, true, false},
		{"the pool has what it may not set", `{"labels":{"kubernetes.io/x":"1"}}`,
			&v1beta2.NodePoolSpec{Labels: m{"kubernetes.io/x": "1"}}, m{"x": "1", "y": "2", "own": "o"}, m{"x": "1", "own": "o"},
			[]corev1.Taint{a1, aOut, b}, `{"labels":{"kubernetes.io/x":"1"}}`, false, true},
	} {
		node := &corev1.Node{Spec: corev1.NodeSpec{Taints: []corev1.Taint{a1, aOut, b}}}
		node.Labels, node.Annotations = m{"x": "1", "y": "2", "own": "o"}, m{"x": "1", "own": "o"}
		if tt.record != "" {
			node.Annotations[AnnotationPrevious] = tt.record
		}
		var pool *v1beta2.NodePool
		if tt.spec != nil {
			pool = &v1beta2.NodePool{Spec: *tt.spec}
		}
		before := node.DeepCopy()
		got, differs := withoutPrevious(node, pool)
		left := got.Annotations[AnnotationPrevious]
		notes := maps.Clone(got.Annotations)
		delete(notes, AnnotationPrevious)
		if differs != tt.differs || left != tt.left || !maps.Equal(got.Labels, tt.labels) || !maps.Equal(notes, tt.notes) ||
			!slices.Equal(got.Spec.Taints, tt.taints) || complete(node, pool, Wanted{}) != tt.plain {
			t.Errorf("%s: differs %v, %v, %v, %v, record %s", tt.name, differs, got.Labels, notes, got.Spec.Taints, left)
		}
		if _, again := withoutPrevious(got, pool); again {
			t.Errorf("%s: once more it differs", tt.name)
		}
		if !maps.Equal(node.Labels, before.Labels) || !slices.Equal(node.Spec.Taints, before.Spec.Taints) {
			t.Errorf("%s: it changes what it is given", tt.name)
		}
	}
}

// TestWhatOpenYurtHasPutOnANodeGoesWithThePool, though it is another's by its field manager.
func TestWhatOpenYurtHasPutOnANodeGoesWithThePool(t *testing.T) {
	w := newWorld(t)
	w.stop()
	type m = map[string]string
	out := taint("site", "a", corev1.TaintEffectNoSchedule)
	p := w.pool("prev", v1beta2.NodePoolSpec{
		Labels: m{"region": "north"}, Annotations: m{"note": "n"}, Taints: []corev1.Taint{out},
	})
	n := w.node("prev-1", "prev")
	record, err := json.Marshal(previous{
		Labels: m{"region": "north", "gone": "g"}, Annotations: m{"note": "n"}, Taints: []corev1.Taint{out},
	})
	w.must(err)
	cloudtest.Eventually(t, "what OpenYurt writes", func() error {
		w.must(w.Get(t.Context(), client.ObjectKeyFromObject(n), n))
		maps.Copy(n.Labels, m{"region": "north", "gone": "g"})
		n.Annotations = m{"note": "n", AnnotationPrevious: string(record)}
		n.Spec.Taints = []corev1.Taint{out}
		return w.Update(t.Context(), n, client.FieldOwner("yurt-manager"))
	})
	w.start()
	has := func(region, gone, note, record string, taints int) {
		t.Helper()
		cloudtest.Eventually(t, "the node", func() error {
			w.must(w.Get(t.Context(), client.ObjectKeyFromObject(n), n))
			if n.Labels["region"] != region || n.Labels["gone"] != gone || n.Annotations["note"] != note ||
				n.Annotations[AnnotationPrevious] != record || len(n.Spec.Taints) != taints || n.Labels["own"] != "x" {
				return fmt.Errorf("it has %v, %v, %v", n.Labels, n.Annotations, n.Spec.Taints)
			}
			return nil
		})
	}
	has("north", "", "n", `{"labels":{"region":"north"},"annotations":{"note":"n"},`+
		`"taints":[{"key":"site","value":"a","effect":"NoSchedule"}]}`, 1)
	change(w, p, func(p *v1beta2.NodePool) { p.Spec.Labels, p.Spec.Taints = nil, nil })
	has("", "", "n", `{"annotations":{"note":"n"}}`, 0)
	change(w, n, func(n *corev1.Node) { delete(n.Labels, "apps.openyurt.io/nodepool") })
	has("", "", "", "", 0)
}

// TestBothVersionsOfANodePoolAreOne, and OpenYurt's own fields are kept, also while the status is written.
func TestBothVersionsOfANodePoolAreOne(t *testing.T) {
	w := newWorld(t)
	old := &v1beta1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "both"}}
	old.Spec.Labels = map[string]string{"region": "north"}
	old.Spec.InterConnectivity, old.Spec.LeaderReplicas = true, 2
	old.Spec.PoolScopeMetadata = []v1beta2.PoolScopeResource{{Version: "v1", Resource: "services"}}
	w.must(w.Create(t.Context(), old))
	n := w.node("both-1", "both")
	w.says("both", 1, 0, "both-1")
	p := &v1beta2.NodePool{}
	p.Name = "both"
	w.must(w.Get(t.Context(), client.ObjectKeyFromObject(p), p))
	if !equality.Semantic.DeepEqual(p.Spec, old.Spec) || p.UID != old.UID {
		t.Errorf("in v1beta2 it is %+v, want %+v", p.Spec, old.Spec)
	}
	cloudtest.Eventually(t, "OpenYurt writes who leads", func() error {
		w.must(w.Get(t.Context(), client.ObjectKeyFromObject(p), p))
		p.Status.LeaderEndpoints = []v1beta2.HubLeader{{NodeName: "both-1", Address: "10.0.0.1"}}
		p.Status.LeaderNum = 1
		return w.Status().Update(t.Context(), p)
	})
	w.report(n, corev1.ConditionFalse)
	w.says("both", 0, 1, "both-1")
	w.must(w.Get(t.Context(), client.ObjectKeyFromObject(old), old))
	if s := old.Status; s.UnreadyNodeNum != 1 || len(s.LeaderEndpoints) != 1 || s.LeaderNum != 1 {
		t.Errorf("in v1beta1 its status is %+v", s)
	}
}
