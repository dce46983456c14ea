package heartbeat

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

// TestDamp: three changes within a minute are shown at once. From the fourth on the node is unsettled, until its Lease has said
// one thing for a minute.
func TestDamp(t *testing.T) {
	d := newDamper(time.Minute)
	began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	direct, relayed, delegated := Finding{Verdict: Direct}, Finding{Verdict: Delegated, Annotated: true, Relayed: true},
		Finding{Verdict: Delegated, Annotated: true}
	unsettled := Finding{Verdict: Delegated, Annotated: true, Unsettled: true}
	silent := Finding{Verdict: Silent, Annotated: true}
	for _, step := range []struct {
		at      int // seconds
		f, want Finding
		wait    int // seconds
		begins  bool
	}{
		{at: 0, f: Finding{}, want: Finding{}},
		{at: 0, f: direct, want: direct},
		{at: 10, f: delegated, want: delegated},
		{at: 20, f: relayed, want: relayed},
		{at: 30, f: direct, want: direct}, // a short cut
		{at: 40, f: silent, want: silent},
		{at: 71, f: delegated, want: delegated}, // the change of 10 is long past
		{at: 79, f: direct, want: unsettled, wait: 60, begins: true},
		{at: 80, f: silent, want: silent},
		{at: 81, f: delegated, want: unsettled, wait: 60},
		{at: 121, f: relayed, want: unsettled, wait: 60},
		{at: 180, f: relayed, want: unsettled, wait: 1},
		{at: 181, f: relayed, want: relayed}, // it counts as a change
		{at: 182, f: delegated, want: delegated},
		{at: 183, f: relayed, want: relayed},
		{at: 184, f: delegated, want: unsettled, wait: 60, begins: true},
		{at: 190, f: silent, want: silent},
		{at: 300, f: direct, want: direct}, // a silence is calm, too
	} {
		now := began.Add(time.Duration(step.at) * time.Second)
		peeked := d.peek("n1", step.f, now)
		got, wait, begins := d.settle("n1", step.f, now)
		if got != step.want || wait != time.Duration(step.wait)*time.Second || begins != step.begins {
			t.Errorf("after %d s, %+v: shown as %+v, for %v, begins %t; want %+v, %d s, %t", step.at, step.f,
				got, wait, begins, step.want, step.wait, step.begins)
		}
		if peeked != got {
			t.Errorf("after %d s: peek is %+v, take %+v", step.at, peeked, got)
		}
	}
	if got := d.peek("n2", Finding{Verdict: Unobserved, Annotated: true}, began); !got.Annotated || got.Unsettled {
		t.Errorf("a node that was just found: %+v", got)
	}
}

// TestDampAtRandom: whatever a Lease says when, its node changes at most four times in a minute, is never without a taint while
// the Lease is marked, and is as the Lease says where that has stayed the same for a minute.
func TestDampAtRandom(t *testing.T) {
	says := []Finding{{Verdict: Direct}, {Verdict: Delegated, Relayed: true}, {Verdict: Delegated}}
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		d := newDamper(time.Minute)
		now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		f := says[0]
		shown := f
		d.settle("n1", f, now)
		var changes []time.Time
		since, often := now, 1+r.IntN(120)
		for range 2000 {
			now = now.Add(time.Second)
			if was := f; r.IntN(often) == 0 {
				if f = says[r.IntN(len(says))]; f != was {
					since = now
				}
			}
			got, _, _ := d.settle("n1", f, now)
			if got != shown {
				changes = append(changes, now)
				shown = got
			}
			if n := len(changes); n > 4 && changes[n-1].Sub(changes[n-5]) < time.Minute {
				t.Fatalf("seed %d: changed at %v", seed, changes[n-5:])
			}
			if got != f && (!got.Unsettled || now.Sub(since) >= time.Minute) {
				t.Fatalf("seed %d: shown as %+v, though %+v for %v", seed, got, f, now.Sub(since))
			}
			if f.Verdict == Delegated && byDefault.effect(got) == bare {
				t.Fatalf("seed %d: %+v has no taint", seed, f)
			}
			if hears := f.Verdict == Direct || f.Relayed; hears && got.Verdict == Delegated && byDefault.effect(got) == never {
				t.Fatalf("seed %d: %+v hears deletions, and lets no replacement in", seed, f)
			}
		}
		if often == 1 && len(changes) > 4 {
			t.Errorf("seed %d: a node that changes each second changed its taint %d times", seed, len(changes))
		}
	}
}

// A node that a thief marks after each of its heartbeats: four writes and one Event, and then none.
func TestAThiefMarksANode(t *testing.T) {
	w := newWorld(t)
	w.calm = time.Minute
	w.start()
	w.createNode(aNode(false, none, ""))
	for i := range 60 {
		w.renew("n1", i%2 == 1)
		w.pass(5 * time.Second)
	}
	said := w.said()
	taints := 0
	for _, s := range said {
		if s == "taint" {
			taints++
		}
	}
	events := slices.Index(said, "event Warning HeartbeatsFlap")
	if taints != 4 || events < 0 || slices.Contains(said[events+1:], said[events]) || len(said) > 13 {
		t.Errorf("%d changes of the taint in five minutes; all: %v", taints, said)
	}
	if got := w.effect("n1"); got != prefer {
		t.Errorf("meanwhile it has a taint %q", got)
	}
	if got := testutil.ToFloat64(w.policy.metrics.flapping.WithLabelValues("p1")); got != 1 {
		t.Errorf("counted %v times", got)
	}
	for range 20 {
		w.renew("n1", false)
		w.pass(5 * time.Second)
	}
	if n := w.node("n1"); slices.ContainsFunc(n.Spec.Taints, isOurs) {
		t.Error("still tainted after the thief has stopped")
	}
}
