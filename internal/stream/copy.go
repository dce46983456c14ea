package stream

import (
	"context"
	"errors"
	"fmt"
)

// ErrSink marks what a Sink returned, so that a copy's owner can tell it from what its Source returned.
var ErrSink = errors.New("the sink does not take it")

// Beginner is a Source that reads everything and opens the watch of what follows in one act. Copy asks for it: a source
// that is emptied and filled again between the two would otherwise give the content of one history and the changes of
// another.
type Beginner interface {
	Begin(ctx context.Context) (Snapshot, Watch, error)
}

// CopyConfig says how Copy goes on.
type CopyConfig struct {
	// Anew makes the first attempt read everything even if the sink has a position: what the sink has is not known to come
	// from this source's history.
	Anew bool
	// Opened, if not nil, is called whenever a watch has been opened, before anything is read from it.
	Opened func()
	// Ended is called with the outcome of each attempt but one that ctx ended. It logs, and pauses before the next attempt.
	// An error ends Copy. Required.
	Ended func(context.Context, Attempt) error
}

// Attempt is the outcome of reading a source until something goes wrong.
type Attempt struct {
	// Listed says that it began with everything; else it resumed at the sink's position.
	Listed bool
	// Progress says that the sink has taken something.
	Progress bool
	// Err is why it ended, never nil: io.EOF if a watch ended orderly.
	Err error
}

// anew says that the next attempt must read everything.
func (a Attempt) anew() bool {
	switch {
	case a.Listed && !a.Progress: // the sink has nothing of this source yet
		return true
	case errors.Is(a.Err, ErrSink): // the same change would be refused again
		return true
	default:
		return errors.Is(a.Err, ErrExpired)
	}
}

// Copy keeps a sink equal to a source, and returns the cause of ctx or the error of c.Ended. It resumes at the sink's
// position whenever it can: it reads everything only if the sink has nothing, if the source no longer remembers what came
// after the sink's position, if the sink has refused something, or if c.Anew asks for it.
func Copy(ctx context.Context, source Source, sink Sink, c CopyConfig) error {
	anew := c.Anew
	for ctx.Err() == nil {
		a := Attempt{Listed: anew || sink.Position() == 0}
		if a.Listed {
			a.Progress, a.Err = list(ctx, source, sink, c.Opened)
		} else {
			a.Progress, a.Err = Resume(ctx, source, sink, c.Opened)
		}
		if ctx.Err() != nil {
			break
		}
		anew = a.anew()
		if err := c.Ended(ctx, a); err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}

// list reads everything, then changes.
func list(ctx context.Context, source Source, sink Sink, opened func()) (progress bool, err error) {
	var s Snapshot
	var w Watch
	if b, ok := source.(Beginner); ok {
		if s, w, err = b.Begin(ctx); err == nil {
			defer w.Close()
		}
	} else {
		s, err = source.Snapshot(ctx)
	}
	if err != nil {
		return false, err
	}
	if err := sink.Replace(ctx, s); err != nil {
		return false, fmt.Errorf("%w: %w", ErrSink, err)
	}
	if w == nil {
		_, err = Resume(ctx, source, sink, opened)
	} else {
		_, err = feed(ctx, w, sink, opened)
	}
	return true, err
}

// Resume makes one attempt: it watches the source from the sink's position, which must not be 0, and applies what it is
// told until something goes wrong. opened may be nil; it is called when the watch is open. progress says that the sink has
// taken something. Errors of the sink are ErrSink, all others are the source's.
func Resume(ctx context.Context, source Source, sink Sink, opened func()) (progress bool, err error) {
	w, err := source.Watch(ctx, sink.Position())
	if err != nil {
		return false, err
	}
	defer w.Close()
	return feed(ctx, w, sink, opened)
}

// feed applies what a watch tells until something goes wrong.
func feed(ctx context.Context, w Watch, sink Sink, opened func()) (progress bool, err error) {
	if opened != nil {
		opened()
	}
	for {
		events, err := w.Next(ctx)
		if err != nil {
			return progress, err
		}
		if err := sink.Apply(ctx, events); err != nil {
			return progress, fmt.Errorf("%w: %w", ErrSink, err)
		}
		progress = true
	}
}
