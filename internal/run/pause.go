package run

import (
	"context"

	"time"
)

// Pause waits for d and returns nil. If ctx ends first, it returns the cause.
func Pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Backoff says how long to pause after each of several failures in a row. One goroutine at a time uses it.
type Backoff struct {
	// Min is the first pause, Max the longest. Both must be positive.
	Min, Max time.Duration

	failures int
}

// Next returns the next pause: twice the pause before, up to Max, less a random part of up to half. The parameter chance is a
// random number in [0, 1). The random part keeps programs that failed together from retrying together.
func (b *Backoff) Next(chance float64) time.Duration {
	b.failures++
	return b.After(b.failures, chance)
}

// After returns the pause after a number of failures, for a chance in [0, 1). It does not change the Backoff. It is for state
// machines that count failures themselves.
func (b Backoff) After(failures int, chance float64) time.Duration {
	longest := b.Max
	if shift := max(failures-1, 0); shift < 63 && b.Min <= b.Max>>shift {
		longest = b.Min << shift
	}
	return longest/2 + time.Duration(chance*float64(longest/2))
}

// Reset makes the next pause the first one again.
func (b *Backoff) Reset() { b.failures = 0 }
