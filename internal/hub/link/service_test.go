package link

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func served(s, sent float64) Event {
	return Event{Kind: CoreServed, At: at(s), SentAt: at(sent)}
}
func unserved(s, sent float64) Event {
	return Event{Kind: CoreFailed, At: at(s), SentAt: at(sent)}
}
func hung(s float64) Event     { return Event{Kind: CoreHung, At: at(s)} }
func checking(s float64) Event { return Event{Kind: CheckStarted, At: at(s)} }
func checked(s float64) Event  { return Event{Kind: CheckEnded, At: at(s)} }

func TestService(t *testing.T) {
	failing := []Event{unserved(1, 0.9), unserved(2, 1.9)}
	then := func(first []Event, more ...Event) []Event { return append(first[:len(first):len(first)], more...) }
	const none = -1
	for _, tc := range []struct {
		name    string
		events  []Event
		failing bool
		due     float64
	}{
		{"new", nil, false, none},
		{"served", []Event{served(1, 0)}, false, none},
		{"one failure is checked at once", []Event{unserved(1, 0)}, false, 1.2},
		{"two failures", failing, true, 5},
		{"two failures of one burst", []Event{unserved(1, 0.5), unserved(1.1, 0.6)}, false, 1.2},
		{"two failures with an answer between", []Event{unserved(1, 0.9), served(1.5, 1.4), unserved(2, 1.9)}, false, 2.2},
		{"an answer to what was asked before the failure", []Event{unserved(1, 0.9), served(1.5, 0.9), unserved(2, 1.9)},
			true, 5},
		{"confirmed by the check", []Event{unserved(1, 0.9), checking(1.2), unserved(1.3, 1.2), checked(1.3)}, true, 4.3},
		{"refuted by the check", []Event{unserved(1, 0.9), checking(1.2), served(1.3, 1.2), checked(1.3)}, false, none},
		{"a check that got no answer", []Event{unserved(1, 0.9), checking(1.2), checked(4.2)}, false, none},
		{"a Lease that hangs is followed by a check", []Event{hung(1)}, false, 1},
		{"a check that shows that all is well", []Event{hung(1), checking(1), served(1.1, 1), checked(1.1)}, false, none},
		{"a check that hangs too", []Event{hung(1), checking(1), hung(4), checked(11)}, false, none},
		{"a check that is answered late, with a failure", []Event{hung(1), checking(1), unserved(6, 1), checked(6)}, false, 6.2},
		{"and another", []Event{hung(1), checking(1), unserved(6, 1), checked(6), checking(6.2), unserved(11, 6.2), checked(11)},
			true, 14},
		{"a Lease that hangs while failing", then(failing, hung(3)), true, 5},
		{"the end of no check", []Event{checked(1)}, false, none},
		{"one good answer does not end it", then(failing, served(3, 2.9)), true, 3.5},
		{"two do", then(failing, served(3, 2.9), served(4, 3.9)), false, none},
		{"two of one burst do not", then(failing, served(3, 2.9), served(3.1, 2.9)), true, 3.5},
		{"nor two with a failure between", then(failing, served(3, 2.9), unserved(4, 3.9), served(5, 4.9)), true, 5.5},
		{"nor two with a check between that got no answer",
			then(failing, served(3, 2.9), checking(3.5), checked(6.5), served(7, 6.9)), true, 7.5},
		{"a check while failing gets no answer", then(failing, checking(5), checked(8)), true, 8},
		{"a down link has no such state", then(failing, Event{Kind: LinkWentDown, At: at(3)}), false, none},
		{"a link goes down during a check, and fails again",
			then(failing, checking(2.2), Event{Kind: LinkWentDown, At: at(3)}, unserved(9, 8.9), unserved(9.3, 9.2)), true, 12.3},
		{"events that concern it not", then(failing, probed(3, Ping), ok(3.1, Ping), answered(3.2), broken(3.3)), true, 5},
		{"an answer from the future", then(failing, served(3, 100), served(4, 3.9)), false, none},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := NewService(Standard())
			for _, e := range tc.events {
				s = s.Step(e)
			}
			next, due := s.NextCheck()
			if want := tc.due != none; s.Failing() != tc.failing || due != want || want && !next.Equal(at(tc.due)) {
				t.Errorf("failing %v, next check %v (%v); want %v, %v", s.Failing(), next.Sub(epoch), due, tc.failing, tc.due)
			}
		})
	}
}

