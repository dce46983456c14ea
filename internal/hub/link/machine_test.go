package link

import (
	"flag"
	"fmt"
	"math"
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

func probed(s float64, ask Ask) Event { return Event{Kind: ProbeStarted, At: at(s), Ask: ask} }
func ok(s float64, ask Ask) Event     { return Event{Kind: ProbeSucceeded, At: at(s), Ask: ask} }
func refused(s float64, ask Ask) Event {
	return Event{Kind: ProbeFailed, At: at(s), Ask: ask}
}
func givenUp(s float64, ask Ask) Event { return Event{Kind: ProbeGivenUp, At: at(s), Ask: ask} }
func answered(s float64) Event         { return Event{Kind: TrafficSucceeded, At: at(s)} }
func broken(s float64) Event           { return Event{Kind: TrafficFailed, At: at(s)} }
func heard(s float64) Event            { return Event{Kind: Heard, At: at(s)} }
func tick(s float64) Event             { return Event{Kind: Tick, At: at(s)} }

func TestMachine(t *testing.T) {
	then := func(first []Event, more ...Event) []Event { return append(slices.Clip(first), more...) }
	up := []Event{probed(0, Get), ok(0.1, Get)}
	asked := then(up, answered(0.1), probed(2.7, Ping))
	down := []Event{probed(0, Get), probed(1.5, Fresh), tick(5.2)}
	for _, tc := range []struct {
		name   string
		events []Event
		state  State
		due    float64
		want   string
	}{
		{"new", nil, Unknown, -1, "get"},
		{"asked for the first time", []Event{probed(0, Get)}, Unknown, 1.5, "fresh"},
		{"first probe answered", up, Up, 2.7, "knock"},
		{"first traffic answered", []Event{answered(0.1)}, Up, 2.7, "knock"},
		{"bytes alone bring nothing up", []Event{heard(0.1)}, Unknown, -1, "get"},
		{"an answer puts the next probe off", then(up, answered(2)), Up, 4.6, "knock"},
		{"bytes put it off", then(up, heard(2)), Up, 4.6, "knock"},
		{"bytes without an answer put it off so far",
			then(up, heard(2), heard(4), heard(6), heard(8), heard(10)), Up, 10.5, "ping"},
		{"the API is asked when it has not answered for long",
			then(up, probed(27, Ping), ok(27.01, Ping), probed(29.61, Ping), ok(29.62, Ping)), Up, 32.22, "get"},
		{"one late answer is repeated on a connection of its own", asked, Up, 4.2, "fresh"},
		{"bytes put that off", then(asked, heard(3)), Up, 4.5, "fresh"},
		{"bytes put that off so far", then(asked, heard(12)), Up, 12.7, "fresh"},
		{"silence", then(asked, probed(3.7, Fresh)), Up, 7.9, "judge"},
		{"silence is judged no earlier", then(asked, probed(3.7, Fresh), tick(7.8)), Up, 7.9, "judge"},
		{"silence is judged", then(asked, probed(3.7, Fresh), tick(7.9)), Down, 7.9, "fresh"},
		{"bytes are life", then(asked, probed(3.7, Fresh), heard(7), tick(7.9)), Up, 12.2, "judge"},
		{"bytes without an answer are life for a time only",
			then(asked, probed(3.7, Fresh), heard(8), heard(13), heard(18), heard(22), tick(22.7)), Down, 22.7, "fresh"},
		{"a late answer", then(asked, probed(3.7, Fresh), ok(7, Ping)), Up, 9.6, "knock"},
		{"other connections answer", then(asked, probed(3.7, Fresh), answered(7), tick(7.9)), Up, 9.6, "judge"},
		{"the late probe stands for the next question", then(asked, answered(5), tick(7.6)), Up, 9.1, "fresh"},
		{"a new connection answers", then(asked, probed(3.7, Fresh), ok(3.8, Fresh)), Up, 6.4, "judge"},
		{"refused", then(up, probed(2, Ping), refused(2.01, Ping)), Up, 2.2, "fresh"},
		{"refused twice", then(up, probed(2, Ping), refused(2.01, Ping), probed(2.2, Fresh), refused(2.21, Fresh)),
			Down, 2.4, "fresh"},
		{"refused twice, answered between",
			then(up, probed(2, Ping), refused(2.01, Ping), answered(2.1), probed(4, Fresh), refused(4.01, Fresh)),
			Up, 4.2, "fresh"},
		{"refused, but bytes arrive: its connection was at fault",
			then(up, probed(2, Ping), heard(2.1), refused(2.2, Ping), probed(2.4, Fresh), refused(2.5, Fresh)), Up, 2.6, "fresh"},
		{"one refused, then silence",
			then(up, probed(2, Ping), refused(2.01, Ping), probed(2.2, Fresh), tick(7.2)), Down, 7.2, "fresh"},
		{"a new connection takes too long", then(asked, probed(3.7, Fresh), givenUp(6.7, Fresh)), Up, 4.2, "fresh"},
		{"failing traffic hastens the probe, which asks the API", then(up, broken(1)), Up, 1, "get"},
		{"failing traffic keeps the least gap", then(up, broken(0.1)), Up, 0.2, "get"},
		{"failing traffic while a probe is out asks the API next",
			then(asked, broken(2.75), ok(2.8, Ping)), Up, 2.9, "get"},
		{"failing traffic alone takes nothing down", then(up, broken(1), broken(1), broken(1), broken(1)), Up, 1, "get"},
		{"down", down, Down, 5.2, "fresh"},
		{"failing traffic while down", then(down, broken(5.3)), Down, 5.2, "fresh"},
		{"traffic does not lift a link that is down", then(down, answered(5.3)), Down, 5.2, "fresh"},
		{"bytes do not either", then(down, heard(5.3), tick(5.4)), Down, 5.2, "fresh"},
		{"a probe while down", then(down, probed(5.2, Fresh)), Down, 8.2, "judge"},
		{"a refused probe while down", then(down, probed(5.2, Fresh), refused(5.3, Fresh)), Down, 6.2, "fresh"},
		{"an unanswered probe while down", then(down, probed(5.2, Fresh), tick(8.21)), Down, 8.21, "fresh"},
		{"the next one has longer", then(down, probed(5.2, Fresh), tick(8.21), probed(8.21, Fresh)), Down, 12.71, "judge"},
		{"one success while down", then(down, probed(5.2, Fresh), ok(5.3, Fresh)), Down, 5.7, "fresh"},
		{"two successes while down", then(down, probed(5.2, Fresh), ok(5.3, Fresh), probed(5.7, Fresh), ok(5.8, Fresh)),
			Up, 8.4, "knock"},
		{"success, failure, success while down", then(down, probed(5.2, Fresh), ok(5.3, Fresh), probed(5.7, Fresh),
			refused(5.8, Fresh), probed(6.7, Fresh), ok(6.8, Fresh)), Down, 7.2, "fresh"},
		{"the end of no probe", []Event{ok(1, Ping), refused(2, Fresh), givenUp(3, Ping)}, Unknown, -1, "get"},
		{"an acknowledgement puts the next question off", then(up, probed(2.7, Knock), ok(2.72, Knock)), Up, 5.32, "knock"},
		{"acknowledgements without an answer put it off so far",
			then(up, probed(2.7, Knock), ok(2.72, Knock), probed(5.32, Knock), ok(5.34, Knock), probed(7.94, Knock),
				ok(7.96, Knock)), Up, 10.5, "ping"},
		{"… and then an answer is needed", then(up, probed(2.7, Knock), ok(2.72, Knock), probed(5.32, Knock), ok(5.34, Knock),
			probed(7.94, Knock), ok(7.96, Knock), probed(10.5, Ping), tick(15.7)), Down, 15.7, "fresh"},
		{"a knock without an acknowledgement", then(up, probed(2.7, Knock)), Up, 4.2, "fresh"},
		{"… is judged like any question", then(up, probed(2.7, Knock), probed(4.2, Fresh), tick(7.9)), Down, 7.9, "fresh"},
		{"an acknowledgement brings nothing up", []Event{probed(0, Knock), ok(0.1, Knock)}, Unknown, -1, "get"},
		{"failing traffic while a knock is out asks the API next",
			then(up, probed(2.7, Knock), broken(2.75), ok(2.8, Knock)), Up, 2.9, "get"},
		{"nobody knocks at what failed", then(up, broken(0.15), probed(0.3, Knock), ok(0.31, Knock)), Up, 0.5, "get"},
		{"the end of no knock", then(down, ok(5.3, Knock)), Down, 5.2, "fresh"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := after(NewMachine(Standard(), epoch), tc.events...)
			next := m.Next()
			due := next.At.Sub(epoch).Seconds()
			if tc.due < 0 {
				due = min(due, 0) - 1 // at once
			}
			late := math.Abs(due-tc.due) > 1e-6 && tc.due >= 0 || due > 0 && tc.due < 0
			if m.State() != tc.state || late || describeNext(next) != tc.want {
				t.Errorf("%v, %s at %.3f; want %v, %s at %v", m.State(), describeNext(next), due, tc.state, tc.want, tc.due)
			}
		})
	}
}

