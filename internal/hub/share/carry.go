package share

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/run"
	"yurtcoordinator/internal/stream"
)

const (
	// maxPoolBytes bounds a batch in bytes; a single larger object still goes as one batch.
	maxPoolBytes = 1 << 20

	// idlePush is how often a carrier without changes pushes a bookmark. It moves the mirror's position on, and tells the mirror
	// that there still is a leader: it waits 30 s.
	idlePush = 10 * time.Second

	// hopelessPause is the pause after a refusal that waiting seldom changes.
	hopelessPause = 30 * time.Second
	// emptyPause is how often a carrier looks at an empty replica.
	emptyPause = 250 * time.Millisecond
	// validPause is how often a carrier checks a term that is not valid at the moment.
	validPause = 100 * time.Millisecond

	// fullAfter is how many conflicts over changes in a row make a carrier push everything.
	fullAfter = 4
)

var (
	// errRestarted says that the mirror has lost what it had.
	errRestarted = errors.New("the mirror began anew")
	// errNothing says that the replica is empty or has only a filler's content: the cloud's content, which a leader pushes, is
	// still to come.
	errNothing = fmt.Errorf("%w: the cloud has brought nothing to the replica", stream.ErrNotReady)
	// errMoved says that the mirror's position after a push is not the expected one.
	errMoved = errors.New("the mirror stands elsewhere")
)

// carrier brings one resource into the mirror.
type carrier struct {
	*duty
	resource Resource
	restart  bell // rung when the mirror has lost its position

	// Only run's goroutine uses these.
	full   bool // push everything next
	whole  bool // the last push was of everything
	events int  // the most that go into a batch

	mu    sync.Mutex
	state state
}

// state is the input for the Lease.
type state struct {
	// instance is the mirror's, and acked the position that it reported; 0 until it was asked.
	instance string
	acked    edge.Revision
	history  edge.History // that acked counts in
	// target is the replica's position when the carrier began.
	target edge.Revision
	// behind is since when a change waits for its acknowledgement, or the position is unknown; zero means that nothing waits.
	behind time.Time
	// ahead is since when the mirror was seen ahead of the replica; zero means that it is not.
	ahead time.Time
	// over says that the mirror was ahead for so long that its content must belong to another history.
	over bool
	// live is when the replica was last seen to be live.
	live time.Time
}

func newCarrier(d *duty, r Resource) *carrier {
	return &carrier{
		duty: d, resource: r, restart: newBell(), events: maxEvents, state: state{behind: d.config.Ends.Running()},
	}
}

func (c *carrier) carries(r Resource) bool {
	return c.resource.GVR == r.GVR && c.resource.Replica == r.Replica
}

// alter changes the state.
func (c *carrier) alter(f func(*state)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f(&c.state)
}

func (c *carrier) observe() state {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state
}

func (c *carrier) label() string { return c.resource.GVR.GroupResource().String() }

// run carries until ctx ends.
func (c *carrier) run(ctx context.Context) {
	again(ctx, "Pushing to the coordinator", c.metrics.failures.WithLabelValues(c.label()), c.rounds, c.waitAfter)
}

// rounds runs rounds while the term is valid. It returns the error of the first round that fails for another reason than that
// there is nothing to push yet.
func (c *carrier) rounds(ctx context.Context) (progress bool, err error) {
	for ctx.Err() == nil {
		if !c.term.Valid() {
			_ = run.Pause(ctx, validPause)
			continue
		}
		acknowledged, err := c.round(ctx)
		progress = progress || acknowledged
		c.alter(func(s *state) {
			if s.behind.IsZero() {
				s.behind = c.config.Ends.Running()
			}
		})
		if !errors.Is(err, stream.ErrNotReady) {
			return progress, err
		}
		_ = run.Pause(ctx, emptyPause)
	}
	return progress, context.Cause(ctx)
}

// waitAfter returns the pause after a failed round, given the number of failures in a row, and decides what the next round
// pushes.
func (c *carrier) waitAfter(err error, failures int) time.Duration {
	pause := c.config.pauseAfter(failures, backoffMax)
	first := failures == 1
	var why *refusal
	switch {
	case errors.Is(err, stream.ErrExpired):
		c.full = true
	case errors.Is(err, errRestarted), errors.Is(err, errMoved):
	case errors.As(err, &why):
		onlyFull := why.code == http.StatusUnprocessableEntity || why.code == http.StatusConflict && failures > fullAfter
		c.full = onlyFull && !c.whole
		switch {
		case why.retryAfter > 0:
			c.full = c.full || c.whole && why.code == http.StatusConflict // it will be believed if offered often enough
			return max(pause, why.retryAfter)
		case why.code == http.StatusConflict, why.code == http.StatusRequestTimeout:
		case why.code == http.StatusForbidden:
			return max(pause, time.Second) // another leads, or the mirror has not heard yet that we do
		case why.code == http.StatusRequestEntityTooLarge && !c.whole && c.events > 1:
			c.events /= 2
			return pause
		case why.code < 500 && !c.full:
			return hopelessPause/2 + c.config.Ends.Below(hopelessPause/2)
		default:
			return pause
		}
	default:
		return pause
	}
	if first {
		return 0
	}
	return pause
}

