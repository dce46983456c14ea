package link

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// line is a link as its packets meet it: the round trip of one sent at a time since the beginning, and whether it is answered.
type line func(at time.Duration) (trip time.Duration, passes bool)

// drive has a machine live on a line, with a heartbeat every 10 s, and returns when its state changed to what.
func drive(cfg Timing, l line, length time.Duration) (changes []change) {
	type coming struct {
		at    time.Duration
		event Event
	}
	var pending []coming
	m := NewMachine(cfg, epoch)
	// deliver returns when what is sent at a time is answered, as TCP would have it: sent again after 0.3 s, 0.9 s, 2.1 s, ...
	deliver := func(at time.Duration) (time.Duration, bool) {
		wait := 300 * time.Millisecond
		for at < length {
			if trip, passes := l(at); passes {
				return at + trip, true
			}
			at, wait = at+wait, 2*wait
		}
		return 0, false
	}
	expect := func(at time.Duration, kind Kind, ask Ask) {
		pending = append(pending, coming{at, Event{Kind: kind, At: epoch.Add(at), Ask: ask}})
		slices.SortStableFunc(pending, func(a, b coming) int { return int(a.at - b.at) })
	}
	now, beat, state, era := time.Duration(0), 5*time.Second, Unknown, 0
	eras := map[time.Time]int{}
	for now < length {
		next := m.Next()
		at := max(now, next.At.Sub(epoch))
		switch {
		case len(pending) > 0 && pending[0].at <= min(at, beat):
			e := pending[0]
			pending = pending[1:]
			now = max(now, e.at)
			if started := m.slot(e.event.Ask).started; e.event.Kind == ProbeSucceeded && eras[started] != era {
				continue // its connection was reset
			}
			m = m.Step(e.event)
		case beat <= at:
			now, beat = beat, beat+10*time.Second
			if end, ok := deliver(now); ok && m.State() == Up {
				expect(end, TrafficSucceeded, Ping)
			}
		case next.Do == Judge:
			now = at
			m = m.Step(Event{Kind: Tick, At: epoch.Add(now)})
		default:
			now = at
			started := epoch.Add(now)
			eras[started] = era
			m = m.Step(Event{Kind: ProbeStarted, Ask: next.Ask, At: started})
			end, ok := deliver(now)
			if trip, passes := l(now); next.Ask == Knock && passes {
				end, ok = now+trip, true // else nobody sends it again, and a ping follows
			} else if next.Ask == Knock {
				end, ok = deliver(now + 300*time.Millisecond)
			}
			if ok && next.Ask == Fresh {
				if end, ok = deliver(end); ok {
					expect(end, Heard, Ping)
					end, ok = deliver(end)
				}
			}
			if ok {
				expect(end, ProbeSucceeded, next.Ask)
			}
		}
		if m.State() != state {
			state = m.State()
			changes = append(changes, change{now, state})
			if state == Down {
				era++
				pending = nil
			}
		}
	}
	return changes
}

type change struct {
	at    time.Duration
	state State
}

