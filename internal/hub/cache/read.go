package cache

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/stream"
)

// mirrorListTimeout bounds a list from the coordinator. On a LAN of 100 Mbit/s it is enough for some 150 MB. A leader with an
// empty replica waits for this list before it lists the cloud.
const mirrorListTimeout = 15 * time.Second

// quietTime is how long a resumed watch without bookmarks must be quiet to count as caught up. API servers send all remembered
// changes at once, but do not say which one was the last.
const quietTime = 500 * time.Millisecond

// replayTime is the time after which a watch that is never quiet counts as caught up. A server replays old changes from memory,
// all at once, so what comes later is new. Without this bound, clients of a resource that changes all the time would wait for a
// bookmark, which comes once a minute.
const replayTime = 2 * time.Second

// behindTime is how long a watch of a mirror that is behind the sink may stay silent, if the cloud can be asked instead. A
// leader's push, which ends the silence, takes milliseconds.
const behindTime = 10 * time.Second

// errBehind says that a mirror is behind the sink and does not catch up. It wraps stream.ErrExpired, because for a while the
// mirror is of no use for a resume.
var errBehind = fmt.Errorf("the mirror is behind what is here: %w", stream.ErrExpired)

// reading is an Attempt under way. It reports to the Feed: first Opened and CaughtUp, if it is a watch, and last Fetched or
// Ended. It wraps its Source and its Sink, so that it sees all that passes between them.
type reading struct {
	Attempt
	stream.Source
	stream.Sink
	feed    *Feed
	cancel  context.CancelFunc
	told    chan Happening
	content stream.Snapshot // of a list, once it is Fetched
	pages   *pages          // of a list that is read in pages

	ended                 Ended
	began                 time.Time
	caughtUp              func()
	quiet, replayed, late *time.Timer
	behind                bool // the source is behind the sink, and another can be asked
}

// over reports whether a reading sends nothing after what.
func over(what Happening) bool {
	switch what.(type) {
	case Fetched, Ended:
		return true
	}
	return false
}

// list reads everything from the source.
func (r *reading) list(ctx context.Context) Happening {
	if r.From == Coordinator {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, mirrorListTimeout)
		defer cancel()
	}
	var s stream.Snapshot
	var err error
	ended := Ended{}
	if r.pages == nil {
		s, err = r.Snapshot(ctx)
	} else {
		had := r.pages.count
		err = r.pages.read(ctx, r.feed.config.Pages, &r.feed.filling)
		s, ended.Pages, ended.Progress = r.pages.content, r.pages.count, r.pages.count > had
	}
	if err != nil {
		ended.Err = fmt.Errorf("list %s at the %s: %w", r.feed.config.Resource.Resource, r.From, err)
		return ended
	}
	if r.From == Cloud {
		s.History = r.History
	}
	r.content = s
	f := Fetched{Revision: s.Revision, History: s.History, Have: r.feed.config.Sink.Stats().Objects}
	f.Lost = f.Have
	for _, o := range s.Objects {
		if had, has := r.feed.config.Sink.Get(o.Key); has {
			f.Lost--
			f.WentBack = f.WentBack || o.Revision < had.Revision
		}
	}
	return f
}

// resume watches the source from the sink's position until something goes wrong.
func (r *reading) resume(ctx context.Context) Happening {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r.caughtUp = sync.OnceFunc(func() { r.told <- CaughtUp{} })
	after := r.Position()
	resource := r.feed.config.Resource.Resource
	w, err := r.Watch(ctx, after)
	if err != nil {
		r.ended.Err = fmt.Errorf("watch %s after revision %s: %w", resource, after, err)
		return r.ended
	}
	r.open(cancel)
	err = stream.Copy(ctx, w, r)
	r.quiet.Stop()
	r.replayed.Stop()
	r.late.Stop()
	r.ended.Err, r.ended.Lived = fmt.Errorf("watch %s: %w", resource, err), r.feed.config.Ends.Since(r.began)
	return r.ended
}

// Watch opens the source's watch after a revision.
func (r *reading) Watch(ctx context.Context, after edge.Revision) (stream.Watch, error) {
	if r.From == Cloud {
		return r.Source.Watch(ctx, after)
	}
	w, at, err := r.feed.config.Coordinator.WatchIn(ctx, r.feed.config.Sink.History(), after)
	r.behind = at != 0 && at < after && r.Choice
	return w, err
}

// open records that the watch is open, and starts its timers.
func (r *reading) open(cancel context.CancelCauseFunc) {
	r.ended.Opened, r.began = true, r.feed.config.Ends.Running()
	r.told <- Opened{}
	r.quiet = time.AfterFunc(quietTime, r.caughtUp)
	r.replayed = time.AfterFunc(replayTime, r.caughtUp)
	r.late = time.AfterFunc(behindTime, func() { cancel(errBehind) })
	if !r.behind {
		r.late.Stop()
	}
}

// Apply applies the watch's events to the sink.
func (r *reading) Apply(ctx context.Context, events []stream.Event) error {
	r.ended.Told = true
	r.quiet.Stop()
	r.late.Stop()
	if err := r.Sink.Apply(ctx, events); err != nil {
		return err
	}
	r.feed.remember(r.From, events)
	if slices.ContainsFunc(events, func(e stream.Event) bool { return e.Type == stream.Bookmark }) {
		r.caughtUp()
	} else {
		r.quiet.Reset(quietTime)
	}
	return nil
}