func describeNext(n Next) string {
	if n.Do == Judge {
		return "judge"
	}
	return n.Ask.String()
}

// TestPatienceFollowsTheRoundTrip: what TCP would wait, twice, within bounds.
func TestPatienceFollowsTheRoundTrip(t *testing.T) {
	for _, tc := range []struct {
		trips []float64
		want  time.Duration
	}{
		{nil, 5200 * time.Millisecond},
		{[]float64{0.02, 0.02, 0.02}, 5200 * time.Millisecond},
		{[]float64{0.7, 0.8, 0.6, 0.7}, 5200 * time.Millisecond},
		{[]float64{0.02, 4.2}, 9 * time.Second},
		{[]float64{4.2, 4.2, 4.2, 4.2, 4.2, 4.2, 4.2, 4.2}, 10 * time.Second},
		{[]float64{9, 9, 9}, 15 * time.Second},
	} {
		m, now := NewMachine(Standard(), epoch), 0.0
		for _, trip := range tc.trips {
			m = after(m, probed(now, Ping), ok(now+trip, Ping))
			now += trip + 1
		}
		if got := m.Patience(); got < tc.want-500*time.Millisecond || got > tc.want+2*time.Second {
			t.Errorf("after round trips of %v s: %v, want about %v", tc.trips, got, tc.want)
		}
	}
}

