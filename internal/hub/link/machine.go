package link

import "time"

// Kind is what happened.
type Kind uint8

const (
	// ProbeStarted: a probe was sent.
	ProbeStarted Kind = iota + 1
	// ProbeSucceeded: the probe in flight was answered.
	ProbeSucceeded
	// ProbeFailed: the probe in flight was refused.
	ProbeFailed
	// ProbeGivenUp means that the Monitor no longer waits for the probe in flight.
	ProbeGivenUp
	// TrafficSucceeded: a complete response header was received.
	TrafficSucceeded
	// TrafficFailed: a request failed, and the link may be the cause.
	TrafficFailed
	// Heard: bytes of the verified other end arrived at At, whatever they belong to.
	Heard
	// Tick: nothing happened until now.
	Tick
	// CoreServed means that a core read, or a request for a Lease, was answered without a server failure.
	CoreServed
	// CoreFailed means that a core read, or a request for a Lease, was answered with a failure: see Monitor.CoreAnswered.
	CoreFailed
	// CoreHung means that a request for a Lease got no answer in its time.
	CoreHung
	// CheckStarted: a core read was sent to find out whether the server serves.
	CheckStarted
	// CheckEnded: the check is over. If it was answered, CoreServed or CoreFailed came before.
	CheckEnded
	// LinkWentDown means that the server's earlier answers no longer count.
	LinkWentDown
)

// Event is one thing that happened.
type Event struct {
	Kind Kind
	At   time.Time
	// Ask is the kind of the probe, in events of probes.
	Ask Ask
	// SentAt is, for CoreServed and CoreFailed, when the request was sent; a time after At counts as At.
	SentAt time.Time
}

// Do is what a Machine wants done.
type Do uint8

const (
	// Probe: send a probe.
	Probe Do = iota
	// Judge means that the caller should send a Tick at that time.
	Judge
)

// Next is what a Machine wants to be done, and when.
type Next struct {
	At  time.Time
	Do  Do
	Ask Ask // how to probe
}

// flight is a probe that was sent.
type flight struct {
	out     bool
	ask     Ask
	started time.Time
}

// Machine decides whether one link reaches its other end. Its State is never Failing, which Service decides. Machine is a value:
// Step returns the changed Machine. At most two probes are in flight: one over an open connection, and one over a new connection.
// Unexpected events, such as the end of a probe that never started, change nothing.
type Machine struct {
	cfg   Timing
	state State
	trip  roundTrip

	proved   time.Time // when the other end last answered anything
	answered time.Time // when the API last did
	heard    time.Time // when anything of it last arrived
	asked    time.Time // the first question since proved; zero while none is open
	doubted  bool      // requests have failed since answered

	kept, fresh flight
	last        time.Time // when a probe last started
	hasten      time.Time // when to probe at the latest; zero while there is no hurry
	refusals    int       // refused probes in a row, while not down

	successes int           // answered probes in a row, while down
	need      int           // successes that end the present or next outage
	timeout   time.Duration // of the next probe while down
	upSince   time.Time     // when the state last became Up
}

// NewMachine returns a machine in state Unknown whose first probe is due at now.
func NewMachine(cfg Timing, now time.Time) Machine {
	return Machine{cfg: cfg, need: cfg.UpAfter, hasten: now}
}

// State returns what the machine believes.
func (m Machine) State() State { return m.state }

// Retimed returns the machine with another timing from now on.
func (m Machine) Retimed(cfg Timing) Machine {
	m.cfg = cfg
	m.need = min(m.need, cfg.UpAfterMax)
	if due := m.last.Add(cfg.DownInterval); m.state == Down && due.Before(m.hasten) {
		m.hasten = due // who is asked seldom, and is somewhere now, is not waited for
	}
	return m
}

// Patience is how long the link may be silent after a probe.
func (m Machine) Patience() time.Duration {
	return min(max(2*m.trip.timeout(), m.cfg.MinPatience), m.cfg.MaxPatience)
}

// Doubtful reports whether the link is up, but a probe has had no answer, and nothing has arrived, for longer than an answer
// usually takes.
func (m Machine) Doubtful(at time.Time) bool {
	return m.state == Up && !m.asked.IsZero() && at.Sub(later(m.asked, m.heard)) > m.trip.timeout()
}

