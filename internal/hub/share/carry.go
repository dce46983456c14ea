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

	// idlePush is the pause after which a carrier without changes pushes a bookmark, which moves the mirror's position on. The
	// mirror ends a push that brings nothing for 30 s.
	idlePush = 10 * time.Second

	// emptyPause is how often a carrier looks at an empty replica.
	emptyPause = 250 * time.Millisecond
	// validPause is how often a carrier checks a term that is not valid at the moment.
	validPause = 100 * time.Millisecond

	// fullAfter bounds the pushes of changes in a row that meet a conflict; after one more, a carrier pushes everything.
	fullAfter = 4
)

var (
	// errRestarted says that the mirror has lost what it had.
	errRestarted = errors.New("the mirror began anew")
	// errNothing says that the replica has nothing from the cloud yet. A filler's content does not count, because a leader pushes
	// only the cloud's.
	errNothing = fmt.Errorf("%w: the cloud has brought nothing to the replica", stream.ErrNotReady)
	// errIdle says that the replica has reported nothing for idlePush.
	errIdle = errors.New("nothing has changed")
)

// carrier brings one resource into the mirror.
type carrier struct {
	*duty
	resource Resource

	// Only run's goroutine uses these.
	full     bool // push everything next
	whole    bool // the last push was of everything
	events   int  // the most that go into a batch
	progress bool // the mirror has acknowledged something since the last failure

	mu    sync.Mutex
	state state
	stop  context.CancelCauseFunc // ends the push of changes; nil means that there was none yet
}

// state is the input for the Lease.
type state struct {
	// instance and acked are the mirror's instance and position by its last answer to the carrier. acked 0 means unknown.
	instance string
	acked    edge.Revision
	history  edge.History // that acked counts in
	// target is the replica's position when the carrier began.
	target edge.Revision
	// behind is since when a change has waited for its acknowledgement, or since when the mirror's position has been unknown.
	// Zero means that nothing waits.
	behind time.Time
	// ahead is the time since which the mirror is seen ahead of the replica; zero means that it is not ahead.
	ahead time.Time
	// over says that the mirror was ahead for so long that its content must belong to another history.
	over bool
	// live is when the replica was last seen to be live.
	live time.Time
}

