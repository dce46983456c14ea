package settings

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yurtcoordinator/apis/apps/v1alpha1"
	"yurtcoordinator/apis/apps/v1beta2"
	hub "yurtcoordinator/apis/hub/v1alpha1"
	"yurtcoordinator/internal/edge"
)

var day = time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)

// saying returns PoolSettings of this name, age in days, and priority, for all pools, that say these agents ("" for none).
func saying(name string, age int, priority int32, agents string) v1alpha1.PoolSettings {
	s := v1alpha1.PoolSettings{ObjectMeta: metav1.ObjectMeta{
		Name: name, Generation: int64(age) + 1, CreationTimestamp: metav1.NewTime(day.AddDate(0, 0, -age)),
	}}
	s.Spec.Priority, s.Spec.NodePoolSelector = priority, &metav1.LabelSelector{}
	if agents != "" {
		s.Spec.Hub.CacheAgents = strings.Fields(agents)
	}
	return s
}

func with(s v1alpha1.PoolSettings, change func(*v1alpha1.PoolSettings)) v1alpha1.PoolSettings {
	change(&s)
	return s
}

func pool(name string, labels map[string]string) *v1beta2.NodePool {
	return &v1beta2.NodePool{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "u-" + "1", Labels: labels}}
}

func TestMerge(t *testing.T) {
	no, yes := false, true
	secrets := func(is *bool) func(*v1alpha1.PoolSettings) {
		return func(s *v1alpha1.PoolSettings) { s.Spec.Hub.OwnSecrets = is }
	}
	elsewhere := func(s *v1alpha1.PoolSettings) { s.Spec.NodePoolSelector, s.Spec.Pools = nil, []string{"p2"} }
	deleted := func(s *v1alpha1.PoolSettings) { s.DeletionTimestamp = &metav1.Time{Time: day} }
	for name, tt := range map[string]struct {
		all     []v1alpha1.PoolSettings
		want    hub.HubSettings
		from    []string
		clashes map[string][]clash
	}{
		"nobody says anything": {},
		"of another pool":      {all: []v1alpha1.PoolSettings{with(saying("a", 1, 0, "x"), elsewhere)}},
		"one": {
			all:  []v1alpha1.PoolSettings{saying("a", 1, 0, "x y")},
			want: hub.HubSettings{CacheAgents: []string{"x", "y"}}, from: []string{"a"},
		},
		"fields of several": {
			all:  []v1alpha1.PoolSettings{saying("a", 1, 0, "x"), with(saying("b", 2, 0, ""), secrets(&no))},
			want: hub.HubSettings{CacheAgents: []string{"x"}, OwnSecrets: &no}, from: []string{"a", "b"},
		},
		"the higher priority": {
			all:  []v1alpha1.PoolSettings{saying("a", 9, 0, "x"), saying("b", 1, 5, "y")},
			want: hub.HubSettings{CacheAgents: []string{"y"}}, from: []string{"a", "b"},
		},
		"of each field": {
			all: []v1alpha1.PoolSettings{with(saying("a", 9, 0, "x"), secrets(&yes)), with(saying("b", 1, 5, ""), secrets(&no)),
				saying("c", 1, -5, "z")},
			want: hub.HubSettings{CacheAgents: []string{"x"}, OwnSecrets: &no}, from: []string{"a", "b", "c"},
		},
		"of the same priority the older one": {
			all:  []v1alpha1.PoolSettings{saying("a", 1, 0, "x"), saying("b", 2, 0, "y")},
			want: hub.HubSettings{CacheAgents: []string{"y"}}, from: []string{"a", "b"},
			clashes: map[string][]clash{"a": {{"p1", "cacheAgents", "b"}}, "b": {{"p1", "cacheAgents", "a"}}},
		},
		"of the same age the first by name": {
			all:  []v1alpha1.PoolSettings{saying("b", 1, 0, "y"), saying("a", 1, 0, "x")},
			want: hub.HubSettings{CacheAgents: []string{"x"}}, from: []string{"a", "b"},
			clashes: map[string][]clash{"a": {{"p1", "cacheAgents", "b"}}, "b": {{"p1", "cacheAgents", "a"}}},
		},
		"the same twice is no clash": {
			all:  []v1alpha1.PoolSettings{saying("a", 1, 0, "x"), saying("b", 2, 0, "x")},
			want: hub.HubSettings{CacheAgents: []string{"x"}}, from: []string{"a", "b"},
		},
		"one that is being deleted": {
			all:  []v1alpha1.PoolSettings{saying("a", 1, 0, "x"), with(saying("b", 2, 9, "y"), deleted)},
			want: hub.HubSettings{CacheAgents: []string{"x"}}, from: []string{"a"},
		},
	} {
		for range 2 { // in any order
			slices.Reverse(tt.all)
			got, clashes, err := merge(pool("p1", nil), tt.all)
			if err != nil {
				t.Fatal(err)
			}
			settings, unknown, err := hub.DecodeShared([]byte(got.Configuration))
			if err != nil || unknown != "" || !reflect.DeepEqual(settings, tt.want) {
				t.Errorf("%s: %s, %v, want %+v", name, got.Configuration, err, tt.want)
			}
			if from := slices.Sorted(maps.Keys(got.From)); !slices.Equal(from, tt.from) {
				t.Errorf("%s: from %v, want %v", name, from, tt.from)
			}
			if len(clashes) != len(tt.clashes) || len(clashes) > 0 && !reflect.DeepEqual(clashes, tt.clashes) {
				t.Errorf("%s: clashes %v, want %v", name, clashes, tt.clashes)
			}
		}
	}
}

