package link

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// wire is a link for tests: it answers after 20 ms, or refuses, or is silent.
type wire struct {
	mode   atomic.Int32
	probes atomic.Int32
	fresh  atomic.Int32
}

const (
	answering = iota
	silent
	refusing
)

var errRefused = errors.New("connection refused")

func (w *wire) probe(ctx context.Context, ask Ask) error {
	w.probes.Add(1)
	if ask == Fresh {
		w.fresh.Add(1)
	}
	if w.mode.Load() == refusing {
		return errRefused
	}
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(20 * time.Millisecond):
			if w.mode.Load() == answering {
				return nil
			}
		}
	}
}

// monitor runs a Monitor on w until the test ends.
func monitor(t *testing.T, w *wire, cfg Config) *Monitor {
	t.Helper()
	cfg.Timing, cfg.Probe = Standard(), w.probe
	if cfg.WentDown == nil {
		cfg.WentDown = func(error) {}
	}
	m := NewMonitor(cfg)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- m.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return m
}

func wait(t *testing.T, m *Monitor, want State) time.Duration {
	t.Helper()
	start := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := m.State().Wait(ctx, func(s State) bool { return s == want }); err != nil {
		t.Fatalf("still %v after %v, want %v", m.State().Get(), time.Since(start), want)
	}
	return time.Since(start)
}

func TestSilentCutAndHealing(t *testing.T) {
	for _, offset := range []time.Duration{0, time.Millisecond, 500 * time.Millisecond, 1900 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			var w wire
			var downs []error
			m := monitor(t, &w, Config{WentDown: func(err error) { downs = append(downs, err) }})
			if took := wait(t, m, Up); took > 100*time.Millisecond {
				t.Errorf("up after %v", took)
			}
			<-time.After(10*time.Second + offset)
			w.mode.Store(silent)
			if took := wait(t, m, Down); took > 8*time.Second || took < 5*time.Second {
				t.Errorf("offset %v: a silent cut was noticed after %v, want 5 to 8 s", offset, took)
			}
			synctest.Wait()
			if len(downs) != 1 || !errors.Is(downs[0], ErrSilent) {
				t.Errorf("WentDown was called with %v, want one timeout", downs)
			}
			if _, err := m.Last(); !errors.Is(err, ErrSilent) {
				t.Errorf("Last = %v, want the timeout", err)
			}
			<-time.After(30*time.Second + offset)
			w.mode.Store(answering)
			if took := wait(t, m, Up); took > 5*time.Second {
				t.Errorf("healing was noticed after %v", took)
			}
			if ups, downs := m.Transitions(); ups != 2 || downs != 1 {
				t.Errorf("%d ups, %d downs; want 2, 1", ups, downs)
			}
			if _, err := m.Last(); err != nil {
				t.Errorf("Last = %v while up", err)
			}
		})
	}
}

func TestRefusedAtOnceIsDownSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w wire
		m := monitor(t, &w, Config{})
		wait(t, m, Up)
		w.mode.Store(refusing)
		m.TrafficFailed(errRefused)
		if took := wait(t, m, Down); took > 500*time.Millisecond {
			t.Errorf("refused traffic and probes were noticed after %v", took)
		}
		if w.fresh.Load() == 0 {
			t.Error("the second probe was not on a fresh connection")
		}
		before := w.probes.Load()
		<-time.After(time.Minute)
		if n := w.probes.Load() - before; n < 59 || n > 90 {
			t.Errorf("%d probes in a minute of being down, want about one a second", n)
		}
	})
}

func TestProbeRateIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w wire
		m := monitor(t, &w, Config{})
		wait(t, m, Up)
		before := w.probes.Load()
		for range 1000 {
			<-time.After(time.Millisecond)
			m.TrafficFailed(errRefused)
			m.TrafficFailed(nil)
		}
		if n := w.probes.Load() - before; n > 6 {
			t.Errorf("1000 failures of traffic in a second caused %d probes, want at most 5 or 6", n)
		}
		if m.State().Get() != Up {
			t.Error("traffic alone took the link down")
		}
	})
}

