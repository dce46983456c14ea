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

func TestPlaces(t *testing.T) {
	var p places
	limits := Limits{PerPeer: 2, All: 3}
	take := func(peer edge.NodeName, want bool) {
		t.Helper()
		if got := p.acquire(peer, limits); got != want {
			t.Errorf("a place for %s: %t", peer, got)
		}
	}
	take("a", true)
	take("a", true)
	take("a", false)
	take("b", true)
	take("c", false)
	p.leave("a")
	take("c", true)
	for _, peer := range []edge.NodeName{"a", "b", "c"} {
		p.leave(peer)
	}
	if tunnels, peers := p.count(); tunnels != 0 || peers != 0 || len(p.each) != 0 {
		t.Errorf("%d tunnels of %d peers are left", tunnels, peers)
	}
}

func TestAllowance(t *testing.T) {
	var a allowance
	limits := Limits{BytesPerDay: 100}
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	if left := a.left(limits, at); left != 100 {
		t.Errorf("%d left at the start", left)
	}
	late := at.Add(23 * time.Hour)
	if !a.spend(99, limits, at.Add(time.Hour)) || a.spend(1, limits, late) || a.left(limits, late) != 0 {
		t.Error("a day's bytes are not what a day has")
	}
	if left := a.left(Limits{BytesPerDay: 150}, at.Add(23*time.Hour)); left != 50 {
		t.Errorf("%d left of a larger day", left)
	}
	if left := a.left(limits, at.Add(24*time.Hour)); left != 100 {
		t.Errorf("%d left on the next day", left)
	}
}
