package link

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "rewrite the golden transcripts")

// epoch is the zero of every test's time.
var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func at(seconds float64) time.Time { return epoch.Add(time.Duration(seconds * float64(time.Second))) }

func after(m Machine, events ...Event) Machine {
	for _, e := range events {
		m = m.Step(e)
	}
	return m
}

func started(s float64) Event { return Event{Kind: ProbeStarted, At: at(s)} }
func ok(s float64) Event      { return Event{Kind: ProbeSucceeded, At: at(s)} }
func failed(s float64) Event  { return Event{Kind: ProbeFailed, At: at(s)} }
func answered(s, sent float64) Event {
	return Event{Kind: TrafficSucceeded, At: at(s), SentAt: at(sent)}
}
func broken(s float64) Event { return Event{Kind: TrafficFailed, At: at(s)} }

func TestMachine(t *testing.T) {
	down := []Event{started(0), failed(1.5), started(1.5), failed(3)}
	up := []Event{started(0), ok(0.1)}
	then := func(first []Event, more ...Event) []Event { return append(slices.Clip(first), more...) }
	for _, tc := range []struct {
		name   string
		events []Event
		state  State
		due    float64
		fresh  bool
	}{
		{"new", nil, Unknown, 0, false},
		{"first probe answered", []Event{started(0), ok(0.1)}, Up, 2, false},
		{"first traffic answered", []Event{answered(0.1, 0)}, Up, 0, false},
		{"one failure repeats at once on a fresh connection", then(up, started(2), failed(3.5)), Up, 3.5, true},
		{"a refused probe keeps the least gap", []Event{started(0), failed(0.01)}, Unknown, 0.2, true},
		{"two failures", down, Down, 3, true},
		{"two failures with an answer between",
			[]Event{started(0), failed(1.5), started(1.5), ok(1.6), started(3.5), failed(5)}, Up, 5, true},
		{"one success while down", then(down, started(3), ok(3.1)), Down, 3.5, true},
		{"two successes while down", then(down, started(3), ok(3.1), started(3.5), ok(3.6)), Up, 5.5, false},
		{"success, failure, success while down",
			then(down, started(3), ok(3.1), started(3.5), failed(5), started(5), ok(5.1)), Down, 5.5, true},
		{"traffic does not lift a link that is down", then(down, answered(3.1, 3.05)), Down, 3, true},
		{"an answer to a request sent after the failed probe",
			then(up, started(2), failed(3.5), started(3.5), answered(4, 2.1), failed(5)), Up, 5, true},
		{"an answer to a request sent before the failed probe",
			then(up, started(2), failed(3.5), started(3.5), answered(4, 2), failed(5)), Down, 5, true},
		{"an answer to a request sent while the probe was out",
			then(up, started(2), answered(3, 2.5), failed(3.5), started(3.5), failed(5)), Up, 5, true},
		{"failing traffic hastens the probe", then(up, broken(1)), Up, 1, false},
		{"failing traffic keeps the least gap", then(up, broken(0.1)), Up, 0.2, false},
		{"failing traffic while a probe is out", []Event{started(0), broken(0.05), ok(0.1)}, Up, 0.2, false},
		{"failing traffic alone takes nothing down", then(up, broken(1), broken(1), broken(1), broken(1)),
			Up, 1, false},
		{"failing traffic while down", then(down, broken(3)), Down, 3, true},
		{"the end of no probe", []Event{ok(1), failed(2)}, Unknown, 0, false},
		{"an answer from the future",
			[]Event{started(0), failed(1.5), answered(1.6, 100), started(2), failed(3.5)}, Up, 3.5, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := after(NewMachine(Standard(), epoch), tc.events...)
			next, fresh, due := m.NextProbe()
			if !due {
				t.Fatal("no probe is due, though none is in flight")
			}
			if m.State() != tc.state || !next.Equal(at(tc.due)) || fresh != tc.fresh {
				t.Errorf("%v, next probe at %v (fresh %v); want %v, %vs (%v)",
					m.State(), next.Sub(epoch), fresh, tc.state, tc.due, tc.fresh)
			}
		})
	}
}

func TestFlappingRaisesTheBar(t *testing.T) {
	m := after(NewMachine(Standard(), epoch), started(0), ok(0))
	now := 0.0
	lift := func() (successes int) {
		for m.State() != Up {
			m = after(m, started(now), ok(now))
			successes++
			now++
		}
		return successes
	}
	sink := func(up float64) {
		now += up
		m = after(m, started(now), failed(now), started(now), failed(now))
		if m.State() != Down {
			t.Fatalf("%v after two failures", m.State())
		}
	}
	for i, step := range []struct {
		up   float64
		want int
	}{{100, 2}, {20, 3}, {20, 4}, {20, 4}, {58, 4}, {61, 2}, {20, 3}} {
		sink(step.up)
		if got := lift(); got != step.want {
			t.Errorf("step %d: up after %d successes, want %d after being up for %vs", i, got, step.want, step.up)
		}
	}
}

