package link

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"yurtcoordinator/internal/live"
)

// ErrProbeTimeout is the error of a probe that got no answer.
var ErrProbeTimeout = errors.New("no answer to the probe in time")

// Monitor runs a Machine and a Service: it sends the probes and checks, and takes in what traffic sees. Safe for
// concurrent use.
//
// Run's goroutine probes. While a probe is in flight, a second one, which Run waits for, waits for its answer. A third sends
// the checks. A mutex guards the machines and is held only for one Step, so that traffic may report from its hot path.
type Monitor struct {
	cfg    Config
	state  *live.Value[State]
	wake   chan struct{} // capacity 1: something changed that Run may want to act on
	recall chan struct{} // capacity 1: the same, for the goroutine that checks

	mu       sync.Mutex
	machine  Machine
	service  Service
	since    time.Time // of the present state
	lastErr  error     // of the last failed probe; nil once the link is up
	ups      uint64
	downs    uint64
	failings uint64
}

// NewMonitor returns a Monitor of the link that cfg.Probe reaches across. It probes nothing until Run.
func NewMonitor(cfg Config) *Monitor {
	now := cfg.Clock.Now()
	return &Monitor{
		cfg:     cfg,
		state:   live.NewValue(Unknown),
		wake:    make(chan struct{}, 1),
		recall:  make(chan struct{}, 1),
		machine: NewMachine(cfg.Timing, now),
		service: NewService(cfg.Timing),
		since:   now,
	}
}

// State is the link's state, as Run and TrafficOK change it.
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

// Failings returns how often the link has begun to be failing.
func (m *Monitor) Failings() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.failings
}

// CoreAnswered reports the status of a complete response header for a core read, or a request for a Lease, that was sent
// at sentAt. It never blocks. Without Config.Check it changes nothing.
func (m *Monitor) CoreAnswered(status int, sentAt time.Time) {
	e := Event{Kind: CoreServed, At: m.cfg.Clock.Now(), SentAt: sentAt}
	switch {
	case m.cfg.Check == nil:
		return
	case status == http.StatusBadGateway || status == http.StatusServiceUnavailable || status == http.StatusGatewayTimeout:
		e.Kind = CoreFailed
	case status >= http.StatusInternalServerError:
		return // a failure of this request says nothing about others
	}
	m.step(e, nil)
}

// TrafficOK reports that a complete response header was received for a request sent at sentAt. It never blocks.
func (m *Monitor) TrafficOK(sentAt time.Time) {
	m.step(Event{Kind: TrafficSucceeded, At: m.cfg.Clock.Now(), SentAt: sentAt}, nil)
}

// TrafficFailed reports that a request failed by a dial, TLS, timeout or connection error. It brings the next probe
// forward, at most once in Timing.MinGap, and never blocks. A nil error is ignored.
func (m *Monitor) TrafficFailed(err error) {
	if err == nil {
		return
	}
	m.step(Event{Kind: TrafficFailed, At: m.cfg.Clock.Now()}, nil)
	poke(m.wake)
}

// Run probes until ctx ends, and returns nil when the last probe has returned.
func (m *Monitor) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var checking sync.WaitGroup
	defer checking.Wait()
	defer cancel()
	if m.cfg.Check != nil {
		checking.Go(func() { m.check(ctx) })
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
			return nil // asked to stop
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
		// Judge now: a probe may be slow to give up.
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
	if m.step(Event{Kind: kind, At: m.cfg.Clock.Now()}, err) == Down {
		m.cfg.WentDown(err)
	}
}

// check sends the checks that are due, until ctx ends.
func (m *Monitor) check(ctx context.Context) {
	for {
		m.mu.Lock()
		at, due := m.service.NextCheck()
		m.mu.Unlock()
		var timer clock.Timer
		var fires <-chan time.Time
		if due {
			wait := at.Sub(m.cfg.Clock.Now())
			if wait > m.cfg.ConfirmInterval {
				wait -= rand.N(m.cfg.CheckInterval/5 + 1)
			}
			timer = m.cfg.Clock.NewTimer(wait)
			fires = timer.C()
		}
		select {
		case <-fires:
			m.step(Event{Kind: CheckStarted, At: m.cfg.Clock.Now()}, nil)
			asking, cancel := context.WithTimeout(ctx, checkTimeout)
			m.cfg.Check(asking)
			cancel()
			m.step(Event{Kind: CheckEnded, At: m.cfg.Clock.Now()}, nil)
		case <-m.recall:
		case <-ctx.Done():
		}
		if timer != nil {
			timer.Stop()
		}
		if ctx.Err() != nil {
			return
		}
	}
}

// step takes an event in and returns the new state, or Unknown if the event changed nothing.
func (m *Monitor) step(e Event, probeErr error) State {
	m.mu.Lock()
	defer m.mu.Unlock()
	reached, before := m.machine.State(), m.believedLocked()
	m.machine = m.machine.Step(e)
	due, wasDue := m.service.NextCheck()
	switch down := m.machine.State() == Down; {
	case down && reached != Down:
		m.service = m.service.Step(Event{Kind: LinkWentDown, At: e.At})
	case !down: // while down, a late answer says nothing about the server that comes back
		m.service = m.service.Step(e)
	}
	if next, isDue := m.service.NextCheck(); isDue != wasDue || !next.Equal(due) {
		poke(m.recall)
	}
	after := m.believedLocked()
	if probeErr != nil {
		m.lastErr = probeErr
	} else if after.Reachable() {
		m.lastErr = nil
	}
	if before == after {
		return Unknown
	}
	m.since = e.At
	switch {
	case after == Failing:
		m.failings++
	case after == Down:
		m.downs++
	case before != Failing:
		m.ups++
	}
	m.state.Set(after) // under the lock, so that two changes are seen in the order they happened
	poke(m.wake)
	return after
}

// believedLocked is what the two machines together say.
func (m *Monitor) believedLocked() State {
	if state := m.machine.State(); state != Up || !m.service.Failing() {
		return state
	}
	return Failing
}

// next returns whether the next probe needs a fresh connection, and how long to wait for it.
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

func poke(bell chan struct{}) {
	select {
	case bell <- struct{}{}:
	default:
	}
}

func (m *Monitor) log(log klog.Logger, from, to State) {
	since, err := m.Last()
	switch to {
	case Up:
		log.Info("Link is up", "before", from.String(), "since", since)
		return
	case Failing:
		log.Info("The server answers core reads and Leases with 502, 503 or 504; "+
			"the node goes on with what it has, and keeps asking", "before", from.String(), "since", since)
		return
	}
	log.Info("Link is down; requests are refused until it answers probes again", "before", from.String(),
		"since", since, "err", err)
}
