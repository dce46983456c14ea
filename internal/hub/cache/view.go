package cache

import (
	"context"
	"errors"
	"time"

	"yurtcoordinator/internal/live"
	"yurtcoordinator/internal/replica"
	"yurtcoordinator/internal/stream"
)

// viewWait is how long a request waits for a View to be Complete before it is answered without the view. On a hub that may not
// read Services, a view never is. offlineWait is the same while nobody can be asked: by then the disk's content is known.
const viewWait, offlineWait = 5 * time.Second, time.Second

// View says how clients see a resource, instead of the replica as it is.
type View struct {
	replica.View
	// Complete says that the view knows what it must know; until then requests wait.
	Complete *live.Value[bool]
	// From is the selection, one of the hub's own, from which the view learns that. If the cloud denies it, nobody
	// waits.
	From Selection
	// Also lists other selections from which the view learns, but which it can do without.
	Also []Selection
}

// await makes a view learn what it must know, and returns when it knows, or when the wait is over. A view that is not Complete
// shows everything.
func (s *Set) await(ctx context.Context, v *View) {
	if v.Complete.Get() {
		return
	}
	wait := viewWait
	if m := s.find(v.From); m != nil {
		m.want()
		if m.feed.Status().Get().Denied {
			return // the view will not learn it soon, so no request waits
		}
		if s.unreachable(m) {
			wait = offlineWait
		}
	}
	for _, what := range v.Also {
		if m := s.find(what); m != nil {
			m.want()
		}
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	_, _ = v.Complete.Wait(ctx, func(complete bool) bool { return complete }) // on failure the view shows everything
}

// Source returns the content of one of the hub's own selections, from whatever member it has at each Begin: that member
// changes when the selection becomes shared or no longer is.
func (s *Set) Source(what Selection) stream.Beginner { return sourceOf{s, what} }

type sourceOf struct {
	set  *Set
	what Selection
}

// Begin implements stream.Beginner. It gives a replica a second to be complete, in which the disk is read. If the cloud denies
// the selection (no permission, or no such resource), the error is not ErrNotReady: otherwise service topology, and whoever
// asks for endpoints, would wait for it.
func (c sourceOf) Begin(ctx context.Context) (stream.Snapshot, stream.Watch, error) {
	select {
	case <-c.set.begun:
	case <-ctx.Done():
		return stream.Snapshot{}, nil, context.Cause(ctx)
	}
	m := c.set.find(c.what)
	if m == nil {
		return stream.Snapshot{}, nil, stream.ErrNotReady
	}
	if status := m.feed.Status().Get(); status.Denied && !m.Replica.Complete().Get() {
		return stream.Snapshot{}, nil, errors.New(status.Refused)
	}
	waiting, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_, _ = m.Replica.Complete().Wait(waiting, func(complete bool) bool { return complete })
	return m.Replica.Begin(ctx)
}