// round asks for the mirror's position and pushes from there until an error. It reports whether the mirror has acknowledged
// anything.
func (c *carrier) round(ctx context.Context) (progress bool, err error) {
	select {
	case <-c.restart: // it is asked now anyway
	default:
	}
	if c.resource.Replica.Position() == 0 || c.resource.Replica.History().IsFilled() {
		return false, errNothing // before the coordinator is asked: this may last as long as the cloud has no such resource
	}
	known, err := c.mirror.positions(ctx)
	if err != nil {
		return false, err
	}
	at, in := known.applied[c.resource.GVR], known.in(c.resource.GVR, c.resource.Replica.History())
	if at != 0 && in > c.resource.Replica.History() {
		c.config.Later(in)
		return false, fmt.Errorf("%w: the replica is not in history %s yet, which the mirror is in", stream.ErrNotReady, in)
	}
	if at == 0 || c.full || c.observe().over && at > c.resource.Replica.Position() || in != c.resource.Replica.History() {
		c.full, c.whole = false, true
		if at, in, err = c.everything(ctx); err != nil {
			c.alter(func(s *state) { s.instance, s.acked = "", 0 })
			return false, err
		}
		progress = true
	}
	c.whole = false
	w, err := c.resource.Replica.Watch(ctx, at)
	if err != nil {
		return progress, fmt.Errorf("follow the replica from the mirror's revision %s: %w", at, err)
	}
	target := c.resource.Replica.Position()
	if c.resource.Replica.History() != in {
		return progress, fmt.Errorf("%w: the replica is in another history now", stream.ErrExpired)
	}
	c.alter(func(s *state) {
		s.instance, s.acked, s.history, s.target, s.over = known.instance, at, in, target, false
		if at >= target {
			s.behind = time.Time{}
		}
	})
	following, cancel := context.WithCancel(ctx)
	var owned sync.WaitGroup
	defer owned.Wait()
	defer cancel()
	defer w.Close()
	b := &batches{
		carrier: c, at: at, posted: c.config.Ends.Running(), told: make(chan told), out: make(chan []stream.Event, 1),
		applied: make(chan edge.Revision), ended: make(chan error, 1),
	}
	owned.Go(func() { b.listen(following, w) })
	t := c.resource.Replica.Type()
	owned.Go(func() { b.ended <- c.mirror.changes(following, c.resource.GVR, in, at, t, b.out, b.applied) })
	err = b.run(following)
	return progress || b.progress, err
}

// everything pushes the replica's whole content, and returns the mirror's new position.
func (c *carrier) everything(ctx context.Context) (edge.Revision, edge.History, error) {
	s, err := c.resource.Replica.Snapshot(ctx)
	if err != nil {
		return 0, 0, fmt.Errorf("read the replica: %w", err)
	}
	if s.History.IsFilled() {
		return 0, 0, errNothing
	}
	at, err := c.mirror.everything(ctx, c.resource.GVR, s.History, s.Type, whole(s))
	if err != nil {
		return 0, 0, err
	}
	if at == 0 {
		return 0, 0, fmt.Errorf("%w: it acknowledged nothing", errMoved)
	}
	c.metrics.pushes.WithLabelValues(c.label(), "full").Inc()
	klog.FromContext(ctx).V(1).Info("Pushed everything to the coordinator", "objects", len(s.Objects), "applied", at.String())
	return at, s.History, nil
}

// whole returns a snapshot as the events of a full push.
func whole(s stream.Snapshot) []stream.Event {
	events := make([]stream.Event, 0, len(s.Objects)+1)
	for _, o := range s.Objects {
		events = append(events, stream.Event{Type: stream.Added, Object: o})
	}
	return append(events, stream.Event{Type: stream.InitialEventsEnd, Object: stream.Object{Revision: s.Revision}})
}