// Next returns what to do next.
func (m Machine) Next() Next {
	switch {
	case m.state == Down && m.fresh.out:
		return Next{At: m.fresh.started.Add(m.timeout), Do: Judge}
	case m.state == Down:
		return Next{At: later(m.hasten, m.last.Add(m.cfg.MinGap)), Do: Probe, Ask: Fresh}
	case m.asked.IsZero():
		return m.nextQuestion()
	}
	judge := Next{At: m.judgement(), Do: Judge}
	if m.fresh.out {
		return judge
	}
	repeat := max(m.trip.timeout()*3/2, m.cfg.MinRepeat)
	again := Next{At: earlier(later(m.asked, m.heard).Add(repeat), m.asked.Add(m.cfg.Trust/2)), Do: Probe, Ask: Fresh}
	if !m.hasten.IsZero() {
		again.At = earlier(again.At, m.hasten)
	}
	if !m.last.IsZero() {
		again.At = later(again.At, m.last.Add(m.cfg.MinGap))
	}
	if again.At.Before(judge.At) {
		return again
	}
	return judge
}

// nextQuestion returns the next probe while none is unanswered.
func (m Machine) nextQuestion() Next {
	next := Next{At: earlier(later(m.proved, m.heard).Add(m.cfg.Interval), m.proved.Add(m.cfg.Quiet)), Do: Probe, Ask: Ping}
	if !m.hasten.IsZero() {
		next.At = earlier(next.At, m.hasten)
	}
	if !m.last.IsZero() {
		next.At = later(next.At, m.last.Add(m.cfg.MinGap))
	}
	switch {
	case m.kept.out:
		next.Do = Judge // its answer is late, and something else proved the link since: it stands for the next question
	case m.doubted || m.answered.IsZero() || !next.At.Before(m.answered.Add(m.cfg.DeepAfter)):
		next.Ask = Get
	case m.cfg.Knocks && next.At.Before(m.proved.Add(m.cfg.Quiet)):
		next.Ask = Knock
	}
	return next
}

// judgement returns when the unanswered probe has waited long enough.
func (m Machine) judgement() time.Time {
	return earlier(later(m.asked, m.heard).Add(m.Patience()), m.asked.Add(m.cfg.Trust))
}

// Step returns the machine after e.
func (m Machine) Step(e Event) Machine {
	switch e.Kind {
	case ProbeStarted:
		return m.probeStarted(e)
	case ProbeSucceeded:
		return m.probeSucceeded(e)
	case ProbeFailed:
		return m.probeFailed(e)
	case ProbeGivenUp:
		m, _ = m.ended(e.Ask)
	case TrafficSucceeded:
		if m.state != Down { // a late answer; nothing is sent while down
			m.answered, m.doubted = later(m.answered, e.At), false
			m = m.provedAlive(e.At)
		}
	case TrafficFailed:
		return m.trafficFailed(e.At)
	case Heard:
		m.heard = later(m.heard, e.At)
	case Tick:
		return m.tick(e.At)
	}
	return m
}

// slot returns the flight of a kind of probe.
func (m *Machine) slot(ask Ask) *flight {
	if ask == Fresh {
		return &m.fresh
	}
	return &m.kept
}

// ended ends a probe, and returns what it was.
func (m Machine) ended(ask Ask) (Machine, flight) {
	slot := m.slot(ask)
	was := *slot
	slot.out = false
	return m, was
}

func (m Machine) probeStarted(e Event) Machine {
	if slot := m.slot(e.Ask); !slot.out {
		*slot = flight{out: true, ask: e.Ask, started: e.At}
		m.last, m.hasten = e.At, time.Time{}
		if m.asked.IsZero() {
			m.asked = e.At
		}
	}
	return m
}

func (m Machine) probeSucceeded(e Event) Machine {
	m, was := m.ended(e.Ask)
	if !was.out {
		return m
	}
	switch took := max(0, e.At.Sub(was.started)); was.ask {
	case Ping, Knock:
		m.trip = m.trip.sample(took)
	case Fresh: // one round trip each for TCP, TLS and the question
		m.trip = m.trip.sample(took / 3)
	}
	switch was.ask {
	case Get, Fresh:
		m.answered, m.doubted = later(m.answered, e.At), false
	case Knock:
		return m.acknowledged(e.At)
	}
	if m.state == Down {
		m.successes++
		if m.successes < m.need {
			m.hasten = later(e.At, was.started.Add(m.cfg.ConfirmInterval))
			return m
		}
	}
	return m.provedAlive(e.At)
}