func TestHistory(t *testing.T) {
	said := func(configuration string, from map[string]int64) told { return told{configuration, from} }
	var r record
	had := ""
	tell := func(t told) {
		r, had = r.next(had, t), t.Configuration
	}
	tell(said("x", map[string]int64{"a": 1}))
	tell(said("y", map[string]int64{"a": 2}))
	tell(said("y", map[string]int64{"a": 3})) // what hubs are told is the same
	tell(said("z", map[string]int64{"a": 3, "b": 1}))
	if r.newest().Generation != 3 || len(r) != 3 {
		t.Fatalf("%+v", r)
	}
	for n, want := range map[int64]int64{1: 1, 2: 3, 3: 3, 4: 0, 0: 0} {
		if got := r.of("a", n); got != want {
			t.Errorf("generation %d is of a's %d, want %d", n, got, want)
		}
	}
	if r.of("b", 2) != 0 || r.of("b", 3) != 1 || r.newest().text() != "a (generation 3), b (generation 1)" {
		t.Errorf("%+v: %s", r, r.newest().text())
	}
	for i := range 20 {
		tell(said(fmt.Sprint(i), nil))
	}
	if len(r) != maxHistory || r.newest().Generation != 23 {
		t.Errorf("it grows to %d, and to generation %d", len(r), r.newest().Generation)
	}

	m, err := configMap(pool("p1", nil), said("x", nil), r, "")
	if err != nil || !reflect.DeepEqual(recorded(m), r) {
		t.Errorf("written and read again: %+v, %v", recorded(m), err)
	}
	m.Annotations[annotationHistory] = "[{"
	if got := recorded(m); got.newest().Generation != 23 {
		t.Errorf("whoever spoils the history has a generation used twice: %+v", got)
	}
	if got := recorded(&corev1.ConfigMap{}); len(got) != 0 {
		t.Errorf("of nothing: %+v", got)
	}
}

// member returns a Node whose hub has said this; "" for nothing.
func member(name, report string) corev1.Node {
	n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if report != "" {
		n.Annotations = map[string]string{edge.AnnotationSettings: report}
	}
	return n
}

