package stream

import (
	"context"
	"errors"
	"fmt"
)

// ErrSink marks an error of the Sink, so that callers can tell it from one of the source.
var ErrSink = errors.New("the sink does not take it")

// Beginner takes a Snapshot and opens the watch that follows it in one step. Between two steps a source could be emptied and
// filled again, and the watch would not continue the Snapshot.
type Beginner interface {
	Begin(ctx context.Context) (Snapshot, Watch, error)
}

// Copy applies a watch's events to a sink until something goes wrong, and closes the watch. It always returns an error: one that
// is ErrSink comes from the sink, any other from the watch.
func Copy(ctx context.Context, w Watch, sink interface {
	Apply(ctx context.Context, events []Event) error
}) error {
	defer w.Close()
	for {
		events, err := w.Next(ctx)
		if err != nil {
			return err
		}
		if err := sink.Apply(ctx, events); err != nil {
			return fmt.Errorf("%w: %w", ErrSink, err)
		}
	}
}
