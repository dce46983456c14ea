package follow

import (
	"context"
	"errors"
	"time"

	"yurtcoordinator/internal/live"
	"yurtcoordinator/internal/replica"
	"yurtcoordinator/internal/stream"
)

// viewWait is how long a request waits for a View to know what it has to before it is answered without. A hub that may not
// read Services never knows. offlineWait is the same where nobody can be asked: what is on the disk is known within it.
const viewWait, offlineWait = 5 * time.Second, time.Second

// View is what clients are shown of a resource instead of the replica.
type View struct {
	replica.View
	// Complete says that it knows what it has to; until then requests wait.
	Complete *live.Value[bool]
	// From is what it learns that from, one of the hub's own selections; what the cloud denies of it is not waited for.
	From Selection
	// Also are others that it learns from, which it can do without.
	Also []Selection
}

// await has a view learn what it must know, and returns when it does or can't be waited for any longer. Then everything is
// shown.
func (s *Set) await(ctx context.Context, v *View) {
	if v.Complete.Get() {
		return
	}
	wait := viewWait
	if m := s.find(v.From); m != nil {
		m.want()
		if m.feed.Status().Get().Denied {
			return // it will not be known soon, and no request is to wait for it
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
	_, _ = v.Complete.Wait(ctx, func(complete bool) bool { return complete }) // else: everything is shown
}

// Source is what the hub has of one of its own selections at the moment: another member once it becomes shared, or no
// longer is.
func (s *Set) Source(what Selection) stream.Beginner { return sourceOf{s, what} }

type sourceOf struct {
	set  *Set
	what Selection
}

// Begin implements stream.Beginner. It gives a replica a second to be complete: what is on the disk is read now. It fails
// with another error than ErrNotReady when the cloud denies it: no permission, or no such resource. Else service topology,
// and whoever asks for endpoints, would wait for it.
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
