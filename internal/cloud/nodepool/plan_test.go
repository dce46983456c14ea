package nodepool

import (
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yurtcoordinator/apis/apps/v1beta2"
	"yurtcoordinator/internal/edge"
)

func taint(key, value string, effect corev1.TaintEffect) corev1.Taint {
	return corev1.Taint{Key: key, Value: value, Effect: effect}
}

func TestPlanTaints(t *testing.T) {
	const no, out = corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute
	a1, a2, aOut, b := taint("a", "1", no), taint("a", "2", no), taint("a", "1", out), taint("b", "", no)
	type taints = []corev1.Taint
	for _, tt := range []struct {
		name         string
		has, ours    taints
		wanted       taints
		want, wantOf taints // what there is to be, and what of it is remembered as ours
		differs      bool
	}{
		{"nothing", nil, nil, nil, nil, nil, false},
		{"somebody else's stay", taints{b}, nil, nil, taints{b}, nil, false},
		{"one comes", taints{b}, nil, taints{a1}, taints{b, a1}, taints{a1}, true},
		{"it is there", taints{a1, b}, taints{a1}, taints{a1}, taints{a1, b}, taints{a1}, false},
		{"it leaves the pool's spec", taints{a1, b}, taints{a1}, nil, taints{b}, nil, true},
		{"its value changes", taints{a1, b}, taints{a1}, taints{a2}, taints{a2, b}, taints{a2}, true},
		{"its effect changes", taints{a1}, taints{a1}, taints{aOut}, taints{aOut}, taints{aOut}, true},
		{"one of two effects goes", taints{a1, aOut}, taints{a1, aOut}, taints{aOut}, taints{aOut}, taints{aOut}, true},
		{"somebody took it away", taints{b}, taints{a1}, taints{a1}, taints{b, a1}, taints{a1}, true},
		{"somebody took it away, and it is not wanted", taints{b}, taints{a1}, nil, taints{b}, nil, true},
		{"it was there before us", taints{a1}, nil, taints{a1}, taints{a1}, nil, false},
		{"it was there before us, with another value", taints{a1}, nil, taints{a2}, taints{a2}, taints{a2}, true},
		{"somebody changed ours, and it is not wanted", taints{a2}, taints{a1}, nil, taints{a2}, nil, true},
		{"it is wanted twice", nil, nil, taints{a1, a1}, taints{a1}, taints{a1}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			node := &corev1.Node{Spec: corev1.NodeSpec{Taints: tt.has}}
			if memo := memoOf(slices.Clone(tt.ours)); memo != "" {
				node.Annotations = map[string]string{AnnotationTaints: memo}
			}
			plan, differs := planTaints(node, tt.wanted)
			if !slices.Equal(plan.Taints, tt.want) || plan.Memo != memoOf(slices.Clone(tt.wantOf)) || differs != tt.differs {
				t.Errorf("got %v, ours %s, differs %v", plan.Taints, plan.Memo, differs)
			}
			node.Spec.Taints = plan.Taints
			node.Annotations = map[string]string{AnnotationTaints: plan.Memo}
			if again, differs := planTaints(node, tt.wanted); differs {
				t.Errorf("once more it is %v", again)
			}
		})
	}
}

func TestAMemoryThatCannotBeReadIsNone(t *testing.T) {
	node := &corev1.Node{Spec: corev1.NodeSpec{Taints: []corev1.Taint{taint("a", "", "NoSchedule")}}}
	node.Annotations = map[string]string{AnnotationTaints: "{rubbish", AnnotationAttributes: "{rubbish"}
	plan, differs := planTaints(node, nil)
	if len(plan.Taints) != 1 || plan.Memo != "" || !differs {
		t.Errorf("%+v, %v: want the taint kept, and the rubbish gone", plan, differs)
	}
	if !attributesDiffer(node, Wanted{}) {
		t.Error("rubbish about attributes stays")
	}
	if keys := CachedAnnotations(node); len(keys) != 3 {
		t.Errorf("kept are %v", keys)
	}
}

func pool(change func(*v1beta2.NodePoolSpec)) *v1beta2.NodePool {
	p := &v1beta2.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "p", Generation: 7}}
	change(&p.Spec)
	return p
}

func TestWantedBy(t *testing.T) {
	w := WantedBy(pool(func(s *v1beta2.NodePoolSpec) {
		s.HostNetwork = true
		s.Labels = map[string]string{"l": "1", edge.LabelNodePool: "other"}
		s.Annotations = map[string]string{"a": "2", AnnotationTaints: "x", AnnotationAttributes: "y"}
		s.Taints = []corev1.Taint{
			taint("t", "3", "NoExecute"), taint(edge.TaintUnschedulable, "", "NoSchedule"),
			taint("node.kubernetes.io/unreachable", "", "NoExecute"),
			taint("node.cloudprovider.kubernetes.io/uninitialized", "", "NoSchedule"),
			taint("node-role.kubernetes.io/control-plane", "mine", "NoSchedule"),
		}
		s.Taints[0].TimeAdded = &metav1.Time{}
	}))
	if !maps.Equal(w.Labels, map[string]string{"l": "1", LabelHostNetwork: "true"}) ||
		!maps.Equal(w.Annotations, map[string]string{"a": "2"}) ||
		!slices.Equal(w.Taints, []corev1.Taint{taint("t", "3", "NoExecute")}) {
		t.Errorf("got %+v", w)
	}
	if w := WantedBy(nil); w.memo() != "" || len(w.Taints) > 0 {
		t.Errorf("without a pool: %+v", w)
	}
}

