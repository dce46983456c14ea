package link

import "time"

// Service decides whether a reachable server also serves what a node depends on: core reads and Leases. Like Machine it is a
// value: Step returns the changed Service, and ignores the events of probes and traffic.
//
// The service is failing after failAfter failing answers in a row, and serves again after serveAfter good ones in a row. One
// failing answer proves little: a balancer that loses one of its servers gives one. So the Monitor confirms it at once with a
// check, a core read of its own. An answer counts only if its question was asked after the last answer that counted. So a burst
// of requests that fail together counts once.
//
// A request for a Lease that hangs does not count. But it brings about a check, because an API server that has lost etcd answers
// later than most clients wait. While the service is failing, checks are repeated, so that failing ends even without traffic. A
// service that fails again within FlapWindow needs one more good answer each time, up to serveAfterMax.
type Service struct {
	cfg     Timing
	failing bool

	failures int       // in a row, while not failing
	served   int       // answers in a row that were no failures, while failing
	need     int       // served that end the present or next time of failing
	ended    time.Time // when the last time of failing ended
	counted  time.Time // when the last answer came that counted

	checking   bool
	checkStart time.Time // of the last check
	due        time.Time // of the next check; zero while none is
}

// NewService returns a service that is not failing.
func NewService(cfg Timing) Service { return Service{cfg: cfg, need: serveAfter} }

// Retimed returns the service with another timing from now on.
func (s Service) Retimed(cfg Timing) Service {
	s.cfg = cfg
	return s
}

// Failing reports whether the service is failing.
func (s Service) Failing() bool { return s.failing }

// NextCheck returns when the next check is due. due is false while a check is in flight, and while none is needed.
func (s Service) NextCheck() (at time.Time, due bool) { return s.due, !s.checking && !s.due.IsZero() }

// Step returns the service after e.
func (s Service) Step(e Event) Service {
	switch e.Kind {
	case CoreServed:
		return s.coreServed(e.At, e.SentAt)
	case CoreFailed:
		return s.coreFailed(e.At, e.SentAt)
	case CoreHung:
		if s.due.IsZero() {
			s.due = e.At
		}
	case CheckStarted:
		if !s.checking {
			s.checking, s.checkStart = true, e.At
		}
	case CheckEnded:
		return s.checkEnded(e.At)
	case LinkWentDown:
		// A check under way no longer counts: the server that comes back may be another.
		s.failing, s.failures, s.served, s.due, s.checking = false, 0, 0, time.Time{}, false
	}
	return s
}

func (s Service) coreServed(at, sentAt time.Time) Service {
	if !s.news(at, sentAt) {
		return s
	}
	s.counted, s.failures = at, 0
	if !s.failing {
		s.due = time.Time{}
		return s
	}
	if s.served++; s.served < s.need {
		s.due = at.Add(s.cfg.ConfirmInterval)
		return s
	}
	s.failing, s.ended, s.due = false, at, time.Time{}
	return s
}

func (s Service) coreFailed(at, sentAt time.Time) Service {
	if !s.news(at, sentAt) {
		return s
	}
	s.counted, s.served = at, 0
	s.due = at.Add(s.cfg.CheckInterval)
	if s.failing {
		return s
	}
	if s.failures++; s.failures >= failAfter {
		return s.becomeFailing(at)
	}
	s.due = at.Add(s.cfg.MinGap)
	return s
}

// checkEnded records the end of a check. Its answer, if any, was reported before as CoreServed or CoreFailed. Without an answer,
// the Service forgets a failure that was not confirmed.
func (s Service) checkEnded(at time.Time) Service {
	if !s.checking {
		return s
	}
	s.checking = false
	answered := !s.counted.Before(s.checkStart)
	switch {
	case answered:
	case s.failing:
		s.served, s.due = 0, later(at, s.checkStart.Add(s.cfg.CheckInterval))
	default:
		s.failures, s.due = 0, time.Time{}
	}
	return s
}

func (s Service) becomeFailing(at time.Time) Service {
	if !s.ended.IsZero() && at.Sub(s.ended) < s.cfg.FlapWindow {
		s.need = min(s.need+1, serveAfterMax)
	} else {
		s.need = serveAfter
	}
	s.failing, s.failures, s.served = true, 0, 0
	return s
}

// news reports whether a question was asked after the last answer that counted.
func (s Service) news(at, sentAt time.Time) bool {
	if sentAt.After(at) {
		sentAt = at
	}
	return s.counted.IsZero() || sentAt.After(s.counted)
}