func TestFailingAgainRaisesTheBar(t *testing.T) {
	s, now := NewService(Standard()), 0.0
	for i, step := range []struct {
		after float64
		want  int
	}{{100, 2}, {20, 3}, {20, 4}, {20, 4}, {50, 4}, {70, 2}, {20, 3}} {
		now += step.after
		for !s.Failing() {
			now++
			s = s.Step(unserved(now, now-0.1))
		}
		answers := 0
		for s.Failing() {
			now++
			s = s.Step(served(now, now-0.1))
			answers++
		}
		if answers != step.want {
			t.Errorf("step %d: it ended after %d answers, want %d after serving for %vs", i, answers, step.want, step.after)
		}
	}
}

func TestServiceTranscripts(t *testing.T) {
	replay(t, "testdata/service/*.txt", func() func(Event) string {
		s := NewService(Standard())
		return func(e Event) string {
			s = s.Step(e)
			state := "serves"
			if s.Failing() {
				state = "failing"
			}
			if next, due := s.NextCheck(); due {
				return fmt.Sprintf("%-7s next check at %.3g", state, next.Sub(epoch).Seconds())
			}
			if s.checking {
				return state + " check in flight"
			}
			return state
		}
	})
}

// TestServiceAgainstNaiveModel compares Service with a model that keeps the whole history. The model selects the answers that
// are in a row, each asked after the previous one, and looks for runs.
func TestServiceAgainstNaiveModel(t *testing.T) {
	for seed := range uint64(2000) {
		rnd := rand.New(rand.NewPCG(seed, 3))
		cfg := Standard()
		cfg.FlapWindow = time.Nanosecond
		s := NewService(cfg)
		var row []bool // of the answers that are in a row: whether each was a failure
		failing, last, now := false, time.Time{}, epoch
		bad := 1 + rnd.IntN(4)
		for range 80 {
			now = now.Add(time.Duration(1+rnd.IntN(900)) * time.Millisecond)
			e := Event{Kind: CoreServed, At: now, SentAt: now.Add(-time.Duration(rnd.IntN(1500)) * time.Millisecond)}
			if rnd.IntN(5) < bad {
				e.Kind = CoreFailed
			}
			s = s.Step(e)
			if last.IsZero() || e.SentAt.After(last) {
				last = now
				row = append(row, e.Kind == CoreFailed)
				if n := len(row); n >= 2 && row[n-1] == row[n-2] && row[n-1] != failing {
					failing, row = row[n-1], nil
				}
			}
			if s.Failing() != failing {
				t.Fatalf("seed %d: failing %v, the model says %v", seed, s.Failing(), failing)
			}
			if next, due := s.NextCheck(); failing && (!due || next.Sub(now) > 3*time.Second) {
				t.Fatalf("seed %d: failing, and the next check is at %v (%v)", seed, next, due)
			}
		}
	}
}

func TestFailingEndsByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w wire
		var status, checks atomic.Int32
		status.Store(503)
		var m *Monitor
		m = monitor(t, &w, Config{Check: func(context.Context) {
			checks.Add(1)
			asked := time.Now()
			<-time.After(20 * time.Millisecond)
			m.CoreAnswered("", int(status.Load()), asked)
		}})
		wait(t, m, Up)
		<-time.After(time.Minute)
		if n := checks.Load(); n != 0 {
			t.Errorf("%d checks of a server that serves", n)
		}
		for _, of := range []string{"secrets", "secrets", "pods"} {
			m.CoreAnswered(of, 500, time.Now())
			<-time.After(time.Minute)
		}
		if n := checks.Load(); n != 0 {
			t.Errorf("%d checks after 500 about one collection at a time, which says nothing of others", n)
		}
		m.CoreAnswered("pods", 503, time.Now())
		if took := wait(t, m, Failing); took > 500*time.Millisecond {
			t.Errorf("failing after %v, want it confirmed at once", took)
		}
		before := checks.Load()
		<-time.After(time.Minute)
		if n := checks.Load() - before; n < 19 || n > 26 {
			t.Errorf("%d checks in a minute of failing, want one every 2.4 to 3 s", n)
		}
		if ups, downs := m.Transitions(); ups != 1 || downs != 0 || m.Failings() != 1 {
			t.Errorf("%d ups, %d downs, %d failings; want 1, 0, 1", ups, downs, m.Failings())
		}
		status.Store(404) // is an answer
		if took := wait(t, m, Up); took > 5*time.Second {
			t.Errorf("up again after %v", took)
		}
		status.Store(503)
		<-time.After(time.Second)
		m.CoreAnswered("pods", 503, time.Now())
		wait(t, m, Failing)
		w.mode.Store(silent)
		if took := wait(t, m, Down); took > 8*time.Second {
			t.Errorf("a failing link that falls silent is down after %v", took)
		}
		w.mode.Store(answering)
		wait(t, m, Up)
		if ups, downs := m.Transitions(); ups != 2 || downs != 1 || m.Failings() != 2 {
			t.Errorf("%d ups, %d downs, %d failings; want 2, 1, 2", ups, downs, m.Failings())
		}
	})
}

func TestWithoutACheckNothingFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w wire
		m := monitor(t, &w, Config{})
		wait(t, m, Up)
		for range 10 {
			<-time.After(time.Second)
			m.CoreAnswered("pods", 503, time.Now())
		}
		if m.State().Get() != Up {
			t.Error("failing, though nothing would end it")
		}
	})
}

// TestOneSickCollectionCountsForAWhile: the failure of another soon after it is checked, and a later one is not.
func TestOneSickCollectionCountsForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w wire
		var checks atomic.Int32
		m := monitor(t, &w, Config{Check: func(context.Context) { checks.Add(1) }})
		wait(t, m, Up)
		for i, step := range []struct {
			of    string
			after time.Duration
			want  int32
		}{{"secrets", 0, 0}, {"pods", sickFor, 0}, {"secrets", sickFor - 2*time.Second, 1}} {
			<-time.After(step.after)
			m.CoreAnswered(step.of, 500, time.Now())
			<-time.After(time.Second)
			if n := checks.Load(); n != step.want {
				t.Errorf("step %d: %d checks, want %d", i, n, step.want)
			}
		}
	})
}

// TestEtcdIsAway: an API server without its storage says 500 to all that is not in its memory.
func TestEtcdIsAway(t *testing.T) {
	for name, said := range map[string][]string{"two collections": {"secrets", "pods"}, "a Lease": {""}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var w wire
				var status atomic.Int32
				status.Store(200)
				var m *Monitor
				m = monitor(t, &w, Config{Check: func(context.Context) {
					asked := time.Now()
					<-time.After(20 * time.Millisecond)
					m.CoreAnswered("", int(status.Load()), asked)
				}})
				wait(t, m, Up)
				tell := func() {
					for _, of := range said {
						<-time.After(time.Second)
						m.CoreAnswered(of, 500, time.Now())
					}
				}
				tell()
				<-time.After(time.Minute)
				if n := m.Failings(); n != 0 {
					t.Errorf("%d failings, though the check is answered", n)
				}
				status.Store(500)
				tell()
				if took := wait(t, m, Failing); took > 500*time.Millisecond {
					t.Errorf("failing after %v, want it confirmed at once", took)
				}
				<-time.After(time.Minute)
				if m.State().Get() != Failing {
					t.Error("no longer failing")
				}
				status.Store(200)
				if took := wait(t, m, Up); took > 5*time.Second {
					t.Errorf("up again after %v", took)
				}
			})
		})
	}
}
