package replica

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/stream"
)

// maxBatch bounds the events that one call of Next returns, and so the memory of a watcher far behind.
const maxBatch = 512

var errWatchClosed = errors.New("the watch is closed")

// cursor is a place in the history.
type cursor struct {
	replica *Replica
	closed  chan struct{}
	once    sync.Once

	// Of the goroutine that reads.
	next       uint64        // number of the next change to tell
	told       edge.Revision // everything up to it has been told
	generation uint64        // of the history that next is a number of
	batch      []change
}

// Watch implements stream.Source. It sends a bookmark when Position has moved without an event. It fails with ErrNotReady while
// the replica is incomplete.
func (r *Replica) Watch(ctx context.Context, after edge.Revision) (stream.Watch, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if after == 0 {
		return nil, fmt.Errorf("watch %s: a watch must begin after a revision", r.config.Resource.GroupResource())
	}
	c, err := r.cursor(after)
	if err != nil {
		return nil, fmt.Errorf("watch %s after %d: %w", r.config.Resource.GroupResource(), after, err)
	}
	return &watch{cursor: c}, nil
}

// cursor returns a cursor after a revision.
func (r *Replica) cursor(after edge.Revision) (*cursor, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.cursorLocked(after)
}

// Begin implements stream.Beginner. The watch ends with ErrExpired if the replica is emptied after the Snapshot was taken.
func (r *Replica) Begin(ctx context.Context) (stream.Snapshot, stream.Watch, error) {
	if ctx.Err() != nil {
		return stream.Snapshot{}, nil, context.Cause(ctx)
	}
	f, c, err := r.begin()
	if err != nil {
		return stream.Snapshot{}, nil, err
	}
	return f.snapshot(), &watch{cursor: c}, nil
}

// begin returns the content and a cursor after it.
func (r *Replica) begin() (*frozen, *cursor, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f, err := r.freezeLocked()
	if err != nil {
		return nil, nil, err
	}
	c, err := r.cursorLocked(f.revision)
	return f, c, err
}

func (r *Replica) cursorLocked(after edge.Revision) (*cursor, error) {
	if r.position == 0 {
		return nil, stream.ErrNotReady
	}
	n, ok := r.history.after(after)
	if after > r.position && after <= r.before {
		// The revision belongs to an earlier history, or lies in the future of this one. In the first case waiting for it would
		// mean silence; to list again is right in both.
		ok = false
	}
	if !ok {
		r.expired++
		return nil, fmt.Errorf("%w: it begins after %d", stream.ErrExpired, r.history.floor)
	}
	r.watchers++
	return &cursor{replica: r, closed: make(chan struct{}), next: n, told: after, generation: r.generation}, nil
}

// close may be called more than once, and while wait is under way.
func (c *cursor) close() {
	c.once.Do(func() {
		close(c.closed)
		c.replica.mu.Lock()
		defer c.replica.mu.Unlock()
		c.replica.watchers--
	})
}

// take returns the next changes, at most maxBatch, and the revision up to which the client then knows everything. That revision
// is higher than the last change's if the replica has moved on without changes. If there is nothing new, take returns no changes,
// the same revision as before, and a channel that is closed when there may be more. The slice is valid until the next call.
func (c *cursor) take() (changes []change, told edge.Revision, more <-chan struct{}, err error) {
	r := c.replica
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, c.told, nil, io.EOF
	}
	if err := c.syncLocked(); err != nil {
		r.expired++
		return nil, c.told, nil, err
	}
	clear(c.batch) // so that a watcher at rest holds no objects
	c.batch = c.batch[:0]
	for ; c.next < r.history.next && len(c.batch) < maxBatch; c.next++ {
		if change := r.history.at(c.next); change.Object.Revision > c.told {
			c.batch = append(c.batch, *change)
			c.told = change.Object.Revision
		}
	}
	switch {
	case c.next < r.history.next: // there is more, told is right
	case r.position > c.told:
		c.told = r.position
	case len(c.batch) == 0:
		if r.changed == nil {
			r.changed = make(chan struct{})
		}
		more = r.changed
	}
	return c.batch, c.told, more, nil
}

// syncLocked finds the cursor's place when the history has moved on under it, or fails with ErrExpired.
func (c *cursor) syncLocked() error {
	r := c.replica
	if c.next >= r.history.first && c.generation == r.generation {
		return nil
	}
	if r.position == 0 || r.diverged > c.generation {
		return fmt.Errorf("%w: it has begun anew", stream.ErrExpired)
	}
	n, ok := r.history.after(c.told)
	if !ok {
		return fmt.Errorf("%w: told up to %d, it begins after %d", stream.ErrExpired, c.told, r.history.floor)
	}
	c.next, c.generation = n, r.generation
	return nil
}

// watch is a cursor as a stream.Watch.
type watch struct {
	cursor *cursor
	events []stream.Event
	err    error // by which it is over
}

// Next implements stream.Watch. It returns at most 512 events at once.
func (w *watch) Next(ctx context.Context) (events []stream.Event, err error) {
	if w.err != nil {
		return nil, w.err
	}
	defer func() { w.err = err }()
	for {
		if err := w.ended(ctx); err != nil {
			return nil, err
		}
		before := w.cursor.told
		changes, told, more, err := w.cursor.take()
		if err != nil {
			return nil, err
		}
		clear(w.events)
		w.events = w.events[:0]
		for _, c := range changes {
			w.events = append(w.events, c.Event)
			before = c.Object.Revision
		}
		if told > before {
			w.events = append(w.events, stream.Event{Type: stream.Bookmark, Object: stream.Object{Revision: told}})
		}
		if len(w.events) > 0 {
			return w.events, nil
		}
		select {
		case <-more:
		case <-w.cursor.closed:
		case <-ctx.Done():
		}
	}
}

func (w *watch) ended(ctx context.Context) error {
	select {
	case <-w.cursor.closed:
		return errWatchClosed
	case <-ctx.Done():
		return context.Cause(ctx)
	default:
		return nil
	}
}

// Close implements stream.Watch.
func (w *watch) Close() error {
	w.cursor.close()
	return nil
}
