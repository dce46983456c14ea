package link

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"yurtcoordinator/internal/live"
)

// ErrSilent is the error of a link that did not answer a probe.
var ErrSilent = errors.New("no answer")

// Monitor runs a Machine and a Service. It sends probes and checks, and tells both how these and real traffic fare. It is safe
// for concurrent use.
//
// Only Run's goroutine takes the link down. Run waits for the goroutines that it starts: at most two that wait for answers to
// probes, and one that sends the checks. A mutex guards the Machine and the Service. It is held for one Step only, so traffic may
// report from its hot path.
type Monitor struct {
	cfg     Config
	state   *live.Value[State]
	wake    chan struct{} // capacity 1: something changed that Run may want to act on
	recall  chan struct{} // capacity 1: the same, for the goroutine that checks
	answers chan answer   // capacity 2: how probes ended

	mu       sync.Mutex
	machine  Machine
	service  Service
	since    time.Time // of the present state, by the wall clock
	lastErr  error     // of the last refused or unanswered probe; nil once the link is up
	ups      uint64
	downs    uint64
	failings uint64
	sick     string // the collection that failed last, at sickAt
	sickAt   time.Time
}

// sickFor is how long the failure of one collection counts when another fails.
const sickFor = 30 * time.Second

// answer is how a probe ended.
type answer struct {
	ask Ask
	err error
}

// sending is a probe under way, and what is known of it outside the machine.
type sending struct {
	cancel context.CancelFunc // nil: its goroutine has ended
	void   bool               // its end says nothing about the link any more
}

// NewMonitor returns a Monitor of the link that cfg.Probe reaches across. It probes nothing until Run.
func NewMonitor(cfg Config) *Monitor {
	now := cfg.Ends.Running()
	return &Monitor{
		cfg:     cfg,
		state:   live.NewValue(Unknown),
		wake:    make(chan struct{}, 1),
		recall:  make(chan struct{}, 1),
		answers: make(chan answer, 2),
		machine: NewMachine(cfg.Timing, now),
		service: NewService(cfg.Timing),
		since:   cfg.Ends.Wall(),
	}
}

// Retime has the link judged by another timing from now on.
func (m *Monitor) Retime(timing Timing) {
	m.mu.Lock()
	m.machine, m.service = m.machine.Retimed(timing), m.service.Retimed(timing)
	m.mu.Unlock()
	poke(m.wake)
	poke(m.recall)
}

// State is the link's state, as Run and TrafficOK change it.
func (m *Monitor) State() *live.Value[State] { return m.state }

// Last returns when the present state began, by the wall clock, and the error of the last failed probe, nil while the link is up.
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

// CoreAnswered reports the status of an answer to a core read, or to a request for a Lease, that was sent at sentAt. The
// parameter "of" names the collection that was read; it is empty for a Lease and for a check. The statuses 502, 503 and 504 are
// failures. Another 5xx is a failure if it is about a Lease or a check. If it is about a collection, it is a failure only if such
// a 5xx about another collection came within sickFor before. CoreAnswered never blocks. Without Config.Check it changes nothing.
func (m *Monitor) CoreAnswered(of string, status int, sentAt time.Time) {
	e := Event{Kind: CoreServed, At: m.cfg.Ends.Running(), SentAt: sentAt}
	switch {
	case m.cfg.Check == nil:
		return
	case status == http.StatusBadGateway || status == http.StatusServiceUnavailable || status == http.StatusGatewayTimeout:
		e.Kind = CoreFailed
	case status >= http.StatusInternalServerError:
		// An API server without etcd says 500. One that fails with a single collection says that of no other.
		if of != "" && !m.another(of, e.At) {
			return
		}
		e.Kind = CoreFailed
	}
	m.step(e, nil)
}

// CoreHung reports that a request for a Lease got no answer in time. It never blocks. Without Config.Check it changes nothing.
func (m *Monitor) CoreHung() {
	if m.cfg.Check != nil {
		m.step(Event{Kind: CoreHung, At: m.cfg.Ends.Running()}, nil)
	}
}

// Fails reports whether the last core read or request for a Lease that was answered failed.
func (m *Monitor) Fails() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.service.failures > 0 || m.service.failing
}

// another records that a collection failed, and reports whether another one did lately.
func (m *Monitor) another(of string, at time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	was, since := m.sick, at.Sub(m.sickAt)
	m.sick, m.sickAt = of, at
	return was != "" && was != of && since < sickFor
}

// TrafficOK reports that a complete response header was received. It never blocks.
func (m *Monitor) TrafficOK() {
	m.step(Event{Kind: TrafficSucceeded, At: m.cfg.Ends.Running()}, nil)
}

// TrafficFailed reports that a request failed by a dial, TLS, timeout or connection error. If the link is not down and no probe
// is unanswered, it brings the next probe forward, at most once in Timing.MinGap. It never blocks. A nil error is ignored.
func (m *Monitor) TrafficFailed(err error) {
	if err == nil {
		return
	}
	m.step(Event{Kind: TrafficFailed, At: m.cfg.Ends.Running()}, nil)
	poke(m.wake)
}