// TestTranscripts replays the scripts in testdata: each line is a time, an event and, after the arrow, what the
// machine makes of it.
func TestTranscripts(t *testing.T) {
	replay(t, "testdata/*.txt", func() func(Event) string {
		m := NewMachine(Standard(), epoch)
		return func(e Event) string {
			m = m.Step(e)
			return describe(m)
		}
	})
}

// replay runs each script on a new machine, and returns what the machine makes of its events.
func replay(t *testing.T, scripts string, machine func() func(Event) string) {
	t.Helper()
	files, err := filepath.Glob(scripts)
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var out strings.Builder
			step := machine()
			for line := range strings.Lines(string(data)) {
				line = strings.TrimRight(line, "\n")
				if line == "" || strings.HasPrefix(line, "#") {
					fmt.Fprintln(&out, line)
					continue
				}
				event, _, _ := strings.Cut(line, "→")
				event = strings.TrimSpace(event)
				fmt.Fprintf(&out, "%-28s → %s\n", event, step(parse(t, event)))
			}
			if *update {
				if err := os.WriteFile(file, []byte(out.String()), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if out.String() != string(data) {
				t.Errorf("transcript differs (-update rewrites it); got:\n%s", out.String())
			}
		})
	}
}

func parse(t *testing.T, line string) Event {
	t.Helper()
	fields := strings.Fields(line)
	var seconds, sent float64
	if _, err := fmt.Sscan(fields[0], &seconds); err != nil || len(fields) < 2 {
		t.Fatalf("%q: want a time and an event: %v", line, err)
	}
	for kind := ProbeStarted; kind <= LinkWentDown; kind++ {
		if kind.String() != fields[1] {
			continue
		}
		e := Event{Kind: kind, At: at(seconds)}
		if kind == TrafficSucceeded || kind == CoreServed || kind == CoreFailed {
			if _, err := fmt.Sscanf(fields[2], "sent=%g", &sent); err != nil {
				t.Fatalf("%q: want sent=SECONDS: %v", line, err)
			}
			e.SentAt = at(sent)
		}
		return e
	}
	t.Fatalf("%q: no such event", line)
	return Event{}
}

func describe(m Machine) string {
	next, fresh, due := m.NextProbe()
	if !due {
		return fmt.Sprintf("%-7v probe in flight", m.State())
	}
	kind := "same connection"
	if fresh {
		kind = "fresh connection"
	}
	return fmt.Sprintf("%-7v next probe at %.3g, %s", m.State(), next.Sub(epoch).Seconds(), kind)
}

// naive is the deliberately dumb model: it keeps the whole history and recomputes from its beginning.
type naive struct {
	cfg     Timing
	history []Event
}

type probe struct {
	start, end time.Time
	ok         bool
	index      int // of the end in the history
}

func (n naive) state() State {
	state, phase := Unknown, 0 // phase: index of the event that led to state
	var upAt time.Time
	need := n.cfg.UpAfter
	for i, e := range n.history {
		next := state
		switch {
		case state != Down && e.Kind == TrafficSucceeded:
			if state == Unknown && n.counts(phase, i) {
				next = Up
			}
		case e.Kind == ProbeSucceeded && n.probeEnding(i) != nil:
			if state != Down || n.trailing(phase, i) >= need {
				next = Up
			}
		case state != Down && e.Kind == ProbeFailed && n.probeEnding(i) != nil:
			if n.failures(phase, i) >= n.cfg.DownAfter {
				next = Down
			}
		}
		if next == state {
			continue
		}
		if next == Down {
			if state == Up && e.At.Sub(upAt) < n.cfg.FlapWindow {
				need = min(need+1, n.cfg.UpAfterMax)
			} else {
				need = n.cfg.UpAfter
			}
		} else {
			upAt = e.At
		}
		state, phase = next, i+1
	}
	return state
}

// probes lists the probes that ended in history[from:to+1].
func (n naive) probes(from, to int) []probe {
	var out []probe
	var open *Event
	for i, e := range n.history[:to+1] {
		switch e.Kind {
		case ProbeStarted:
			if open == nil {
				open = &e
			}
		case ProbeSucceeded, ProbeFailed:
			if open != nil && i >= from {
				out = append(out, probe{open.At, e.At, e.Kind == ProbeSucceeded, i})
			}
			open = nil
		}
	}
	return out
}

func (n naive) probeEnding(i int) *probe {
	for _, p := range n.probes(i, i) {
		return &p
	}
	return nil
}

// counts reports whether the answer at i was to a request sent after the last failed probe of the phase started.
func (n naive) counts(phase, i int) bool {
	for _, p := range n.probes(phase, i) {
		if !p.ok && !n.sent(i).After(p.start) {
			return n.forgiven(phase, i)
		}
	}
	return true
}

