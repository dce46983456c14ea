package access

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/ends"
)

func mark(holder edge.NodeName, transitions int32) leaseMark {
	return leaseMark{holder: holder, transitions: transitions, term: 3 * time.Second}
}

func TestDecideElection(t *testing.T) {
	const alive, lapsed = true, false
	long := mark("a", 1)
	long.term = maxElectionTerm + time.Second
	endless := mark("a", 1)
	endless.term = 0
	for _, c := range []struct {
		name      string
		old, next leaseMark
		live      bool
		Refused   string // part of the reason; empty: allowed
	}{
		{"first ever", leaseMark{}, mark("a", 1), lapsed, ""},
		{"first ever, transitions not counted", leaseMark{}, mark("a", 0), lapsed, "leaseTransitions must be 1"},
		{"first ever, for another", leaseMark{}, mark("b", 1), lapsed, `only itself`},
		{"renewal", mark("a", 4), mark("a", 4), alive, ""},
		{"renewal after lapse that nobody used", mark("a", 4), mark("a", 4), lapsed, ""},
		{"a new term of a restarted hub", mark("a", 4), mark("a", 5), alive, ""},
		{"renewal that counts twice", mark("a", 4), mark("a", 6), alive, "leaseTransitions must stay 4"},
		{"renewal that counts down", mark("a", 4), mark("a", 3), alive, "leaseTransitions must stay 4"},
		{"release", mark("a", 4), mark("", 4), alive, ""},
		{"release that counts", mark("a", 4), mark("", 5), alive, "leaseTransitions must stay 4"},
		{"after a release", mark("", 4), mark("a", 5), lapsed, ""},
		{"after a release, not counted", mark("", 4), mark("a", 4), lapsed, "leaseTransitions must be 5"},
		{"takeover from a lapsed holder", mark("b", 4), mark("a", 5), lapsed, ""},
		{"takeover that counts twice", mark("b", 4), mark("a", 6), lapsed, "leaseTransitions must be 5"},
		{"takeover from a live holder", mark("b", 4), mark("a", 5), alive, `node "b" holds the Lease`},
		{"another is put in", mark("b", 4), mark("c", 5), lapsed, "only itself"},
		{"another's renewal", mark("b", 4), mark("b", 4), alive, "only itself"},
		{"another's release", mark("b", 4), mark("", 4), alive, "may release"},
		{"a lapsed one's release", mark("b", 4), mark("", 4), lapsed, "may release"},
		{"release of what nobody holds", mark("", 4), mark("", 4), lapsed, "may release"},
		{"a term too long", leaseMark{}, long, lapsed, "leaseDurationSeconds"},
		{"no term", leaseMark{}, endless, lapsed, "leaseDurationSeconds"},
	} {
		t.Run(c.name, func(t *testing.T) { check(t, decideElection("a", c.old, c.next, c.live, nil), c.Refused) })
	}
}

// TestVacancy: a coordinator that has just started lets nobody lead for a term, and the leader's own writes all the same.
func TestVacancy(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Unix(1000, 0))
	v := newVacancy(ends.Clock{Ran: clock.Now})
	take := func() error { return decideElection("a", leaseMark{}, mark("a", 1), false, v.mayTake()) }
	check(t, take(), "vacant for 4s")
	check(t, decideElection("a", mark("a", 1), mark("a", 1), true, v.mayTake()), "")
	check(t, decideElection("a", mark("a", 1), mark("", 1), true, v.mayTake()), "")
	clock.SetTime(clock.Now().Add(edge.ElectionTerm - 1))
	check(t, take(), "vacant")
	clock.SetTime(clock.Now().Add(1))
	check(t, take(), "")
}

