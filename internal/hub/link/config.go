package link

import (
	"context"
	"time"

	"k8s.io/utils/clock"
)

const (
	// failAfter is the number of answers in a row with 502, 503 or 504, to core reads or requests for Leases, that make the
	// link failing.
	failAfter = 2
	// serveAfter is the number of other answers in a row that end it. It grows by one, up to serveAfterMax, each time the link is
	// failing again within Timing.FlapWindow.
	serveAfter, serveAfterMax = 2, 4
	// checkTimeout is how long a check may take.
	checkTimeout = 3 * time.Second
)

// Timing says how fast a link is judged. Standard has the values that keep the promises of the package comment.
type Timing struct {
	// Interval is the time between the starts of two probes while the link is up.
	Interval time.Duration
	// Timeout is how long a probe may take.
	Timeout time.Duration
	// DownInterval is the time between the starts of two probes while the link is down, shortened at random by up to a fifth so
	// that the nodes of a healed site do not probe in step.
	DownInterval time.Duration
	// ConfirmInterval is the time from the start of an answered probe to the next one while the link is down.
	ConfirmInterval time.Duration
	// MinGap is the least time between the starts of two probes, however urgent. It bounds how many probes failing traffic and
	// refused probes can cause.
	MinGap time.Duration
	// DownAfter is the number of failed probes in a row that take the link down.
	DownAfter int
	// UpAfter is the number of answered probes in a row that bring the link up again. From Unknown, one does.
	UpAfter int
	// UpAfterMax bounds UpAfter, which grows by one each time the link goes down within FlapWindow of having come up.
	UpAfterMax int
	// FlapWindow is the time that a link must stay up for its past to be forgotten.
	FlapWindow time.Duration
	// CheckInterval is the time between two checks while the link is failing, shortened at random by up to a fifth. A check that
	// was answered well is repeated after ConfirmInterval.
	CheckInterval time.Duration
}

// Standard is the timing of every hub (DESIGN §8: a silent cut is noticed 3 s after the first missing answer).
func Standard() Timing {
	return Timing{
		Interval: 2 * time.Second,
		// On a new connection that is three round trips and the server's work.
		Timeout:         1500 * time.Millisecond,
		DownInterval:    time.Second,
		ConfirmInterval: 500 * time.Millisecond,
		MinGap:          200 * time.Millisecond,
		DownAfter:       2,
		UpAfter:         2,
		UpAfterMax:      4, // about 3 s from healing to up
		FlapWindow:      time.Minute,
		CheckInterval:   3 * time.Second,
	}
}

// Config is what a Monitor needs.
type Config struct {
	Timing
	// Check, if not nil, makes one cheap core read, and reports what was answered to Monitor.CoreAnswered before it
	// returns. Without it the link is never failing. It must return soon after its context ends.
	Check func(ctx context.Context)
	// Probe asks the server one cheap question and returns nil if it answered. With fresh it must use a connection of
	// its own. It must return soon after its context ends.
	Probe func(ctx context.Context, fresh bool) error
	// WentDown is called by Run each time the link went down, after State has changed and before the next probe, with the error
	// of the last probe. It must not block.
	WentDown func(cause error)
	Clock    clock.Clock
}