func TestTrafficIsEvidence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w wire
		w.mode.Store(silent)
		m := monitor(t, &w, Config{})
		synctest.Wait()
		m.TrafficOK()
		wait(t, m, Up)
		for range 100 { // probes get no answer, but traffic does
			<-time.After(500 * time.Millisecond)
			m.TrafficOK()
		}
		if _, downs := m.Transitions(); downs != 0 {
			t.Error("went down while requests were answered")
		}
		if took := wait(t, m, Down); took > 8*time.Second {
			t.Errorf("down %v after traffic ended", took)
		}
	})
}

// Bytes that arrive are life, for as long as a server may take that answers nothing.
func TestBytesAreEvidence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w wire
		var last atomic.Pointer[time.Time]
		arrives := func() { now := time.Now(); last.Store(&now) }
		m := monitor(t, &w, Config{Heard: func() time.Time {
			if at := last.Load(); at != nil {
				return *at
			}
			return time.Time{}
		}})
		wait(t, m, Up)
		w.mode.Store(silent)
		began := time.Now()
		for range 15 {
			<-time.After(time.Second)
			arrives()
		}
		if _, downs := m.Transitions(); downs != 0 {
			t.Fatal("went down while bytes arrived")
		}
		w.mode.Store(answering) // late, but an answer
		<-time.After(3 * time.Second)
		w.mode.Store(silent)
		for m.State().Get() != Down {
			<-time.After(time.Second)
			arrives()
			if time.Since(began) > 2*time.Minute {
				t.Fatal("bytes without an answer keep it up for ever")
			}
		}
		if took := time.Since(began) - 18*time.Second; took < 20*time.Second || took > 36*time.Second {
			t.Errorf("it was down %v after the last answer, want Trust and what a probe may be put off", took)
		}
		if _, err := m.Last(); err == nil || !strings.Contains(err.Error(), "though bytes arrived") {
			t.Errorf("Last = %v", err)
		}
	})
}

func TestRetime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w wire
		m := monitor(t, &w, Config{})
		wait(t, m, Up)
		m.Retime(Metered())
		<-time.After(10 * time.Second)
		before := w.probes.Load()
		<-time.After(time.Minute)
		if n := w.probes.Load() - before; n > 6 {
			t.Errorf("%d probes in a minute of a metered link", n)
		}
		w.mode.Store(silent)
		if took := wait(t, m, Down); took > 18*time.Second {
			t.Errorf("noticed after %v", took)
		}
		m.Retime(Standard())
		w.mode.Store(answering)
		wait(t, m, Up)
	})
}

// TestNowhere: who is nowhere costs next to nothing, and is found at once when somebody says where it is.
func TestNowhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w wire
		w.mode.Store(refusing)
		m := monitor(t, &w, Config{})
		m.Retime(Nowhere())
		if took := wait(t, m, Down); took > time.Second {
			t.Errorf("down after %v", took)
		}
		before := w.probes.Load()
		<-time.After(time.Hour)
		if n := w.probes.Load() - before; n < 120 || n > 151 { // each 24 to 30 s
			t.Errorf("%d probes in an hour", n)
		}
		<-time.After(5 * time.Second)
		w.mode.Store(answering)
		m.Retime(Near())
		if took := wait(t, m, Up); took > 2*time.Second {
			t.Errorf("up %v after it was said where it is", took)
		}
	})
}

func TestSlowToGiveUpDoesNotDelayTheVerdict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		cfg := Config{Timing: Standard(), WentDown: func(error) {}}
		cfg.Probe = func(context.Context, Ask) error { <-release; return nil }
		m := NewMonitor(cfg)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- m.Run(ctx) }()
		if took := wait(t, m, Down); took > 5200*time.Millisecond {
			t.Errorf("down after %v, want the patience", took)
		}
		cancel()
		synctest.Wait()
		select {
		case err := <-ended:
			t.Errorf("Run returned before its probe did: %v", err)
		default:
		}
		close(release)
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