func TestDoubtful(t *testing.T) {
	up := []Event{probed(0, Get), ok(0.1, Get)}
	asked := append(slices.Clip(up), probed(2.7, Knock))
	for name, tc := range map[string]struct {
		events []Event
		at     float64
		want   bool
	}{
		"nothing is asked":                     {up, 100, false},
		"the answer may be on its way":         {asked, 2.9, false},
		"it is late":                           {asked, 4.5, true},
		"something arrived, and was no answer": {append(slices.Clip(asked), heard(4)), 4.2, false},
		"… a while ago":                        {append(slices.Clip(asked), heard(4)), 5.5, true},
		"answered":                             {append(slices.Clip(asked), ok(4.4, Knock)), 4.5, false},
		"down":                                 {append(slices.Clip(asked), tick(20)), 20, false},
		"not known":                            {[]Event{probed(0, Get)}, 3, false},
	} {
		if got := after(NewMachine(Standard(), epoch), tc.events...).Doubtful(at(tc.at)); got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}

func TestDoubtEndsWithAnAnswer(t *testing.T) {
	m := after(NewMachine(Standard(), epoch), probed(0, Get), ok(0.1, Get), broken(1))
	if next := m.Next(); !m.doubted || next.Ask != Get {
		t.Errorf("after a request that failed, doubted %t, and next %s", m.doubted, describeNext(next))
	}
	for name, m := range map[string]Machine{
		"an answer to a probe": after(m, probed(1, Get), ok(1.1, Get)), "one to a request": after(m, answered(1.1)),
		"an outage": after(m, probed(1, Get), refused(1.1, Get), probed(1.2, Fresh), refused(1.3, Fresh)),
	} {
		if m.doubted {
			t.Errorf("%s does not end it", name)
		}
	}
}

// TestAnOutageBeginsWithAShortTimeout: how long probes were waited for in one outage says nothing about the next.
func TestAnOutageBeginsWithAShortTimeout(t *testing.T) {
	m, now := NewMachine(Standard(), epoch), 0.0
	for outage := range 2 {
		m = after(m, probed(now, Get), ok(now, Get), probed(now+1, Get), ok(now+1, Get))
		now += 100
		m = after(m, probed(now, Ping), refused(now, Ping), probed(now, Fresh), refused(now, Fresh))
		if m.State() != Down || m.timeout != m.cfg.DownTimeout {
			t.Errorf("outage %d: %v, probes are waited for for %v", outage, m.State(), m.timeout)
		}
		for range 10 {
			now += 20
			m = after(m, probed(now, Fresh), tick(now+19))
		}
		if m.timeout != m.cfg.MaxDownTimeout {
			t.Errorf("outage %d: after ten probes in vain they are waited for for %v", outage, m.timeout)
		}
		now += 20
		for m.State() == Down {
			m = after(m, probed(now, Fresh), ok(now, Fresh))
			now++
		}
	}
}

func TestFlappingRaisesTheBar(t *testing.T) {
	m := after(NewMachine(Standard(), epoch), probed(0, Get), ok(0, Get))
	now := 0.0
	lift := func() (successes int) {
		for m.State() != Up {
			m = after(m, probed(now, Fresh), ok(now, Fresh))
			successes++
			now++
		}
		return successes
	}
	sink := func(up float64) {
		now += up
		m = after(m, probed(now, Ping), refused(now, Ping), probed(now, Fresh), refused(now, Fresh))
		if m.State() != Down {
			t.Fatalf("%v after two refusals", m.State())
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

// TestTranscripts replays the scripts in testdata. Each line is a time, an event and, after the arrow, the machine's result.
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
		switch kind {
		case ProbeStarted, ProbeSucceeded, ProbeFailed, ProbeGivenUp:
			if i := slices.Index([]string{"ping", "get", "fresh", "knock"}, fields[len(fields)-1]); len(fields) == 3 && i >= 0 {
				e.Ask = Ask(i)
			} else {
				t.Fatalf("%q: want ping, get, fresh or knock", line)
			}
		case CoreServed, CoreFailed:
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
	next := m.Next()
	return fmt.Sprintf("%-7v %s at %.4g", m.State(), describeNext(next), next.At.Sub(epoch).Seconds())
}

// String returns the name that transcripts use.
func (k Kind) String() string {
	switch k {
	case ProbeStarted:
		return "probe-started"
	case ProbeSucceeded:
		return "probe-ok"
	case ProbeFailed:
		return "probe-refused"
	case ProbeGivenUp:
		return "probe-given-up"
	case Heard:
		return "heard"
	case Tick:
		return "tick"
	case TrafficSucceeded:
		return "traffic-ok"
	case TrafficFailed:
		return "traffic-failed"
	case CoreServed:
		return "core-ok"
	case CoreFailed:
		return "core-failed"
	case CoreHung:
		return "core-hung"
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