// acknowledged ends a probe without an answer: the next one is due as if bytes had arrived.
func (m Machine) acknowledged(at time.Time) Machine {
	m.heard, m.asked = later(m.heard, at), time.Time{}
	return m.doubting(at)
}

// probeFailed records a refused probe. A refusal proves more than silence, so two in a row take the link down.
func (m Machine) probeFailed(e Event) Machine {
	m, was := m.ended(e.Ask)
	if !was.out {
		return m
	}
	if m.state == Down {
		return m.stillDown(e.At, was.started)
	}
	m.hasten = later(e.At, was.started.Add(m.cfg.MinGap))
	if m.asked.IsZero() {
		m.asked = e.At
	}
	if m.heard.After(was.started) || m.proved.After(was.started) {
		return m // something else arrived meanwhile: its connection was at fault, not the link
	}
	m.refusals++
	if m.refusals >= m.cfg.DownAfter {
		return m.becomeDown(e.At)
	}
	return m
}

func (m Machine) trafficFailed(at time.Time) Machine {
	if m.state == Down {
		return m
	}
	m.doubted = true
	soon := at
	if !m.last.IsZero() {
		soon = later(at, m.last.Add(m.cfg.MinGap))
	}
	if m.asked.IsZero() && (m.hasten.IsZero() || soon.Before(m.hasten)) {
		m.hasten = soon
	}
	return m
}

// tick judges what is open.
func (m Machine) tick(at time.Time) Machine {
	switch {
	case m.state == Down:
		if m.fresh.out && !at.Before(m.fresh.started.Add(m.timeout)) {
			m.fresh.out = false
			m.timeout = min(m.timeout*3/2, m.cfg.MaxDownTimeout)
			return m.stillDown(at, m.fresh.started)
		}
	case m.asked.IsZero():
		if next := m.nextQuestion(); next.Do == Judge && !at.Before(next.At) {
			m.asked, m.hasten = at, time.Time{}
		}
	case !at.Before(m.judgement()):
		return m.becomeDown(at)
	}
	return m
}

func (m Machine) provedAlive(at time.Time) Machine {
	m.proved, m.heard = later(m.proved, at), later(m.heard, at)
	m.asked, m.hasten, m.refusals = time.Time{}, time.Time{}, 0
	m = m.doubting(at)
	if m.state != Up {
		m.state, m.upSince, m.successes = Up, at, 0
	}
	return m
}

// doubting brings the next probe of the API forward if requests failed while a probe was unanswered.
func (m Machine) doubting(at time.Time) Machine {
	if m.doubted && !m.last.IsZero() {
		m.hasten = later(at, m.last.Add(m.cfg.MinGap))
	}
	return m
}

func (m Machine) stillDown(at, started time.Time) Machine {
	m.successes = 0
	m.hasten = later(at, started.Add(m.cfg.DownInterval))
	return m
}

func (m Machine) becomeDown(at time.Time) Machine {
	if m.state == Up && at.Sub(m.upSince) < m.cfg.FlapWindow {
		m.need = min(m.need+1, m.cfg.UpAfterMax)
	} else {
		m.need = m.cfg.UpAfter
	}
	m.state, m.refusals, m.successes = Down, 0, 0
	m.asked, m.doubted = time.Time{}, false
	m.kept, m.fresh = flight{}, flight{}
	m.timeout = min(max(3*m.trip.timeout(), m.cfg.DownTimeout), m.cfg.MaxDownTimeout)
	m.hasten = at
	return m
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// roundTrip estimates the time to an answer, as TCP does for its retransmissions (RFC 6298, section 2).
type roundTrip struct {
	known          bool
	smoothed, vary time.Duration
}

const (
	// unknownTrip is what TCP waits before it has measured anything.
	unknownTrip = time.Second
	// leastTrip is the least that Linux' TCP waits.
	leastTrip = 200 * time.Millisecond
)

// sample returns the estimate after one more answer.
func (r roundTrip) sample(took time.Duration) roundTrip {
	if !r.known {
		return roundTrip{known: true, smoothed: took, vary: took / 2}
	}
	off := r.smoothed - took
	if off < 0 {
		off = -off
	}
	r.vary += (off - r.vary) / 4
	r.smoothed += (took - r.smoothed) / 8
	return r
}

// timeout is TCP's retransmission timeout for this estimate.
func (r roundTrip) timeout() time.Duration {
	if !r.known {
		return unknownTrip
	}
	return max(r.smoothed+4*r.vary, leastTrip)
}