// forgiven reports whether no failure was on record just before i, so that any answer is news.
func (n naive) forgiven(phase, i int) bool { return n.failures(phase, i-1) == 0 }

func (n naive) sent(i int) time.Time {
	e := n.history[i]
	if e.SentAt.After(e.At) {
		return e.At
	}
	return e.SentAt
}

// failures counts the failed probes on record after event i: those since the last answer that counts, save those that
// an answer on record outweighed when they ended.
func (n naive) failures(phase, i int) int {
	count := 0
	for j := phase; j <= i; j++ {
		switch n.history[j].Kind {
		case TrafficSucceeded:
			if count == 0 {
				continue
			}
			last := time.Time{}
			for _, p := range n.probes(phase, j) {
				if !p.ok {
					last = p.start
				}
			}
			if n.sent(j).After(last) {
				count = 0
			}
		case ProbeSucceeded:
			if n.probeEnding(j) != nil {
				count = 0
			}
		case ProbeFailed:
			if p := n.probeEnding(j); p != nil && !n.outweighed(phase, *p) {
				count++
			}
		}
	}
	return count
}

// outweighed reports whether, before the probe ended, an accepted answer came to a request sent after the probe
// started.
func (n naive) outweighed(phase int, p probe) bool {
	for j := range p.index {
		if n.history[j].Kind == TrafficSucceeded && n.sent(j).After(p.start) {
			return true
		}
	}
	return false
}

// trailing counts the answered probes of the phase since its last failed one.
func (n naive) trailing(phase, i int) int {
	count := 0
	for _, p := range n.probes(phase, i) {
		count++
		if !p.ok {
			count = 0
		}
	}
	return count
}

func TestAgainstNaiveModel(t *testing.T) {
	runs := 3000
	if testing.Short() {
		runs = 300
	}
	seen := map[State]int{}
	for seed := range uint64(runs) {
		rnd := rand.New(rand.NewPCG(seed, 7))
		cfg := Standard()
		cfg.DownAfter, cfg.UpAfter, cfg.UpAfterMax, cfg.FlapWindow = 1+rnd.IntN(3), 1+rnd.IntN(2), 3, 10*time.Second
		m, model := NewMachine(cfg, epoch), naive{cfg: cfg}
		now := epoch
		bad := rnd.IntN(4) // how likely a probe is to fail changes with the sequence
		for range 60 {
			now = now.Add(time.Duration(rnd.IntN(1500)) * time.Millisecond)
			e := Event{At: now}
			switch rnd.IntN(8) {
			case 0:
				e.Kind, e.SentAt = TrafficSucceeded, now.Add(-time.Duration(rnd.IntN(4000)-200)*time.Millisecond)
			case 1:
				e.Kind = TrafficFailed
			case 2, 3, 4:
				e.Kind = ProbeStarted
			default:
				e.Kind = ProbeSucceeded
				if rnd.IntN(4) <= bad {
					e.Kind = ProbeFailed
				}
			}
			m = m.Step(e)
			model.history = append(model.history, e)
			if got, want := m.State(), model.state(); got != want {
				t.Fatalf("seed %d: %v, the model says %v after:\n%s", seed, got, want, transcript(model.history))
			}
			seen[m.State()]++
			next, fresh, due := m.NextProbe()
			if due && next.Sub(now) > cfg.Interval {
				t.Fatalf("seed %d: next probe %v away", seed, next.Sub(now))
			}
			if due && m.State() == Down && !fresh {
				t.Fatalf("seed %d: down, and the next probe is on an old connection", seed)
			}
			if due && !m.probeStart.IsZero() && next.Before(m.probeStart.Add(cfg.MinGap)) {
				t.Fatalf("seed %d: two probes closer than %v", seed, cfg.MinGap)
			}
		}
	}
	if seen[Up] == 0 || seen[Down] == 0 || seen[Unknown] == 0 {
		t.Errorf("the sequences did not reach every state: %v", seen)
	}
}

func transcript(events []Event) string {
	var b strings.Builder
	for _, e := range events {
		fmt.Fprintf(&b, "%6.3f %v", e.At.Sub(epoch).Seconds(), e.Kind)
		if e.Kind == TrafficSucceeded {
			fmt.Fprintf(&b, " sent=%.3f", e.SentAt.Sub(epoch).Seconds())
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// String returns the name that transcripts use.
func (k Kind) String() string {
	switch k {
	case ProbeStarted:
		return "probe-started"
	case ProbeSucceeded:
		return "probe-ok"
	case ProbeFailed:
		return "probe-failed"
	case TrafficSucceeded:
		return "traffic-ok"
	case TrafficFailed:
		return "traffic-failed"
	case CoreServed:
		return "core-ok"
	case CoreFailed:
		return "core-failed"
	case CheckStarted:
		return "check-started"
	case CheckEnded:
		return "check-ended"
	case LinkWentDown:
		return "link-down"
	default:
		return "nothing"
	}
}
