package run

import (
	"context"
	"math/rand/v2"
	"time"
)

// Pause waits for d, or until ctx ends: then it returns the cause.
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

// Backoff says how long to pause after each of several failures in a row. It is used by one goroutine at a time.
type Backoff struct {
	// Min is the first pause, Max the longest. Both must be positive.
	Min, Max time.Duration

	last time.Duration // before chance; 0 after Reset
}

// Next returns the next pause: twice the one before, up to Max, of which chance takes up to half, so that programs which
// failed together do not try again together.
func (b *Backoff) Next() time.Duration {
	b.last = min(max(b.Min, 2*b.last), b.Max)
	return b.last/2 + rand.N(b.last/2+1)
}

// Reset makes the next pause the first one again.
func (b *Backoff) Reset() { b.last = 0 }