// batches is the state of a round's push of changes. Only run's goroutine uses it.
type batches struct {
	*carrier
	at       edge.Revision // where the mirror stands
	pending  []stream.Event
	arrived  time.Time     // when the first of pending came, or earlier
	bookmark edge.Revision // the replica's position after pending; 0 if it is that of the last event
	posting  edge.Revision // where the batch under way ends; 0 if none is
	posted   time.Time     // when the last batch was sent
	progress bool

	told    chan told
	out     chan []stream.Event // batches, on their way; capacity 1
	applied chan edge.Revision  // where the mirror stands, after each
	ended   chan error          // why the push ended; capacity 1
}

// told is one result of the replica's watch: events, or why it ended.
type told struct {
	events []stream.Event
	err    error
}

// listen passes on the results of the replica's watch.
func (b *batches) listen(ctx context.Context, w stream.Watch) {
	for {
		events, err := w.Next(ctx)
		select {
		case b.told <- told{slices.Clone(events), err}: // the slice is the watch's
		case <-ctx.Done():
			return
		}
		if err != nil {
			return
		}
	}
}

func (b *batches) run(ctx context.Context) error {
	timer := time.NewTimer(idlePush)
	defer timer.Stop()
	for {
		sent, err := b.post()
		if err != nil {
			return err
		}
		if sent {
			timer.Reset(batchTimeout)
		}
		if err := b.step(ctx, timer); err != nil {
			return err
		}
	}
}

// step waits for the next event and handles it. The timer bounds the batch under way, or is due for the next bookmark.
func (b *batches) step(ctx context.Context, timer *time.Timer) error {
	in := b.told
	if len(b.pending) >= b.events {
		in = nil // enough for now; the replica keeps the rest
	}
	select {
	case t := <-in:
		if t.err != nil {
			return fmt.Errorf("follow the replica: %w", t.err)
		}
		b.gather(t.events)
	case at := <-b.applied:
		timer.Reset(b.config.Ends.Until(b.posted.Add(idlePush)))
		return b.acknowledge(at)
	case err := <-b.ended:
		return err
	case <-timer.C:
		if b.posting != 0 {
			return fmt.Errorf("no acknowledgement of a push up to revision %d for %s", b.posting, batchTimeout)
		}
	case <-b.restart:
		return errRestarted
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

// gather appends the replica's events to the pending ones.
func (b *batches) gather(events []stream.Event) {
	if len(b.pending) == 0 {
		b.arrived = b.config.Ends.Running()
	}
	for _, e := range events {
		switch e.Type {
		case stream.Bookmark:
			b.bookmark = e.Object.Revision
		default:
			b.pending, b.bookmark = append(b.pending, e), 0
		}
	}
	if len(b.pending) > 0 {
		b.alter(func(s *state) {
			if s.behind.IsZero() {
				s.behind = b.arrived
			}
		})
	}
}

// post sends the next batch if it is due, and reports whether it did.
func (b *batches) post() (sent bool, err error) {
	idle := b.config.Ends.Since(b.posted) >= idlePush
	if b.posting != 0 || len(b.pending) == 0 && !idle {
		return false, nil
	}
	n, bytes := 0, 0
	for n < min(len(b.pending), b.events) && (n == 0 || bytes+len(b.pending[n].Object.Raw) <= maxPoolBytes) {
		bytes += len(b.pending[n].Object.Raw)
		n++
	}
	batch := append(make([]stream.Event, 0, n+1), b.pending[:n]...)
	b.pending = slices.Delete(b.pending, 0, n)
	end := b.at
	if n > 0 {
		end = batch[n-1].Object.Revision
	}
	if len(b.pending) == 0 {
		end, b.bookmark = max(end, b.bookmark), 0
	}
	batch = append(batch, stream.Event{Type: stream.Bookmark, Object: stream.Object{Revision: end}})
	if !b.term.Valid() {
		return false, errDeposed
	}
	select {
	case b.out <- batch:
	default:
		return false, fmt.Errorf("%w: it acknowledged what it was not sent", errMoved)
	}
	b.posting, b.posted = end, b.config.Ends.Running()
	return true, nil
}

// acknowledge records the mirror's position after a batch.
func (b *batches) acknowledge(at edge.Revision) error {
	if at != b.posting {
		return fmt.Errorf("%w: at revision %d after a push up to %d", errMoved, at, b.posting)
	}
	b.at, b.posting, b.progress = at, 0, true
	b.events = min(2*b.events, maxEvents)
	b.metrics.pushes.WithLabelValues(b.label(), "changes").Inc()
	b.alter(func(s *state) {
		s.acked = at
		switch {
		case len(b.pending) > 0:
			s.behind = b.arrived
		case s.acked >= s.target:
			s.behind = time.Time{}
		}
	})
	return nil
}
