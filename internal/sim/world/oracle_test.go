package world

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"yurtcoordinator/internal/edge"
)

// TestClauses: each clause can be broken, and holds for a node to which nothing happens.
func TestClauses(t *testing.T) {
	now := time.Date(2000, 1, 1, 1, 0, 0, 0, time.UTC)
	well := facts{
		now: now, lived: time.Hour, routed: time.Hour, lined: time.Hour, judged: time.Hour, controlled: time.Hour,
		steady: time.Hour, calm: time.Hour, paths: time.Hour, route: ownLine, beat: now, renewed: now, sent: now,
		ready: corev1.ConditionTrue, down: corev1.ConditionFalse, pod: "a",
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
		{"the mark stays", func(f *facts) { f.marked, f.lined = true, 23*time.Second }, []string{"unmarked"}},
		{"… for a moment", func(f *facts) { f.marked, f.lined = true, 22*time.Second }, nil},
		{"the taint stays", func(f *facts) { f.tainted, f.lined = true, 83*time.Second }, []string{"unmarked"}},
		{"… while it may not change", func(f *facts) { f.tainted, f.lined = true, 82*time.Second }, nil},
		{"… without a controller", func(f *facts) { f.tainted, f.controlled = true, time.Minute }, nil},
		{"a Lease is renewed with nothing of kubelet's", func(f *facts) { f.sent = time.Time{} }, []string{"writers"}},
		{"… but by a microsecond more than before", func(f *facts) { f.sent, f.step = time.Time{}, 1 }, nil},
		{"… with something old", func(f *facts) { f.sent = now.Add(-15 * time.Second) }, []string{"writers"}},
		{"… that may have been lost on the way", func(f *facts) {
			f.sent, f.paths = now.Add(-25*time.Second), resends
		}, nil},
		{"… older than that", func(f *facts) { f.sent, f.paths = now.Add(-27*time.Second), 0 }, []string{"writers"}},
		{"… three times with the same", func(f *facts) { f.times = 3 }, []string{"writers"}},
		{"… twice", func(f *facts) { f.times = 2 }, nil},
		{"a node asks the cloud for too much", func(f *facts) { f.asks = asksCloud + 1 }, []string{"bounded"}},
		{"… as something is harmed", func(f *facts) { f.asks, f.calm = asksCloud+1, time.Minute }, nil},
		{"… a coordinator", func(f *facts) { f.asksPool = asksPool + 1 }, []string{"bounded"}},
		{"… as the leader may", func(f *facts) { f.asksPool, f.leads = asksPool+1, true }, nil},
		{"… as the leader, for too much", func(f *facts) { f.asksPool, f.leads = asksLeading+1, true }, []string{"bounded"}},
		{"a held node is to be evicted", func(f *facts) {
			f.kept, f.cut, f.doomed, f.lived, f.lined = true, 50*time.Second, true, 0, 0
		}, []string{"held"}},
		{"… since coordinator-controller has another leader", func(f *facts) {
			f.kept, f.cut, f.doomed, f.lived, f.lined, f.steady = true, 50*time.Second, true, 0, 0, 2*time.Minute
		}, nil},
		{"its Pod is evicted", func(f *facts) {
			f.kept, f.cut, f.lost, f.lived, f.lined, f.controlled = true, time.Hour, true, 0, 0, 2*time.Minute
			f.fell, f.dated = true, 2*time.Hour
		}, []string{"held"}},
		{"… while nobody holds it", func(f *facts) {
			f.kept, f.cut, f.lost, f.lived, f.lined, f.controlled = true, time.Hour, true, 0, 0, time.Minute
			f.fell, f.dated = true, 2*time.Hour
		}, nil},
		{"a node is held for too long", func(f *facts) {
			f.heldSince, f.holds, f.lined, f.dated = now.Add(-131*time.Second), 2*time.Minute, 0, time.Hour
		}, []string{"held"}},
		{"… for long enough", func(f *facts) {
			f.heldSince, f.holds, f.lined, f.dated = now.Add(-130*time.Second), 2*time.Minute, 0, time.Hour
		}, nil},
		{"it is held long after its line is back", func(f *facts) {
			f.heldSince, f.holds = now.Add(-time.Second), time.Hour
		}, []string{"healed"}},
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

// TestCut: who must be held of a pool that falls silent.
func TestCut(t *testing.T) {
	at := func(seconds int) time.Time { return time.Date(2000, 1, 1, 1, 0, seconds, 0, time.UTC) }
	for _, b := range []struct {
		what string
		// heard are the seconds at which the nodes were heard, over and over until a second; then they are silent for good.
		heard map[string][2]int
		// blips are seconds at which a node is heard again, once.
		blips map[int]string
		says  report
		// holds is in seconds, now when it is asked.
		holds, now int
		want       []string
	}{
		{"all are cut off", map[string][2]int{"n1": {0, 100}, "n2": {5, 100}, "n3": {9, 100}}, nil, report{}, 3600, 150,
			[]string{"n1", "n2", "n3"}},
		{"not for long enough", map[string][2]int{"n1": {0, 100}, "n2": {5, 100}}, nil, report{}, 3600, 135, nil},
		{"for longer than they are held", map[string][2]int{"n1": {0, 100}, "n2": {5, 100}}, nil, report{}, 60, 160, nil},
		{"one was dead before", map[string][2]int{"n1": {0, 100}, "n2": {5, 100}, "n3": {9, 50}}, nil, report{}, 3600, 150,
			[]string{"n1", "n2"}},
		{"one alone is lost", map[string][2]int{"n1": {0, 100}, "n2": {5, 50}}, nil, report{}, 3600, 150, nil},
		{"one speaks for a moment", map[string][2]int{"n1": {0, 100}, "n2": {5, 100}, "n3": {9, 100}}, map[int]string{150: "n1"},
			report{}, 3600, 210, []string{"n1", "n2", "n3"}},
		{"one speaks, and is no witness", map[string][2]int{"n1": {0, 100}, "n2": {5, 100}, "n3": {9, 100}},
			map[int]string{150: "n1", 160: "n1", 170: "n1", 180: "n1", 190: "n1"},
			report{at: at(180), leader: "n1", reached: []edge.NodeName{"n1"}}, 3600, 195, []string{"n2", "n3"}},
		{"one speaks, and misses one that it does not hear", map[string][2]int{"n1": {0, 100}, "n2": {5, 100}, "n3": {9, 100}},
			map[int]string{150: "n1", 160: "n1", 170: "n1", 180: "n1", 190: "n1"},
			report{at: at(180), leader: "n1", reached: []edge.NodeName{"n1", "n2"}}, 3600, 195, []string{"n2"}},
		{"… said so long ago", map[string][2]int{"n1": {0, 100}, "n2": {5, 100}, "n3": {9, 100}},
			map[int]string{150: "n1", 160: "n1", 170: "n1", 180: "n1", 190: "n1"},
			report{at: at(100), leader: "n1", reached: []edge.NodeName{"n1", "n2"}}, 3600, 195, []string{"n2", "n3"}},
	} {
		var c cut
		nodes := map[string]*facts{}
		for name := range b.heard {
			nodes[name] = &facts{}
		}
		for s := range b.now + 1 {
			for name, heard := range b.heard {
				f := nodes[name]
				f.now = at(s)
				if s <= heard[1] && s%10 == heard[0] || b.blips[s] == name {
					f.renewed = f.now
				}
				// as the product is seen to do
				age := f.now.Sub(f.renewed)
				if f.ready = corev1.ConditionTrue; age > 50*time.Second {
					f.ready = corev1.ConditionUnknown
				}
				if f.heldSince.IsZero() && age > 35*time.Second {
					f.heldSince = f.now
				} else if age < 10*time.Second {
					f.heldSince = time.Time{}
				}
			}
			c.look(at(s), time.Duration(b.holds)*time.Second, nodes, b.says)
		}
		var got []string
		for name, f := range nodes {
			if f.kept {
				got = append(got, name)
			}
		}
		if slices.Sort(got); !slices.Equal(got, b.want) {
			t.Errorf("%s: %q must be held, want %q", b.what, got, b.want)
		}
	}
}
