package relay

import (
	"slices"
	"testing"
	"time"

	"yurtcoordinator/internal/edge"
)

func names(all []edge.Neighbour) (names []edge.NodeName) {
	for _, n := range all {
		names = append(names, n.Name)
	}
	return names
}

func TestFailures(t *testing.T) {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	all := []edge.Neighbour{{Name: "a"}, {Name: "b"}, {Name: "c"}}
	f := failures{}
	order := func(after time.Duration, want ...edge.NodeName) {
		t.Helper()
		got := slices.Clone(all)
		f.last(got, at.Add(after))
		if !slices.Equal(names(got), want) {
			t.Errorf("after %v: %v, want %v", after, names(got), want)
		}
	}
	order(0, "a", "b", "c")
	f.note("a", false, at)
	order(time.Second, "b", "c", "a")
	f.note("b", false, at.Add(time.Second))
	order(2*time.Second, "c", "a", "b")
	f.note("a", true, at.Add(3*time.Second))
	order(4*time.Second, "a", "c", "b")
	order(time.Second+forget, "a", "b", "c")
	if f.note("c", false, at.Add(time.Second+forget)); len(f) != 1 {
		t.Errorf("%v is remembered", f)
	}
}