// TestAttributesOfKubernetesItself are no pool's to set, but for those that say what people know of a site.
func TestAttributesOfKubernetesItself(t *testing.T) {
	const fine, left = true, false
	for key, want := range map[string]bool{
		"site": fine, "example.org/site": fine, "kubernetes.io.example.org/x": fine, "mykubernetes.io/x": fine,
		"node.openyurt.io/autonomy-duration": fine, "kubernetes.io": fine, corev1.LabelTopologyZone: fine,
		corev1.LabelTopologyRegion: fine, "node-role.kubernetes.io/edge": fine, corev1.LabelNodeExcludeBalancers: fine,
		corev1.LabelHostname: left, corev1.LabelOSStable: left, "node-role.kubernetes.io/control-plane": left,
		"node-restriction.kubernetes.io/pci": left, edge.LabelExcludeDisruption: left, "k8s.io/x": left,
		"node.alpha.k8s.io/x": left, "topology.kubernetes.io/other": left,
		edge.LabelNodePool: left, AnnotationTaints: left, AnnotationAttributes: left, AnnotationPrevious: left,
		edge.AnnotationLANAddress: left,
	} {
		both := map[string]string{key: "x"}
		pool := &v1beta2.NodePool{Spec: v1beta2.NodePoolSpec{Labels: both, Annotations: both}}
		w := WantedBy(pool)
		if len(w.Labels) != len(w.Annotations) || (len(w.Labels) == 1) != want {
			t.Errorf("%s: nodes get %v, %v", key, w.Labels, w.Annotations)
		}
		if out := reservedAttributes(pool); (len(out) == 0) != want || !want && !slices.Equal(out, []string{key}) {
			t.Errorf("%s: %v are said to be left out", key, out)
		}
	}
}

func TestAttributesDiffer(t *testing.T) {
	w := Wanted{Labels: map[string]string{"l": "1"}, Annotations: map[string]string{"a": ""}}
	memo := w.memo()
	type values = map[string]string
	for _, tt := range []struct {
		name                string
		labels, annotations values
		wanted              Wanted
		want                bool
	}{
		{"nothing is wanted, nothing is there", nil, nil, Wanted{}, false},
		{"others' are there", values{"x": "y"}, values{"x": "y"}, Wanted{}, false},
		{"all is there", values{"l": "1", "x": "y"}, values{"a": "", AnnotationAttributes: memo}, w, false},
		{"a label is missing", nil, values{"a": "", AnnotationAttributes: memo}, w, true},
		{"a label is another", values{"l": "2"}, values{"a": "", AnnotationAttributes: memo}, w, true},
		{"an empty annotation is missing", values{"l": "1"}, values{AnnotationAttributes: memo}, w, true},
		{"it is not known as ours", values{"l": "1"}, values{"a": ""}, w, true},
		{"it is not wanted any more", values{"l": "1"}, values{"a": "", AnnotationAttributes: memo}, Wanted{}, true},
	} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: tt.labels, Annotations: tt.annotations}}
		if got := attributesDiffer(node, tt.wanted); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
		// The cache keeps less of it, and that decides the same.
		stripped := node.DeepCopy()
		stripped.Annotations = map[string]string{}
		for _, key := range CachedAnnotations(node) {
			if v, ok := node.Annotations[key]; ok {
				stripped.Annotations[key] = v
			}
		}
		if got := attributesDiffer(stripped, tt.wanted); got != tt.want {
			t.Errorf("%s, of what the cache keeps: %v", tt.name, got)
		}
	}
}

func member(name string, status corev1.ConditionStatus) corev1.Node {
	n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{edge.LabelNodePool: "p"}}}
	if status != "" {
		n.Status.Conditions = []corev1.NodeCondition{
			{Type: corev1.NodeDiskPressure, Status: corev1.ConditionFalse}, {Type: corev1.NodeReady, Status: status},
		}
	}
	return n
}

func TestJudge(t *testing.T) {
	plain := pool(func(*v1beta2.NodePoolSpec) {})
	labelled := pool(func(s *v1beta2.NodePoolSpec) { s.Labels = map[string]string{"l": "1"} })
	labelled.Status.ObservedGeneration = 6
	wrong := pool(func(s *v1beta2.NodePoolSpec) { s.Labels = map[string]string{"l": "not a value"} })
	nodes := []corev1.Node{member("c", "True"), member("a", "False"), member("d", "Unknown"), member("b", "")}
	for _, tt := range []struct {
		name       string
		pool       *v1beta2.NodePool
		nodes      []corev1.Node
		ready, not int32
		names      []string
		reason     string
	}{
		{"empty", plain, nil, 0, 0, nil, ReasonAllNodes},
		{"some", plain, nodes, 1, 3, []string{"a", "b", "c", "d"}, ReasonAllNodes},
		{"not written yet", labelled, nodes, 1, 3, []string{"a", "b", "c", "d"}, ReasonNodesDiffer},
		{"empty, so all have it", labelled, nil, 0, 0, nil, ReasonAllNodes},
		// Who waits for a status, such as kstatus, waits for ever where the generation stays behind.
		{"no node can have it", wrong, nodes, 1, 3, []string{"a", "b", "c", "d"}, ReasonInvalidValues},
	} {
		got := statusOf(tt.pool, tt.nodes, metav1.Time{})
		want := v1beta2.NodePoolStatus{
			ObservedGeneration: 7, ReadyNodeNum: tt.ready, UnreadyNodeNum: tt.not, Nodes: tt.names,
		}
		is := tt.pool.DeepCopy()
		want.Conditions = conditions(is, tt.reason == ReasonAllNodes, metav1.Time{})
		if !equal(got, want) || got.Conditions[0].Reason != tt.reason {
			t.Errorf("%s: %+v, want %+v", tt.name, got, want)
		}
	}
}
