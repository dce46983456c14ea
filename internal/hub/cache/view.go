package cache

import (
	"context"
	"errors"
	"time"

	"yurtcoordinator/internal/live"
	"yurtcoordinator/internal/replica"
	"yurtcoordinator/internal/stream"
)

// viewWait is how long a request waits for a View to be Complete; then the hub answers it without the view. On a hub that may not
// read Services, a view is never complete. offlineWait replaces viewWait while no source can answer. It is enough for the hub to
// read its disk.
const viewWait, offlineWait = 5 * time.Second, time.Second

// View is how clients see a resource, where that differs from the replica.
type View struct {
	replica.View
	// Complete says that the view has the content it needs; until then requests wait.
	Complete *live.Value[bool]
	// From is the hub's own selection that the view needs. If the cloud denies that selection, no request waits.
	From Selection
	// Also lists selections that the view uses, but can do without.
	Also []Selection
}

// await requests the selections that a view needs, and returns when the view is Complete or the wait is over. A view that is not
// Complete shows everything.
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

// Source returns the content of one of the hub's own selections. Each Begin uses the selection's present member, which changes
// when the selection becomes shared or stops being shared.
func (s *Set) Source(what Selection) stream.Beginner { return sourceOf{s, what} }

type sourceOf struct {
	set  *Set
	what Selection
}

// Begin implements stream.Beginner. It waits up to a second for the replica to be complete, which is enough to read the disk. A
// caller waits for the selection after stream.ErrNotReady, so Begin returns another error if the cloud denies the selection.
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