func newCarrier(d *duty, r Resource) *carrier {
	return &carrier{
		duty: d, resource: r, events: maxEvents, state: state{behind: d.config.Ends.Running()},
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

// breakOffLocked ends the push of changes, because the mirror has lost its position.
func (c *carrier) breakOffLocked() {
	if c.stop != nil {
		c.stop(errRestarted)
	}
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

// rounds repeats the function round until it fails. A round that finds nothing to push yet (stream.ErrNotReady) is no failure.
// While the term is not valid, rounds waits.
func (c *carrier) rounds(ctx context.Context) (progress bool, err error) {
	c.progress = false
	for ctx.Err() == nil {
		if !c.term.Valid() {
			_ = run.Pause(ctx, validPause)
			continue
		}
		err := c.round(ctx)
		c.waits(c.config.Ends.Running())
		if !errors.Is(err, stream.ErrNotReady) {
			return c.progress, err
		}
		_ = run.Pause(ctx, emptyPause)
	}
	return c.progress, context.Cause(ctx)
}

// waitAfter returns the pause after a round that failed with err; failures is the number of failures in a row. It also decides
// whether the next round pushes everything, and how large its batches are.
func (c *carrier) waitAfter(err error, failures int) time.Duration {
	why := (*refusal)(nil)
	switch {
	case errors.Is(err, stream.ErrExpired):
		c.full = true
	case errors.Is(err, errRestarted), errors.Is(err, errMoved):
	case errors.As(err, &why):
		return c.waitAfterRefusal(why, failures)
	default:
		return c.config.backoff(failures)
	}
	if failures == 1 {
		return 0
	}
	return c.config.backoff(failures)
}

func (c *carrier) waitAfterRefusal(why *refusal, failures int) time.Duration {
	switch why.code {
	case http.StatusUnprocessableEntity:
		c.full = !c.whole
	case http.StatusConflict:
		c.full = !c.whole && failures > fullAfter || c.whole && why.retryAfter > 0 // it will be believed if offered often enough
	case http.StatusRequestEntityTooLarge:
		if !c.whole && c.events > 1 {
			c.events /= 2
			return c.config.backoff(failures)
		}
	}
	if c.full && why.retryAfter == 0 {
		return c.config.backoff(failures) // another push may be taken at once
	}
	return c.config.pauseAfter(why, failures)
}

// round asks for the mirror's position and pushes from there until an error.
func (c *carrier) round(ctx context.Context) error {
	mine := c.resource.Replica
	if mine.Position() == 0 || mine.History().IsFilled() {
		return errNothing // before the coordinator is asked: this may last as long as the cloud has no such resource
	}
	known, err := c.mirror.positions(ctx)
	if err != nil {
		return err
	}
	at := known.at[c.resource.GVR]
	if at.Revision != 0 && at.History > mine.History() {
		enters := c.config.Later(at.History)
		switch {
		case !at.History.Believable():
			c.full = true // no cloud reaches it: insist on ours
		case enters:
			return fmt.Errorf("%w: the replica is not in history %s yet, which the mirror is in", stream.ErrNotReady, at.History)
		default:
			return fmt.Errorf("the mirror is in history %s, which this hub does not enter now", at.History)
		}
	}
	if at.Revision == 0 || c.full || c.observe().over && at.Revision > mine.Position() || at.History != mine.History() {
		c.full, c.whole = false, true
		if at, err = c.everything(ctx); err != nil {
			c.alter(func(s *state) { s.instance, s.acked = "", 0 })
			return err
		}
		c.progress = true
	}
	c.whole = false
	w, err := c.watch(ctx, at)
	if err != nil {
		return err
	}
	f := c.mirror.follow(ctx, push{
		resource: c.resource.GVR, in: at.History, from: at.Revision.String(), term: c.term, of: mine.Type(),
	})
	defer f.end()
	target := mine.Position()
	c.alter(func(s *state) {
		s.instance, s.acked, s.history, s.target, s.over = known.instance, at.Revision, at.History, target, false
		if at.Revision >= target {
			s.behind = time.Time{}
		}
		c.stop = f.stop
	})
	for {
		at.Revision, err = c.changes(f, w, at.Revision)
		_ = w.Close()
		if err != nil {
			return err
		}
		if w, err = c.watch(f.ctx, at); err != nil {
			return err
		}
	}
}

// watch begins to follow the replica from the mirror's position.
func (c *carrier) watch(ctx context.Context, at edge.Moment) (stream.Watch, error) {
	w, err := c.resource.Replica.Watch(ctx, at.Revision)
	if err != nil {
		return nil, fmt.Errorf("follow the replica from the mirror's revision %s: %w", at.Revision, err)
	}
	if c.resource.Replica.History() != at.History {
		_ = w.Close()
		return nil, fmt.Errorf("%w: the replica is in another history now", stream.ErrExpired)
	}
	return w, nil
}

// everything pushes the replica's whole content, and returns the mirror's new position.
func (c *carrier) everything(ctx context.Context) (at edge.Moment, err error) {
	s, err := c.resource.Replica.Snapshot(ctx)
	if err != nil {
		return at, fmt.Errorf("read the replica: %w", err)
	}
	if s.History.IsFilled() {
		return at, errNothing
	}
	if err := c.mirror.everything(ctx, c.resource.GVR, s.History, c.term, s); err != nil {
		return at, err
	}
	c.metrics.pushes.WithLabelValues(c.label(), "full").Inc()
	klog.FromContext(ctx).V(1).Info("Pushed everything to the coordinator", "objects", len(s.Objects), "applied",
		s.Revision.String())
	return edge.Moment{History: s.History, Revision: s.Revision}, nil
}

// changes pushes the changes of the watch w in batches, until it fails or nothing has changed for idlePush. In the latter case it
// pushes a bookmark and returns the mirror's new position, where the caller begins a new watch.
func (c *carrier) changes(f *following, w stream.Watch, at edge.Revision) (edge.Revision, error) {
	posted, told := c.config.Ends.Running(), at // told is up to where the replica has told everything
	var late time.Time                          // since when the next changes may wait; zero means since they are told
	for {
		idle, cancel := context.WithTimeoutCause(f.ctx, c.config.Ends.Until(posted.Add(idlePush)), errIdle)
		events, err := w.Next(idle)
		cancel()
		switch {
		case f.ctx.Err() != nil:
			return at, context.Cause(f.ctx)
		case errors.Is(err, errIdle):
			return told, c.post(f, nil, told, time.Time{})
		case err != nil:
			return at, fmt.Errorf("follow the replica: %w", err)
		}
		events = slices.DeleteFunc(events, func(e stream.Event) bool {
			told = max(told, e.Object.Revision)
			return e.Type == stream.Bookmark
		})
		waiting := late
		if late.IsZero() {
			waiting = c.config.Ends.Running()
		}
		late = time.Time{}
		for len(events) > 0 {
			c.waits(waiting)
			n := c.fit(events)
			end, left := events[n-1].Object.Revision, waiting
			if n == len(events) {
				end, left = told, time.Time{}
			}
			posted = c.config.Ends.Running()
			if err := c.post(f, events[:n], end, left); err != nil {
				return at, err
			}
			at, events, late = end, events[n:], posted
		}
		if c.resource.Replica.Position() <= told {
			late = time.Time{} // nothing came during a push
		}
	}
}

// waits records that a change has been waiting since a time, unless an earlier time is already recorded.
func (c *carrier) waits(since time.Time) {
	c.alter(func(s *state) {
		if s.behind.IsZero() {
			s.behind = since
		}
	})
}

// fit returns how many of the events make a batch.
func (c *carrier) fit(events []stream.Event) (n int) {
	for bytes := 0; n < min(len(events), c.events); n++ {
		if bytes += len(events[n].Object.Raw); n > 0 && bytes > maxPoolBytes {
			break
		}
	}
	return n
}

// post pushes a batch of changes up to the revision end. The parameter left says since when later changes have waited; zero means
// that none wait.
func (c *carrier) post(f *following, events []stream.Event, end edge.Revision, left time.Time) error {
	if !c.term.Valid() {
		return errDeposed
	}
	bookmark := stream.Event{Type: stream.Bookmark, Object: stream.Object{Revision: end}}
	taken, err := f.send(append(slices.Clip(events), bookmark))
	if err != nil {
		return err
	}
	if taken.Applied != end.String() {
		return fmt.Errorf("%w: at revision %q after a push up to %s", errMoved, taken.Applied, end)
	}
	c.progress, c.events = true, min(2*c.events, maxEvents)
	c.metrics.pushes.WithLabelValues(c.label(), "changes").Inc()
	c.alter(func(s *state) {
		if s.acked = end; !left.IsZero() || s.acked >= s.target {
			s.behind = left
		}
	})
	return nil
}
