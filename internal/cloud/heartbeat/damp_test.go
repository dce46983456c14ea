package heartbeat

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

// TestDamp: a node's changes are shown at once, twice; after that it stays tainted until it has been calm.
func TestDamp(t *testing.T) {
	d := newDamper(time.Minute)
	began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, step := range []struct {
		at     int // seconds
		f      Finding
		want   Verdict
		wait   int // seconds
		begins bool
	}{
		{at: 0, f: Finding{Verdict: NoLease}, want: NoLease},
		{at: 0, f: Finding{Verdict: Direct}, want: Direct},
		{at: 10, f: Finding{Verdict: Delegated}, want: Delegated},
		{at: 20, f: Finding{Verdict: Direct}, want: Direct},
		{at: 30, f: Finding{Verdict: Delegated}, want: Direct, wait: 40, begins: true},
		{at: 40, f: Finding{Verdict: Silent}, want: Silent},
		{at: 60, f: Finding{Verdict: Delegated}, want: Direct, wait: 10},
		{at: 70, f: Finding{Verdict: Delegated}, want: Delegated},
		{at: 80, f: Finding{Verdict: Direct}, want: Delegated, wait: 60},
		{at: 130, f: Finding{Verdict: Delegated}, want: Delegated},
		{at: 135, f: Finding{Verdict: Direct}, want: Delegated, wait: 60},
		{at: 195, f: Finding{Verdict: Direct}, want: Direct},
		{at: 196, f: Finding{Verdict: Delegated}, want: Delegated}, // that of 70 is long past
		{at: 197, f: Finding{Verdict: Direct}, want: Delegated, wait: 58, begins: true},
	} {
		now := began.Add(time.Duration(step.at) * time.Second)
		peeked := d.peek("n1", step.f, now)
		got, wait, begins := d.take("n1", step.f, now)
		if got.Verdict != step.want || wait != time.Duration(step.wait)*time.Second || begins != step.begins {
			t.Errorf("after %d s, %v: shown as %v, for %v, begins %t; want %v, %d s, %t", step.at, step.f.Verdict,
				got.Verdict, wait, begins, step.want, step.wait, step.begins)
		}
		if peeked != got {
			t.Errorf("after %d s: peek is %+v, take %+v", step.at, peeked, got)
		}
	}
	if got := d.peek("n2", Finding{Verdict: Unobserved, Annotated: true}, began); !got.Annotated {
		t.Error("a node that was just found is not shown as found")
	}
}

// TestDampAtRandom: whatever a Lease says when, its node changes at most twice in a minute, follows within a minute where the
// Lease stays as it is, and is tainted where it does not.
func TestDampAtRandom(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		d := newDamper(time.Minute)
		now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		f := Finding{Verdict: Direct}
		shown := f
		var changes []time.Time
		since, often := now, 1+r.IntN(120)
		for range 2000 {
			now = now.Add(time.Second)
			if r.IntN(often) == 0 {
				f = Finding{Verdict: []Verdict{Direct, Delegated}[r.IntN(2)]}
				if was, _ := f.delegated(); was != (shown.Verdict == Delegated) {
					since = now
				}
			}
			got, _, _ := d.take("n1", f, now)
			if got.Verdict != shown.Verdict {
				changes = append(changes, now)
				shown = got
			}
			if n := len(changes); n > 2 && changes[n-1].Sub(changes[n-3]) < time.Minute {
				t.Fatalf("seed %d: changed at %v", seed, changes[n-3:])
			}
			if got.Verdict != f.Verdict && now.Sub(since) > time.Minute {
				t.Fatalf("seed %d: shown as %v, though %v since %v", seed, got.Verdict, f.Verdict, now.Sub(since))
			}
		}
		if often == 1 && len(changes) > 3 {
			t.Errorf("seed %d: a node that changes each second changed its taint %d times", seed, len(changes))
		}
	}
}

// A node that a thief marks after each of its heartbeats: two writes a minute, one Event, and in the end none.
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
	if taints != 3 || events < 0 || slices.Contains(said[events+1:], said[events]) || len(said) > 12 {
		t.Errorf("%d changes of the taint in five minutes; all: %v", taints, said)
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
