package link

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"yurtcoordinator/internal/live"
)

// ErrProbeTimeout is why a probe that got no answer failed.
var ErrProbeTimeout = errors.New("no answer to the probe in time")

// Monitor runs a Machine: it sends the probes and takes in what traffic sees. Safe for concurrent use.
//
// One goroutine, Run's, probes; another, while a probe is in flight, waits for its answer and is waited for. The
// machine is behind a mutex that is held for the length of one Step, so that traffic may report from its hot path.
type Monitor struct {
	cfg   Config
	state *live.Value[State]
	wake  chan struct{} // capacity 1: something changed that Run may want to act on

	mu      sync.Mutex
	machine Machine
	since   time.Time // of the present state
	lastErr error     // of the last failed probe; nil once the link is up
	ups     uint64
	downs   uint64
}

// NewMonitor returns a Monitor of the link that cfg.Probe reaches across. It probes nothing until Run.
func NewMonitor(cfg Config) *Monitor {
	cfg = cfg.withDefaults()
	now := cfg.Clock.Now()
	return &Monitor{
		cfg:     cfg,
		state:   live.NewValue(Unknown),
		wake:    make(chan struct{}, 1),
		machine: NewMachine(cfg, now),
		since:   now,
	}
}

// State is the link's state; it follows Run and TrafficOK.
func (m *Monitor) State() *live.Value[State] { return m.state }

// Last returns when the present state began and the error of the last failed probe, nil while the link is up.
func (m *Monitor) Last() (since time.Time, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.since, m.lastErr
}

// Transitions returns how often the link has come up and gone down.
func (m *Monitor) Transitions() (ups, downs uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.ups, m.downs
}

// TrafficOK reports that a complete response header was received for a request sent at sentAt. It never blocks.
func (m *Monitor) TrafficOK(sentAt time.Time) {
	m.step(Event{Kind: TrafficSucceeded, At: m.cfg.Clock.Now(), SentAt: sentAt}, nil)
}

// TrafficFailed reports that a request failed by a dial, TLS, timeout or connection error. It brings the next probe
// forward, at most once in Config.MinGap, and never blocks. A nil error is ignored.
func (m *Monitor) TrafficFailed(err error) {
	if err == nil {
		return
	}
	m.step(Event{Kind: TrafficFailed, At: m.cfg.Clock.Now()}, nil)
	m.poke()
}

// Run probes until ctx ends, and returns nil when the last probe has returned.
func (m *Monitor) Run(ctx context.Context) error {
	if m.cfg.Probe == nil {
		return errors.New("link: Config.Probe is required")
	}
	log := klog.FromContext(ctx)
	logged := Unknown
	for {
		if state := m.state.Get(); state != logged {
			m.log(log, logged, state)
			logged = state
		}
		fresh, wait := m.next()
		if wait > 0 {
			timer := m.cfg.Clock.NewTimer(wait)
			select {
			case <-timer.C():
			case <-m.wake:
				timer.Stop()
				continue
			case <-ctx.Done():
				timer.Stop()
				return nil
			}
		}
		if ctx.Err() != nil {
			return nil //nolint:nilerr // asked to stop
		}
		m.probe(ctx, fresh)
	}
}

// probe sends one probe and waits for it to end.
func (m *Monitor) probe(ctx context.Context, fresh bool) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	m.step(Event{Kind: ProbeStarted, At: m.cfg.Clock.Now()}, nil)
	timer := m.cfg.Clock.NewTimer(m.cfg.Timeout)
	defer timer.Stop()
	answer := make(chan error, 1)
	var asking sync.WaitGroup
	asking.Go(func() { answer <- m.cfg.Probe(ctx, fresh) })

	var err error
	select {
	case err = <-answer:
		if ctx.Err() != nil {
			return // stopping: the probe's end says nothing about the link
		}
		m.ended(err)
	case <-timer.C():
		// The verdict does not wait for a probe that is slow to give up.
		err = fmt.Errorf("%w (%v)", ErrProbeTimeout, m.cfg.Timeout)
		m.ended(err)
		cancel(err)
	case <-ctx.Done():
	}
	asking.Wait()
}

func (m *Monitor) ended(err error) {
	kind := ProbeSucceeded
	if err != nil {
		kind = ProbeFailed
	}
	if m.step(Event{Kind: kind, At: m.cfg.Clock.Now()}, err) == Down && m.cfg.WentDown != nil {
		m.cfg.WentDown(err)
	}
}

// step takes an event in and returns the state that it led to, Unknown if it changed nothing.
func (m *Monitor) step(e Event, probeErr error) State {
	m.mu.Lock()
	defer m.mu.Unlock()
	before := m.machine.State()
	m.machine = m.machine.Step(e)
	after := m.machine.State()
	if probeErr != nil {
		m.lastErr = probeErr
	} else if after == Up {
		m.lastErr = nil
	}
	if before == after {
		return Unknown
	}
	m.since = e.At
	if after == Up {
		m.ups++
	} else {
		m.downs++
	}
	m.state.Set(after) // under the lock, so that two changes are seen in the order they happened
	m.poke()
	return after
}

// next returns what the next probe is to be like and how long to wait for it.
func (m *Monitor) next() (fresh bool, wait time.Duration) {
	m.mu.Lock()
	machine := m.machine
	m.mu.Unlock()
	at, fresh, _ := machine.NextProbe()
	wait = at.Sub(m.cfg.Clock.Now())
	if machine.State() == Down && wait > 0 {
		wait -= min(wait, rand.N(m.cfg.DownInterval/5+1))
	}
	return fresh, wait
}

func (m *Monitor) poke() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

func (m *Monitor) log(log klog.Logger, from, to State) {
	since, err := m.Last()
	if to == Up {
		log.Info("Link is up", "before", from.String(), "since", since)
		return
	}
	log.Info("Link is down; requests are refused until it answers probes again", "before", from.String(),
		"since", since, "err", err)
}
