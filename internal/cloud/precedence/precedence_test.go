package precedence

import (
	"reflect"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"yurtcoordinator/apis/apps/v1alpha1"
	"yurtcoordinator/apis/apps/v1beta2"
)

func pool(name string, labels map[string]string) *v1beta2.NodePool {
	return &v1beta2.NodePool{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
}

func TestSelects(t *testing.T) {
	labelled := &metav1.LabelSelector{MatchLabels: map[string]string{"region": "north"}}
	for name, tt := range map[string]struct {
		pools    []string
		selector *metav1.LabelSelector
		want     bool
	}{
		"nothing":                {nil, nil, false},
		"by its name":            {[]string{"p1"}, nil, true},
		"another":                {[]string{"p2"}, nil, false},
		"all":                    {nil, &metav1.LabelSelector{}, true},
		"by its label":           {nil, labelled, true},
		"others by their label":  {nil, &metav1.LabelSelector{MatchLabels: map[string]string{"region": "south"}}, false},
		"another, and by labels": {[]string{"p2"}, labelled, true},
	} {
		s := &v1alpha1.PoolSettings{Spec: v1alpha1.PoolSettingsSpec{Pools: tt.pools, NodePoolSelector: tt.selector}}
		if got, err := Selects(s, pool("p1", map[string]string{"region": "north"})); err != nil || got != tt.want {
			t.Errorf("%s: %t, %v", name, got, err)
		}
	}
	bad := &v1alpha1.PoolSettings{Spec: v1alpha1.PoolSettingsSpec{NodePoolSelector: &metav1.LabelSelector{
		MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "region", Operator: "Near"}},
	}}}
	if ok, err := Selects(bad, pool("p1", nil)); ok || err == nil {
		t.Errorf("a selector that cannot be read: %t, %v", ok, err)
	}
}

// saying returns PoolSettings for all pools of this name, age in days and priority.
func saying(name string, age int, priority int32, c v1alpha1.CoordinatorSettings) v1alpha1.PoolSettings {
	day := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	s := v1alpha1.PoolSettings{ObjectMeta: metav1.ObjectMeta{
		Name: name, CreationTimestamp: metav1.NewTime(day.AddDate(0, 0, -age)),
	}}
	s.Spec.Priority, s.Spec.NodePoolSelector, s.Spec.Coordinator = priority, &metav1.LabelSelector{}, c
	return s
}

// TestCoordinator: each field is the highest priority's that has it, below them is the base, and equals that disagree clash.
func TestCoordinator(t *testing.T) {
	base := v1alpha1.CoordinatorSettings{Verbosity: ptr.To[int32](1), MinNodes: ptr.To[int32](5), LoggingFormat: "json"}
	got, clashes, err := Coordinator(base, nil)
	if err != nil || len(clashes) > 0 || !reflect.DeepEqual(got, base) {
		t.Errorf("nobody says anything: %+v, %v, %v", got, clashes, err)
	}
	all := []v1alpha1.PoolSettings{
		saying("general", 9, 0, v1alpha1.CoordinatorSettings{
			MinNodes: ptr.To[int32](2), NodeSelector: map[string]string{"a": "b"},
		}),
		saying("special", 1, 5, v1alpha1.CoordinatorSettings{OwnSecrets: ptr.To(false),
			NodeSelector: map[string]string{"c": "d"}}),
		saying("younger", 1, 0, v1alpha1.CoordinatorSettings{MinNodes: ptr.To[int32](1)}),
	}
	deleted := saying("deleted", 20, 99, v1alpha1.CoordinatorSettings{MinNodes: ptr.To[int32](9)})
	deleted.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	got, clashes, err = Coordinator(base, Of(pool("p", nil), append(all, deleted)))
	want := v1alpha1.CoordinatorSettings{
		Verbosity: ptr.To[int32](1), MinNodes: ptr.To[int32](2), LoggingFormat: "json", OwnSecrets: ptr.To(false),
		NodeSelector: map[string]string{"c": "d"},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}
	clash := map[string][]Clash{"general": {{"minNodes", "younger"}}, "younger": {{"minNodes", "general"}}}
	if !reflect.DeepEqual(clashes, clash) {
		t.Errorf("clashes: %v", clashes)
	}
	if base.MinNodes == nil || *base.MinNodes != 5 || base.NodeSelector != nil {
		t.Errorf("the base has changed: %+v", base)
	}
}