// Run probes until ctx ends, and returns nil when the last probe has returned.
func (m *Monitor) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var checking, probing sync.WaitGroup
	defer checking.Wait()
	defer probing.Wait()
	defer cancel()
	if m.cfg.Check != nil {
		checking.Go(func() { m.check(ctx) })
	}
	log := klog.FromContext(ctx)
	logged := Unknown
	var sent [2]sending // on a connection that is there, and on its own
	for {
		if state := m.state.Get(); state != logged {
			m.log(log, logged, state)
			logged = state
		}
		next, wait := m.next()
		slot := &sent[place(next.Ask)]
		var fires <-chan time.Time
		var timer *time.Timer
		if blocked := next.Do == Probe && slot.cancel != nil; !blocked { // else its end comes first
			timer = time.NewTimer(wait)
			fires = timer.C
		}
		down := Unknown
		var cause error
		select {
		case <-fires:
			switch now, _ := m.next(); {
			case now != next: // bytes have arrived since: they count first
			case next.Do == Judge:
				cause = m.silence()
				down = m.step(Event{Kind: Tick, At: m.cfg.Ends.Running()}, cause)
			default:
				*slot = m.send(ctx, &probing, next.Ask)
			}
		case <-m.wake:
		case a := <-m.answers:
			down, cause = m.ended(a, &sent[place(a.ask)])
		case <-ctx.Done():
		}
		if timer != nil {
			timer.Stop()
		}
		if ctx.Err() != nil {
			return nil // asked to stop: how probes end says nothing about the link
		}
		if down == Down {
			m.cfg.WentDown(cause)
		}
		m.abandon(&sent)
	}
}

// place is the index of the slot of a kind of probe.
func place(ask Ask) int {
	if ask == Fresh {
		return 1
	}
	return 0
}

// send starts a probe.
func (m *Monitor) send(ctx context.Context, probing *sync.WaitGroup, ask Ask) sending {
	m.step(Event{Kind: ProbeStarted, Ask: ask, At: m.cfg.Ends.Running()}, nil)
	trust := m.timing().Trust
	ctx, cancel := context.WithTimeoutCause(ctx, trust, fmt.Errorf("%w for %v", ErrSilent, trust))
	probing.Go(func() {
		a := answer{ask: ask, err: m.cfg.Probe(ctx, ask)}
		if a.err != nil && ctx.Err() != nil {
			a.err = context.Cause(ctx)
		}
		cancel()
		m.answers <- a
	})
	return sending{cancel: cancel}
}

// ended takes in how a probe ended.
func (m *Monitor) ended(a answer, s *sending) (State, error) {
	void := s.void
	*s = sending{}
	e := Event{Kind: ProbeSucceeded, Ask: a.ask, At: m.cfg.Ends.Running()}
	switch timeout := net.Error(nil); {
	case void:
		return Unknown, nil
	case a.err == nil:
	case errors.Is(a.err, ErrSilent), errors.Is(a.err, context.DeadlineExceeded), errors.As(a.err, &timeout) && timeout.Timeout():
		e.Kind = ProbeGivenUp
	default:
		e.Kind = ProbeFailed
	}
	return m.step(e, a.err), a.err
}

// abandon ends the probes that the machine no longer waits for.
func (m *Monitor) abandon(sent *[2]sending) {
	m.mu.Lock()
	out := [2]bool{m.machine.kept.out, m.machine.fresh.out}
	m.mu.Unlock()
	for i := range sent {
		if s := &sent[i]; s.cancel != nil && !s.void && !out[i] {
			s.void = true
			s.cancel()
		}
	}
}

// silence is the error of a link that is called down, or stays so, since it gives no answer.
func (m *Monitor) silence() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch now := m.machine; {
	case now.State() == Down:
		return fmt.Errorf("%w for %v", ErrSilent, now.timeout)
	case now.heard.After(now.asked):
		return fmt.Errorf("%w for %v, though bytes arrived", ErrSilent, m.cfg.Ends.Since(now.asked).Round(time.Millisecond))
	default:
		return fmt.Errorf("%w for %v", ErrSilent, now.Patience())
	}
}

// timing returns the timing that holds now.
func (m *Monitor) timing() Timing {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.machine.cfg
}

// check sends the checks that are due, until ctx ends.
func (m *Monitor) check(ctx context.Context) {
	for {
		m.mu.Lock()
		at, due := m.service.NextCheck()
		m.mu.Unlock()
		var timer *time.Timer
		var fires <-chan time.Time
		if due {
			wait := at.Sub(m.cfg.Ends.Running())
			if timing := m.timing(); wait > timing.ConfirmInterval {
				wait -= m.cfg.Ends.Below(timing.CheckInterval/5 + 1)
			}
			timer = time.NewTimer(wait)
			fires = timer.C
		}
		select {
		case <-fires:
			m.step(Event{Kind: CheckStarted, At: m.cfg.Ends.Running()}, nil)
			asking, cancel := context.WithTimeout(ctx, checkTimeout)
			m.cfg.Check(asking)
			cancel()
			m.step(Event{Kind: CheckEnded, At: m.cfg.Ends.Running()}, nil)
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

// step handles an event and returns the new state, or Unknown if the event changed nothing.
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
	m.since = m.cfg.Ends.Wall()
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

// Doubtful reports whether the link is up, but a probe has had no answer, and nothing has arrived, for longer than an answer
// usually takes. After Timing.Trust at the latest, the link is either down or no longer doubtful.
func (m *Monitor) Doubtful() bool {
	machine := m.listen()
	return machine.Doubtful(m.cfg.Ends.Running())
}

// listen tells the machine when bytes last arrived, and returns it.
func (m *Monitor) listen() Machine {
	var heard time.Time
	if m.cfg.Heard != nil {
		heard = m.cfg.Heard()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if !heard.IsZero() {
		m.machine = m.machine.Step(Event{Kind: Heard, At: heard})
	}
	return m.machine
}

// next tells the machine when bytes last arrived, and returns what to do and how long to wait for it.
func (m *Monitor) next() (next Next, wait time.Duration) {
	machine := m.listen()
	next = machine.Next()
	wait = next.At.Sub(m.cfg.Ends.Running())
	if machine.State() == Down && next.Do == Probe && wait > 0 {
		wait -= min(wait, m.cfg.Ends.Below(machine.cfg.DownInterval/5+1))
	}
	return next, wait
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
