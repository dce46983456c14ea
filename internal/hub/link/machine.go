package link

import "time"

// Kind is what happened.
type Kind uint8

const (
	// ProbeStarted: a probe was sent.
	ProbeStarted Kind = iota + 1
	// ProbeSucceeded: the probe in flight was answered.
	ProbeSucceeded
	// ProbeFailed: the probe in flight was refused, or not answered in time.
	ProbeFailed
	// TrafficSucceeded: a complete response header was received.
	TrafficSucceeded
	// TrafficFailed: a request failed, and the link may be the cause.
	TrafficFailed
	// CoreServed: a core read, or a request for a Lease, was answered without a server failure.
	CoreServed
	// CoreFailed: one was answered with 502, 503 or 504.
	CoreFailed
	// CheckStarted: a core read was sent to find out whether a failing server serves again.
	CheckStarted
	// CheckEnded: the check is over. If it was answered, CoreServed or CoreFailed came before.
	CheckEnded
	// LinkWentDown: what the server's answers said no longer counts.
	LinkWentDown
)

// Event is one thing that happened.
type Event struct {
	Kind Kind
	At   time.Time
	// SentAt is, for TrafficSucceeded, CoreServed and CoreFailed, when the request was sent; a time after At counts as At.
	SentAt time.Time
}

// Machine decides whether one link reaches its other end; it is never Failing (see Service). It is a value: Step returns the
// next one. At most one probe is in flight at a time. Events that do not fit, such as the end of a probe that never started,
// change nothing.
type Machine struct {
	cfg   Timing
	state State

	failures  int       // failed probes in a row, while not down
	successes int       // answered probes in a row, while down
	need      int       // successes that end the present or next outage
	upSince   time.Time // when the state last became Up

	probing    bool
	probeStart time.Time // of the last probe
	lastFailed time.Time // when the last failed probe was started
	alive      time.Time // the latest moment as of which there is evidence of life
	due        time.Time // of the next probe
	fresh      bool      // the next probe needs a connection of its own
	again      bool      // traffic failed while a probe was in flight
}

// NewMachine returns a machine in state Unknown whose first probe is due at now.
func NewMachine(cfg Timing, now time.Time) Machine {
	return Machine{cfg: cfg, need: cfg.UpAfter, due: now}
}

// State returns what the machine believes.
func (m Machine) State() State { return m.state }

// NextProbe returns when the next probe is due and whether it needs a fresh connection. due is false while a probe is
// in flight.
func (m Machine) NextProbe() (at time.Time, fresh, due bool) { return m.due, m.fresh, !m.probing }

// Step returns the machine after e.
func (m Machine) Step(e Event) Machine {
	switch e.Kind {
	case ProbeStarted:
		if !m.probing {
			m.probing, m.probeStart, m.again = true, e.At, false
		}
		return m
	case ProbeSucceeded:
		return m.probeSucceeded(e.At)
	case ProbeFailed:
		return m.probeFailed(e.At)
	case TrafficSucceeded:
		return m.trafficSucceeded(e.At, e.SentAt)
	case TrafficFailed:
		return m.trafficFailed(e.At)
	}
	return m
}

func (m Machine) probeSucceeded(at time.Time) Machine {
	if !m.probing {
		return m
	}
	m.probing = false
	m = m.provedAlive(m.probeStart)
	if m.state == Down {
		m.successes++
		if m.successes < m.need {
			m.due, m.fresh = later(at, m.probeStart.Add(m.cfg.ConfirmInterval)), true
			return m
		}
	}
	if m.state != Up {
		m = m.becomeUp(at)
	}
	m.failures, m.fresh = 0, false
	m.due = later(at, m.probeStart.Add(m.cfg.Interval))
	if m.again {
		m.due = later(at, m.probeStart.Add(m.cfg.MinGap))
	}
	return m
}

func (m Machine) probeFailed(at time.Time) Machine {
	if !m.probing {
		return m
	}
	m.probing, m.fresh, m.lastFailed = false, true, m.probeStart
	if m.state == Down {
		m.successes = 0
		m.due = later(at, m.probeStart.Add(m.cfg.DownInterval))
		return m
	}
	m.due = later(at, m.probeStart.Add(m.cfg.MinGap))
	if m.alive.After(m.probeStart) {
		return m // a request sent after this probe was answered: its connection was at fault, not the link
	}
	m.failures++
	if m.failures >= m.cfg.DownAfter {
		m = m.becomeDown(at)
	}
	return m
}

func (m Machine) trafficSucceeded(at, sentAt time.Time) Machine {
	if sentAt.After(at) {
		sentAt = at
	}
	if m.state == Down {
		return m // a late answer; nothing is sent while down
	}
	if m.failures > 0 && !sentAt.After(m.lastFailed) {
		return m // sent before the failed probe: no news
	}
	m = m.provedAlive(sentAt)
	m.failures = 0
	if m.state == Unknown {
		m = m.becomeUp(at)
	}
	return m
}

func (m Machine) trafficFailed(at time.Time) Machine {
	switch {
	case m.state == Down:
	case m.probing:
		m.again = true
	default:
		if soon := later(at, m.probeStart.Add(m.cfg.MinGap)); soon.Before(m.due) {
			m.due = soon
		}
	}
	return m
}

func (m Machine) becomeUp(at time.Time) Machine {
	m.state, m.upSince = Up, at
	m.failures, m.successes = 0, 0
	return m
}

func (m Machine) becomeDown(at time.Time) Machine {
	if m.state == Up && at.Sub(m.upSince) < m.cfg.FlapWindow {
		m.need = min(m.need+1, m.cfg.UpAfterMax)
	} else {
		m.need = m.cfg.UpAfter
	}
	m.state, m.failures, m.successes = Down, 0, 0
	m.due, m.fresh = later(at, m.probeStart.Add(m.cfg.DownInterval)), true
	return m
}

func (m Machine) provedAlive(asOf time.Time) Machine {
	m.alive = later(m.alive, asOf)
	return m
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