func TestDecideSync(t *testing.T) {
	for _, c := range []struct {
		name      string
		old, next leaseMark
		leader    edge.NodeName
		Refused   string
	}{
		{"the leader's first", leaseMark{}, mark("a", 1), "a", ""},
		{"the leader's next", mark("a", 1), mark("a", 1), "a", ""},
		{"a new leader's", mark("b", 1), mark("a", 2), "a", ""},
		{"the leader takes it back", mark("a", 1), mark("", 1), "a", ""},
		{"a follower's", mark("a", 1), mark("a", 1), "b", `"b" leads`},
		{"a deposed leader's", mark("a", 1), mark("", 1), "b", `"b" leads`},
		{"nobody leads", mark("a", 1), mark("a", 1), "", "nobody holds"},
		{"the leader for another", mark("b", 1), mark("b", 1), "a", "only itself"},
		{"not counted", mark("b", 1), mark("a", 1), "a", "leaseTransitions must be 2"},
	} {
		t.Run(c.name, func(t *testing.T) { check(t, decideSync("a", c.old, c.next, c.leader), c.Refused) })
	}
}

func TestDecideHeartbeat(t *testing.T) {
	check(t, decideHeartbeat("a", "a"), "")
	check(t, decideHeartbeat("a", "b"), "own name")
	check(t, decideHeartbeat("a", ""), "own name")
}

func check(t *testing.T, err error, refused string) {
	t.Helper()
	switch {
	case refused == "" && err != nil:
		t.Errorf("refused: %v", err)
	case refused != "" && err == nil:
		t.Errorf("allowed, want refused with %q", refused)
	case refused != "" && !strings.Contains(err.Error(), refused):
		t.Errorf("refused with %q, want %q in it", err, refused)
	}
}

func TestTermsCountFromAdmission(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Unix(1000, 0))
	after := func(d time.Duration) { clock.SetTime(clock.Now().Add(d)) }
	terms := newTerms(ends.Clock{Ran: clock.Now})

	first := mark("a", 1)
	terms.Admitted("l", first)
	after(2 * time.Second)
	if !terms.Live("l", first) {
		t.Error("lapsed before its term")
	}
	after(time.Second)
	if terms.Live("l", first) {
		t.Error("live after its term: asking must not prolong it")
	}

	renewed := first
	renewed.renewed = 1
	terms.Admitted("l", renewed)
	if !terms.Live("l", renewed) {
		t.Error("lapsed right after a renewal")
	}
	after(2 * time.Second)
	terms.Admitted("l", renewed) // renewTime may stand still: it is the holder's affair
	after(2 * time.Second)
	if !terms.Live("l", renewed) {
		t.Error("a renewal with the same renewTime did not count")
	}
}

func TestTermsForgetWritesThatWereNotStored(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Unix(1000, 0))
	terms := newTerms(ends.Clock{Ran: clock.Now})
	stored, lost := mark("a", 1), mark("a", 1)
	lost.renewed = 7
	terms.Admitted("l", stored)
	if !terms.Live("l", stored) {
		t.Fatal("lapsed at once")
	}
	clock.SetTime(clock.Now().Add(2 * time.Second))
	terms.Admitted("l", lost)
	clock.SetTime(clock.Now().Add(2 * time.Second))
	if terms.Live("l", stored) {
		t.Error("a write that was never stored prolonged the term")
	}
}

func TestTermsOfAnUnknownLease(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Unix(1000, 0))
	terms := newTerms(ends.Clock{Ran: clock.Now})
	ancient := mark("a", 1)
	ancient.renewed = time.Unix(0, 0).UnixMicro()
	if !terms.Live("l", ancient) {
		t.Error("a Lease seen for the first time lapsed at once: its renewTime was believed")
	}
	clock.SetTime(clock.Now().Add(3 * time.Second))
	if terms.Live("l", ancient) {
		t.Error("still live a term after it was first seen")
	}
	if terms.Live("l", mark("", 1)) {
		t.Error("a Lease that nobody holds is live")
	}
}