func sec(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

func good(time.Duration) (time.Duration, bool) { return 20 * time.Millisecond, true }

// busy is a line of a rate whose queue is full between two times, and fills within a second.
func busy(l line, full, from, to time.Duration) line {
	return func(at time.Duration) (time.Duration, bool) {
		trip, passes := l(at)
		if at >= from && at < to {
			trip += min(full, time.Duration(float64(full)*(at-from).Seconds()))
		}
		return trip, passes
	}
}

// lossy loses a share of packets each way.
func lossy(l line, share float64, seed uint64) line {
	rnd := rand.New(rand.NewPCG(seed, 1))
	return func(at time.Duration) (time.Duration, bool) {
		trip, passes := l(at)
		return trip, passes && rnd.Float64() > share && rnd.Float64() > share
	}
}

// far is a line of a round trip and as much variation either way.
func far(trip, vary time.Duration, seed uint64) line {
	rnd := rand.New(rand.NewPCG(seed, 2))
	return func(time.Duration) (time.Duration, bool) {
		return trip - vary + time.Duration(rnd.Int64N(int64(2*vary))), true
	}
}

func cut(l line, from, to time.Duration) line {
	return func(at time.Duration) (time.Duration, bool) {
		trip, passes := l(at)
		return trip, passes && (at+trip < from || at >= to)
	}
}

// TestLivingLines: what is slow, full or loses packets is not dead.
func TestLivingLines(t *testing.T) {
	const length = 10 * time.Minute
	lines := map[string]func(seed uint64) line{
		"good":      func(uint64) line { return good },
		"300 ms":    func(seed uint64) line { return far(sec(0.3), sec(0.04), seed) },
		"satellite": func(seed uint64) line { return far(sec(0.7), sec(0.1), seed) },
		"2 s":       func(seed uint64) line { return far(sec(2), sec(0.5), seed) },
		"5 % lost":  func(seed uint64) line { return lossy(far(sec(0.05), sec(0.01), seed), 0.05, seed) },
		"1 Mbit/s, 256 KB full": func(seed uint64) line {
			return busy(far(sec(0.04), sec(0.005), seed), sec(2.1), sec(60)+time.Duration(seed)*sec(0.1), sec(180))
		},
		"1 Mbit/s, 512 KB full": func(seed uint64) line {
			return busy(far(sec(0.04), sec(0.005), seed), sec(4.2), sec(60)+time.Duration(seed)*sec(0.1), sec(180))
		},
		"128 kbit/s, 64 KB full, 600 ms": func(seed uint64) line {
			return busy(far(sec(0.6), sec(0.02), seed), sec(4), sec(60)+time.Duration(seed)*sec(0.1), sec(180))
		},
	}
	for name, make := range lines {
		for profile, cfg := range map[string]Timing{"standard": Standard(), "metered": Metered(), "satellite": Satellite()} {
			for seed := range uint64(120) {
				changes := drive(cfg, make(seed), length)
				if len(changes) != 1 || changes[0].state != Up || changes[0].at > 15*time.Second {
					t.Errorf("%s, %s, seed %d: %v, want up once", name, profile, seed, changes)
					break
				}
			}
		}
	}
}

// TestDeadLines: what is silent is called dead in time, and alive soon after it is back.
func TestDeadLines(t *testing.T) {
	for name, tc := range map[string]struct {
		cfg             Timing
		line            line
		noticed, healed time.Duration
	}{
		"standard":            {Standard(), good, sec(8), sec(5)},
		"standard, 300 ms":    {Standard(), far(sec(0.3), sec(0.04), 1), sec(8.5), sec(6)},
		"standard, satellite": {Standard(), far(sec(0.7), sec(0.1), 1), sec(9), sec(12)},
		"satellite":           {Satellite(), far(sec(0.7), sec(0.1), 1), sec(14), sec(15)},
		"metered":             {Metered(), good, sec(18), sec(8)},
		"standard, far (2 s)": {Standard(), far(sec(2), sec(0.2), 1), sec(16), sec(30)},
	} {
		worst := [2]time.Duration{}
		for offset := time.Duration(0); offset < 13*time.Second; offset += 130 * time.Millisecond {
			dead, back := 60*time.Second+offset, 120*time.Second+offset
			changes := drive(tc.cfg, cut(tc.line, dead, back), 4*time.Minute)
			if len(changes) != 3 || changes[1].state != Down || changes[2].state != Up {
				t.Errorf("%s: cut from %v to %v: %v", name, dead, back, changes)
				break
			}
			worst[0], worst[1] = max(worst[0], changes[1].at-dead), max(worst[1], changes[2].at-back)
		}
		if worst[0] > tc.noticed || worst[0] < tc.cfg.MinPatience || worst[1] > tc.healed {
			t.Errorf("%s: a cut is noticed within %v, its end within %v; want %v to %v, and %v",
				name, worst[0], worst[1], tc.cfg.MinPatience, tc.noticed, tc.healed)
		}
		t.Logf("%s: a cut is noticed within %v, its end within %v", name, worst[0], worst[1])
	}
}

// TestProbesAreFew: while heartbeats are answered, a minute of an idle link costs so many probes.
func TestProbesAreFew(t *testing.T) {
	for name, tc := range map[string]struct {
		cfg  Timing
		ask  Ask
		want int
	}{
		"standard": {Standard(), Knock, 18}, "satellite": {Satellite(), Knock, 6}, "metered": {Metered(), Ping, 0},
		"near": {Near(), Ping, 30},
	} {
		m, probes := NewMachine(tc.cfg, epoch), 0
		m = after(m, answered(0))
		for now := 0.0; now < 60; now += 0.05 {
			if int(now*20+0.5)%200 == 0 {
				m = after(m, answered(now))
			}
			if next := m.Next(); !next.At.After(at(now)) {
				if next.Do != Probe || next.Ask != tc.ask {
					t.Fatalf("%s: %v at %v on a link that is fine", name, next, now)
				}
				m = after(m, probed(now, tc.ask), ok(now+0.02, tc.ask))
				probes++
			}
		}
		if probes > tc.want {
			t.Errorf("%s: %d probes in a minute, want at most %d", name, probes, tc.want)
		}
	}
}

// TestWhatever: no order of events breaks what the machine promises.
func TestWhatever(t *testing.T) {
	seen := map[State]int{}
	for seed := range uint64(3000) {
		rnd := rand.New(rand.NewPCG(seed, 7))
		cfg := Standard()
		m, now := NewMachine(cfg, epoch), epoch
		life, lastRefused := time.Time{}, 0
		for range 120 {
			before := m
			next := m.Next()
			now = now.Add(time.Duration(rnd.IntN(1500)) * time.Millisecond)
			if rnd.IntN(3) == 0 && next.At.After(now) {
				now = next.At
			}
			e := Event{At: now, Ask: Ask(rnd.IntN(4))}
			e.Kind = []Kind{ProbeStarted, ProbeStarted, ProbeSucceeded, ProbeFailed, ProbeGivenUp, TrafficSucceeded,
				TrafficFailed, Heard, Tick, Tick, Tick}[rnd.IntN(11)]
			if e.Kind == ProbeStarted && next.Do == Probe && rnd.IntN(2) == 0 {
				e.Ask = next.Ask
			}
			m = m.Step(e)
			switch e.Kind {
			case TrafficSucceeded, Heard:
				life = now
			case ProbeSucceeded:
				if before.slot(e.Ask).out {
					life = now
				}
			case ProbeFailed:
				if before.slot(e.Ask).out {
					lastRefused++
				}
			}
			if before.State() != Down && m.State() == Down {
				silent := now.Sub(life)
				switch e.Kind {
				case ProbeFailed:
					if lastRefused < cfg.DownAfter {
						t.Fatalf("seed %d: down after one refusal", seed)
					}
				case Tick:
					if silent < cfg.MinPatience && now.Sub(before.asked) < cfg.Trust {
						t.Fatalf("seed %d: down %v after it was heard", seed, silent)
					}
				default:
					t.Fatalf("seed %d: %v took the link down", seed, e.Kind)
				}
			}
			if before.State() == Down && m.State() != Down && e.Kind != ProbeSucceeded {
				t.Fatalf("seed %d: %v brought the link up", seed, e.Kind)
			}
			seen[m.State()]++
			next = m.Next()
			if next.At.Sub(now) > cfg.MaxPatience+cfg.MaxDownTimeout {
				t.Fatalf("seed %d: nothing to do for %v", seed, next.At.Sub(now))
			}
			if next.Do == Probe && m.slot(next.Ask).out {
				t.Fatalf("seed %d: a second probe of the same kind", seed)
			}
			if next.Do == Probe && m.State() == Down && next.Ask != Fresh {
				t.Fatalf("seed %d: down, and the next probe is on an old connection", seed)
			}
			if next.Do == Probe && !m.last.IsZero() && next.At.Before(m.last.Add(cfg.MinGap)) {
				t.Fatalf("seed %d: two probes closer than %v", seed, cfg.MinGap)
			}
		}
	}
	if seen[Up] == 0 || seen[Down] == 0 || seen[Unknown] == 0 {
		t.Errorf("the sequences did not reach every state: %v", seen)
	}
}
