package link

import (
	"context"
	"time"

	"k8s.io/utils/clock"
)

// Config says how a link is judged. Zero fields take the defaults named beside them; together they keep the promises
// of the package comment (DESIGN §8: a silent cut is noticed 3 s after the first missing answer).
type Config struct {
	// Interval is the time between the starts of two probes while the link is up: 2 s.
	Interval time.Duration
	// Timeout is how long a probe may take: 1.5 s. On a new connection that is three round trips and the server's work.
	Timeout time.Duration
	// DownInterval is the time between the starts of two probes while the link is down: 1 s, shortened at random by up
	// to a fifth so that the nodes of a healed site do not probe in step.
	DownInterval time.Duration
	// ConfirmInterval is the time from the start of an answered probe to the next one while the link is down: 500 ms.
	ConfirmInterval time.Duration
	// MinGap is the least time between the starts of two probes, however urgent: 200 ms. It bounds what failing
	// traffic and refused probes can cause.
	MinGap time.Duration
	// DownAfter is the number of failed probes in a row that take the link down: 2.
	DownAfter int
	// UpAfter is the number of answered probes in a row that bring the link up again: 2. From Unknown, one does.
	UpAfter int
	// UpAfterMax bounds UpAfter, which grows by one each time the link goes down within FlapWindow of having come up:
	// 4, which is about 3 s from healing to up.
	UpAfterMax int
	// FlapWindow is the time that a link must stay up for its past to be forgotten: 60 s.
	FlapWindow time.Duration

	// FailAfter is the number of answers in a row with 502, 503 or 504, to core reads or requests for Leases, that make the
	// link failing: 2.
	FailAfter int
	// ServeAfter is the number of other answers in a row that end it: 2.
	ServeAfter int
	// ServeAfterMax bounds ServeAfter, which grows by one each time the link is failing again within FlapWindow: 4.
	ServeAfterMax int
	// CheckInterval is the time between two checks while the link is failing: 3 s, shortened at random by up to a fifth. A
	// check that was answered well is repeated after ConfirmInterval.
	CheckInterval time.Duration
	// CheckTimeout is how long a check may take: 3 s.
	CheckTimeout time.Duration

	// Check, if not nil, makes one cheap core read, and reports what was answered to Monitor.CoreAnswered before it
	// returns. Without it the link is never failing. It must return soon after its context ends.
	Check func(ctx context.Context)
	// Probe asks the server one cheap question and returns nil if it answered. fresh asks for a connection that
	// nothing else uses. It must return soon after its context ends. Required by Monitor; Machine does not use it.
	Probe func(ctx context.Context, fresh bool) error
	// WentDown, if not nil, is called by Run each time the link went down, after State has changed and before the next
	// probe, with the error of the last probe. It must not block.
	WentDown func(cause error)
	// Clock is what Monitor takes time from: the system's.
	Clock clock.Clock
}

func (c Config) withDefaults() Config {
	c.Interval = positive(c.Interval, 2*time.Second)
	c.Timeout = positive(c.Timeout, 1500*time.Millisecond)
	c.DownInterval = positive(c.DownInterval, time.Second)
	c.ConfirmInterval = positive(c.ConfirmInterval, 500*time.Millisecond)
	c.MinGap = positive(c.MinGap, 200*time.Millisecond)
	c.DownAfter = positive(c.DownAfter, 2)
	c.UpAfter = positive(c.UpAfter, 2)
	c.UpAfterMax = max(positive(c.UpAfterMax, 4), c.UpAfter)
	c.FlapWindow = positive(c.FlapWindow, time.Minute)
	c.FailAfter = positive(c.FailAfter, 2)
	c.ServeAfter = positive(c.ServeAfter, 2)
	c.ServeAfterMax = max(positive(c.ServeAfterMax, 4), c.ServeAfter)
	c.CheckInterval = positive(c.CheckInterval, 3*time.Second)
	c.CheckTimeout = positive(c.CheckTimeout, 3*time.Second)
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	return c
}

func positive[T int | time.Duration](v, otherwise T) T {
	if v > 0 {
		return v
	}
	return otherwise
}
