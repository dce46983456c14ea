package coordinator

import (
	"math"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yurtcoordinator/internal/edge"
)

// TestGenerationOf: a coordinator keeps its generation, and the next one has a greater one, whatever the clock says.
func TestGenerationOf(t *testing.T) {
	now := time.Unix(1000, 0)
	for name, tt := range map[string]struct {
		had   string
		slot  edge.Slot
		isNew bool
		want  edge.Generation
	}{
		"the first":               {"", 0, true, edge.Generation{Number: 1000}},
		"of before":               {"", 0, false, edge.Generation{Number: 1000}},
		"the same Pod":            {"0.500", 0, false, edge.Generation{Number: 500}},
		"a later Pod":             {"0.500", 0, true, edge.Generation{Number: 1000}},
		"at once":                 {"0.1000", 0, true, edge.Generation{Number: 1001}},
		"the clock went back":     {"0.7000", 0, true, edge.Generation{Number: 7001}},
		"of another slot":         {"1.7000", 0, false, edge.Generation{Number: 1000}},
		"in slot 2":               {"2.7000", 2, true, edge.Generation{Slot: 2, Number: 7001}},
		"somebody's own text":     {"seven", 0, false, edge.Generation{Number: 1000}},
		"the same Pod in slot 2":  {"2.7000", 2, false, edge.Generation{Slot: 2, Number: 7000}},
		"slot 0 never was in it":  {"0.7000", 2, true, edge.Generation{Slot: 2, Number: 1000}},
		"as large as can be, new": {"0.18446744073709551614", 0, true, edge.Generation{Number: math.MaxUint64}},
	} {
		have := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{annotationGeneration: tt.had}}}
		if got := generationOf(have, tt.slot, tt.isNew, now); got != tt.want {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
}

// TestGenerations: each of a pool's coordinators has a greater generation than the one before, in its certificate and where hubs
// are told of it, and no other reason to make a certificate again changes it.
func TestGenerations(t *testing.T) {
	w := newWorld(t)
	w.pool("p1", 4)
	w.coordinator("c1", "p1")
	w.turns(9)
	const pool = edge.PoolName("p1")
	is := func() edge.Generation {
		t.Helper()
		var mounted corev1.Secret
		var hint corev1.ConfigMap
		w.get(edge.NamespaceSystem, pool.CoordinatorSecret(), &mounted)
		w.get(edge.NamespaceSystem, pool.DiscoveryConfigMap(), &hint)
		got, err := edge.GenerationIn(w.leaf(pairIn(&mounted, "tls.crt", "tls.key")))
		if err != nil {
			t.Fatal(err)
		}
		if told := hint.Data["generation"]; got == (edge.Generation{}) || told != got.String() {
			t.Errorf("it is of generation %v, and hubs are told %q", got, told)
		}
		return got
	}
	first := is()

	w.node("p1", 5) // another node
	w.turns(3)
	var hint corev1.ConfigMap
	w.get(edge.NamespaceSystem, pool.DiscoveryConfigMap(), &hint)
	if want := "192.0.2.1\n192.0.2.2\n192.0.2.3\n192.0.2.4\n192.0.2.5\n"; hint.Data["nodes"] != want {
		t.Errorf("hubs are told of %q, want %q", hint.Data["nodes"], want)
	}
	w.restart()
	w.turns(3)
	if got := is(); got != first {
		t.Errorf("the same coordinator was %v, and is %v", first, got)
	}
	w.clock.SetTime(w.clock.Now().Add(300 * 24 * time.Hour)) // its certificate is renewed
	w.turns(9)
	if got := is(); got != first {
		t.Errorf("renewed: it was %v, and is %v", first, got)
	}

	w.clock.SetTime(w.clock.Now().Add(-600 * 24 * time.Hour)) // a clock that was ahead is put right
	for range 2 {
		var pods corev1.PodList
		w.list(&pods)
		w.delete(&pods.Items[0])
		was := is()
		w.turns(6)
		if got := is(); !got.Younger(was) {
			t.Errorf("the next one is %v, after %v", got, was)
		}
	}
}
