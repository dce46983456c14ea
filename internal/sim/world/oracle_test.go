package world

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// TestClauses: each clause can be broken, and holds for a node to which nothing happens.
func TestClauses(t *testing.T) {
	now := time.Date(2000, 1, 1, 1, 0, 0, 0, time.UTC)
	well := facts{
		now: now, lived: time.Hour, routed: time.Hour, lined: time.Hour, judged: time.Hour, controlled: time.Hour,
		route: ownLine, beat: now, renewed: now, ready: corev1.ConditionTrue, down: corev1.ConditionFalse, pod: "a",
	}
	broken := func(f facts) (names []string) {
		for _, c := range clauses {
			if c.broken(&f) != "" {
				names = append(names, c.name)
			}
		}
		return names
	}
	if got := broken(well); len(got) > 0 {
		t.Errorf("all is well: %q", got)
	}
	for _, b := range []struct {
		what   string
		change func(f *facts)
		want   []string
	}{
		{"the Lease of a living node ages", func(f *facts) { f.renewed = now.Add(-41 * time.Second) }, []string{"alive"}},
		{"… of one whose hub has just started", func(f *facts) {
			f.renewed, f.lived = now.Add(-41*time.Second), 40*time.Second
		}, nil},
		{"a living node is shown Unknown", func(f *facts) {
			f.ready, f.controlled = corev1.ConditionUnknown, 0
		}, []string{"alive"}},
		{"… that was so before it lived", func(f *facts) {
			f.ready, f.controlled, f.fell = corev1.ConditionUnknown, 0, true
		}, nil},
		{"… while kube-controller-manager is blind", func(f *facts) {
			f.ready, f.judged = corev1.ConditionUnknown, time.Minute
		}, nil},
		{"a living node is to be evicted", func(f *facts) { f.doomed, f.controlled = true, 0 }, []string{"alive"}},
		{"a living node's Pod is deleted", func(f *facts) { f.lost = true }, []string{"alive"}},
		{"… of a node that was called dead by right", func(f *facts) { f.lost, f.fell = true, true }, nil},
		{"somebody renews for a dead node", func(f *facts) { f.lived, f.beat = 0, now.Add(-15*time.Second) }, []string{"dead"}},
		{"a heartbeat is lost that was taken", func(f *facts) { f.owed = now.Add(-16 * time.Second) }, []string{"told"}},
		{"… is on its way", func(f *facts) { f.owed = now.Add(-15 * time.Second) }, nil},
		{"the mark stays", func(f *facts) { f.marked, f.lined = true, 21*time.Second }, []string{"unmarked"}},
		{"… for a moment", func(f *facts) { f.marked, f.lined = true, 20*time.Second }, nil},
		{"the taint stays", func(f *facts) { f.tainted, f.lined = true, 81*time.Second }, []string{"unmarked"}},
		{"… while it may not change", func(f *facts) { f.tainted, f.lined = true, 80*time.Second }, nil},
		{"… without a controller", func(f *facts) { f.tainted, f.controlled = true, time.Minute }, nil},
		{"the condition stays", func(f *facts) { f.down = corev1.ConditionTrue }, []string{"healed"}},
		{"a node is not Ready long after its line is back", func(f *facts) {
			f.ready, f.fell = corev1.ConditionUnknown, true
		}, []string{"healed"}},
		{"… though another speaks for it", func(f *facts) {
			f.ready, f.fell, f.lined = corev1.ConditionUnknown, true, 0
		}, []string{"healed"}},
		{"a node that another speaks for has our mark", func(f *facts) { f.marked, f.tainted, f.lined = true, true, 0 }, nil},
	} {
		f := well
		b.change(&f)
		if got := broken(f); !slices.Equal(got, b.want) {
			t.Errorf("%s: %q, want %q", b.what, got, b.want)
		}
	}
}

// TestSlotClauses is the same for coordinators.
func TestSlotClauses(t *testing.T) {
	now := time.Date(2000, 1, 1, 1, 0, 0, 0, time.UTC)
	for _, b := range []struct {
		what string
		is   slotFacts
		want []string
	}{
		{"it is led", slotFacts{now: now, reached: time.Hour, led: now}, nil},
		{"nobody leads", slotFacts{now: now, reached: time.Hour, led: now.Add(-17 * time.Second)}, []string{"led"}},
		{"… yet", slotFacts{now: now, reached: time.Hour, led: now.Add(-16 * time.Second)}, nil},
		{"nobody can", slotFacts{now: now, led: now.Add(-time.Hour)}, nil},
		{"another leads at once", slotFacts{now: now, led: now, former: 2 * time.Second}, []string{"writers"}},
		{"… after a term", slotFacts{now: now, led: now, former: 4 * time.Second}, nil},
	} {
		var broken []string
		for _, c := range slotClauses {
			if c.broken(&b.is) != "" {
				broken = append(broken, c.name)
			}
		}
		if !slices.Equal(broken, b.want) {
			t.Errorf("%s: %q, want %q", b.what, broken, b.want)
		}
	}
}