// A dumb model of the same rules, walked at random: at any time at most one node believes, rightly, that it leads.
func TestElectionHasOneLeader(t *testing.T) {
	names := []edge.NodeName{"a", "b", "c"}
	for seed := range uint64(2000) {
		random := rand.New(rand.NewPCG(seed, 1))
		clock := clocktesting.NewFakePassiveClock(time.Unix(1000, 0))
		terms, vacancy := newTerms(ends.Clock{Ran: clock.Now}), newVacancy(ends.Clock{Ran: clock.Now})
		var stored leaseMark
		leads := map[edge.NodeName]time.Time{} // until when each was promised the Lease
		for step := range 60 {
			clock.SetTime(clock.Now().Add(time.Duration(random.IntN(8)) * 500 * time.Millisecond))
			caller := names[random.IntN(len(names))]
			next := stored
			next.renewed = int64(step)
			switch random.IntN(5) {
			case 0, 1, 2: // acquire or renew
				next.term = 3 * time.Second
				if stored.holder != caller {
					next.holder, next.transitions = caller, stored.transitions+1
				}
			case 3: // release
				next.holder = ""
			case 4: // put another in
				next.holder, next.transitions = names[random.IntN(len(names))], stored.transitions+1
				next.term = 3 * time.Second
			}
			if decideElection(caller, stored, next, terms.Live("l", stored), vacancy.mayTake()) != nil {
				continue
			}
			terms.Admitted("l", next)
			vacancy.admitted()
			if random.IntN(10) == 0 {
				continue // let in, but never stored: the caller got an error
			}
			delete(leads, caller)
			if next.holder != "" {
				if next.holder != caller {
					t.Fatalf("seed %d, step %d: %s put %s in", seed, step, caller, next.holder)
				}
				leads[caller] = clock.Now().Add(next.term)
			}
			stored = next
			for other, until := range leads {
				if stored.holder != "" && other != stored.holder && clock.Now().Before(until) {
					t.Fatalf("seed %d, step %d: %s leads until %s, and so does %s", seed, step, other, until,
						stored.holder)
				}
			}
		}
	}
}

func TestDecidePush(t *testing.T) {
	leader := leaseMark{holder: "n1", transitions: 7}
	for _, c := range []struct {
		node   edge.NodeName
		term   int32
		leader leaseMark
		ok     bool
	}{
		{"n1", 7, leader, true},
		{"n1", 6, leader, false},
		{"n1", 8, leader, false},
		{"n2", 7, leader, false},
		{"n1", 7, leaseMark{transitions: 7}, false},
		{"", 7, leaseMark{transitions: 7}, false},
	} {
		if err := decidePush(c.node, c.term, c.leader); (err == nil) != c.ok {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

func TestRelaysAt(t *testing.T) {
	const at = "10.0.0.1:10269"
	for name, tc := range map[string]struct {
		at   string
		and  string // an annotation besides
		want bool
	}{
		"one that relays":         {at, "", true},
		"over IPv6":               {"[fd00::1]:10269", "", true},
		"one that does not":       {"", "", false},
		"by a name":               {"n2:10269", "", false},
		"without a port":          {"10.0.0.1:0", "", false},
		"another port":            {"10.0.0.1:10268", "", false},
		"whoever dials":           {"127.0.0.1:10269", "", false},
		"..., in disguise":        {"[::ffff:127.0.0.1]:10269", "", false},
		"on the link":             {"169.254.169.254:10269", "", false},
		"anywhere":                {"0.0.0.0:10269", "", false},
		"a group":                 {"224.0.0.1:10269", "", false},
		"one that is delegated":   {at, edge.DelegateHeartbeat, false},
		"one that is relayed too": {at, edge.AnnotationRelayedBy, false},
	} {
		of := map[string]string{edge.AnnotationRelaysAt: tc.at}
		if tc.and != "" {
			of[tc.and] = "n3"
		}
		got := relaysAt(of)
		if got.IsValid() != tc.want || tc.want && got.String() != tc.at {
			t.Errorf("%s: %v", name, got)
		}
	}
}
