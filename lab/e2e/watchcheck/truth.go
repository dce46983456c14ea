package watchcheck

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Truth records the source itself. The comment of FactsOf says how a 410 is handled.
type Truth struct {
	*Recorder
	settle time.Duration
}

// NewTruth returns a Truth that has not begun. Its Config must have no WatchList: the truth begins with a list.
func NewTruth(c Config) (*Truth, error) {
	r, err := New(c)
	if err != nil {
		return nil, err
	}
	return &Truth{r, settleStep}, nil
}

// settleStep is how long Facts waits for the watch to catch up before it compares the recording with the list, once more if
// they differ. In a cluster at rest a watch lags by milliseconds.
const settleStep = 2 * time.Second

// Facts lists once more and returns what happened until then. While the list differs from what the watch delivered, Facts
// waits, until ctx ends. Nothing may be written meanwhile.
func (t *Truth) Facts(ctx context.Context) (*Facts, error) {
	if _, err := t.List(ctx); err != nil {
		return nil, fmt.Errorf("list the truth: %w", err)
	}
	for {
		// Even if everything fits: an object that came and went since the last event may still be under way.
		timer := time.NewTimer(t.settle)
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
		facts, err := FactsOf(t.History())
		if !errors.Is(err, errBehind) || ctx.Err() != nil {
			return facts, err
		}
	}
}