func TestJudge(t *testing.T) {
	s := saying("a", 2, 0, "x") // generation 3
	r := record{{9, map[string]int64{"a": 3}}, {8, map[string]int64{"a": 2, "b": 1}}, {7, nil}}
	p := func(nodes ...corev1.Node) poolFacts { return poolFacts{name: "p1", record: r, nodes: nodes} }
	all := []corev1.Node{member("n1", "9/9//"), member("n2", "9/9//")}
	third := func(says string) facts {
		return facts{pools: []poolFacts{p(append(slices.Clone(all), member("n3", says))...)}}
	}
	for name, tt := range map[string]struct {
		facts           facts
		ready, followed string // reasons
		updated         int32
		generations     string
		says            string // in one of the messages
	}{
		"no pool":            {facts{}, ReasonNoPools, ReasonAllNodes, 0, "", "selects no pool"},
		"all":                {facts{pools: []poolFacts{p(all...)}}, ReasonTold, ReasonAllNodes, 2, "3:2", "the settings: 2."},
		"a pool without":     {facts{pools: []poolFacts{p()}}, ReasonTold, ReasonAllNodes, 0, "", "the settings: 1."},
		"one has said none":  {third(""), ReasonTold, ReasonWaiting, 2, "3:2", "n3"},
		"one was cut off":    {third("8/8//"), ReasonTold, ReasonWaiting, 2, "3:2 2:1", "n3"},
		"… before there was": {third("7/7//"), ReasonTold, ReasonWaiting, 2, "3:2", "n3"},
		"one must restart": {third("8/9/restart/masterservice"), ReasonTold, ReasonRestartNeeded, 2, "3:2 2:1",
			"n3 (masterservice)"},
		"one can't": {third("8/9/refused/why/not"), ReasonTold, ReasonRefused, 2, "3:2 2:1", "n3 (why/not)"},
		"one lies":  {third("much"), ReasonTold, ReasonWaiting, 2, "3:2", "n3"},
		"many": {facts{pools: []poolFacts{p(member("n1", ""), member("n2", ""), member("n3", ""), member("n4", ""),
			member("n5", ""), member("n6", ""), member("n7", ""))}}, ReasonTold, ReasonWaiting, 0, "", "n5 and 2 more"},
		"told before": {facts{pools: []poolFacts{{name: "p1", record: r[1:], nodes: []corev1.Node{member("n1", "8/8//")}}}},
			ReasonTelling, ReasonWaiting, 0, "2:1", "p1"},
		"never told": {facts{pools: []poolFacts{{name: "p1"}}}, ReasonTelling, ReasonAllNodes, 0, "", "p1"},
		"can't be told": {facts{pools: []poolFacts{{name: "p1", failed: errors.New("no")}, p(all...)}}, ReasonNotTold,
			ReasonAllNodes, 2, "3:2", "p1 (no)"},
		"a bad selector": {facts{badly: errors.New("no operator"), pools: []poolFacts{p(all...)}}, ReasonBadSelector,
			ReasonAllNodes, 2, "3:2", "no operator"},
	} {
		tt.facts.settings = &s
		got, n := statusOf(tt.facts, metav1.NewTime(day))
		var generations, messages []string
		for _, g := range got.Generations {
			generations = append(generations, fmt.Sprintf("%d:%d", g.Generation, g.Nodes))
		}
		for _, c := range got.Conditions {
			messages = append(messages, c.Message)
			if c.ObservedGeneration != 3 {
				t.Errorf("%s: %s is about generation %d", name, c.Type, c.ObservedGeneration)
			}
		}
		ready, followed := meta.FindStatusCondition(got.Conditions, v1alpha1.PoolSettingsReady),
			meta.FindStatusCondition(got.Conditions, v1alpha1.PoolSettingsFollowed)
		if ready.Reason != tt.ready || followed.Reason != tt.followed || got.UpdatedNodes != tt.updated ||
			strings.Join(generations, " ") != tt.generations || !strings.Contains(strings.Join(messages, "; "), tt.says) {
			t.Errorf("%s: %s, %s, %d updated, generations %v, %q", name, ready.Reason, followed.Reason, got.UpdatedNodes,
				generations, messages)
		}
		if good := tt.ready == ReasonTold || tt.ready == ReasonNoPools; good != (ready.Status == metav1.ConditionTrue) {
			t.Errorf("%s: Ready is %s", name, ready.Status)
		}
		if n.updated+n.refused+n.restart+n.waiting != got.Nodes || got.ObservedGeneration != 3 {
			t.Errorf("%s: %+v of %d nodes, of generation %d", name, n, got.Nodes, got.ObservedGeneration)
		}
	}
	s.Generation = 4
	clashing := facts{settings: &s, clashes: []clash{{"p1", "cacheAgents", "b"}}, pools: []poolFacts{p(all...)}}
	got, _ := statusOf(clashing, metav1.NewTime(day))
	if c := meta.FindStatusCondition(got.Conditions, v1alpha1.PoolSettingsConflicting); c.Status != metav1.ConditionTrue ||
		!strings.Contains(c.Message, "cacheAgents of pool p1, with b") {
		t.Errorf("a conflict: %+v", c)
	}
	if got.UpdatedNodes != 0 {
		t.Error("nodes that run with what their pool was told before count as updated")
	}
}

// TestHolds: others may add labels and annotations to a pool's ConfigMap.
func TestHolds(t *testing.T) {
	want, err := configMap(&v1beta2.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "p"}}, told{}, record{}, "g")
	if err != nil {
		t.Fatal(err)
	}
	for what, tt := range map[string]struct {
		change func(*corev1.ConfigMap)
		holds  bool
	}{
		"nothing":              {func(*corev1.ConfigMap) {}, true},
		"another's label":      {func(m *corev1.ConfigMap) { metav1.SetMetaDataLabel(&m.ObjectMeta, "x", "y") }, true},
		"another's annotation": {func(m *corev1.ConfigMap) { metav1.SetMetaDataAnnotation(&m.ObjectMeta, "x", "y") }, true},
		"our label":            {func(m *corev1.ConfigMap) { delete(m.Labels, labelManagedBy) }, false},
		"our annotation":       {func(m *corev1.ConfigMap) { m.Annotations[annotationGranted] = "" }, false},
		"data":                 {func(m *corev1.ConfigMap) { m.Data["x"] = "y" }, false},
	} {
		have := want.DeepCopy()
		if tt.change(have); holds(have, want) != tt.holds {
			t.Errorf("%s is changed: want %t", what, tt.holds)
		}
	}
}
