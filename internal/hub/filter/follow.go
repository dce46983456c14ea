package filter

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/live"
	"yurtcoordinator/internal/stream"
)

// pauseMin and pauseMax bound the pause after a failure. pauseReady bounds it while a source has nothing yet: the sources
// are this hub's own replicas, which are not fed before a client asks, and then that client waits for this.
const (
	pauseMin   = 100 * time.Millisecond
	pauseReady = 400 * time.Millisecond
	pauseMax   = 10 * time.Second
)

// pupil learns what a source tells.
type pupil interface {
	replace(s stream.Snapshot)
	apply(t stream.Type, events []stream.Event)
	// failed is told that there is no Snapshot.
	failed(ctx context.Context, err error)
}

// follow keeps a pupil taught until ctx ends.
func follow(ctx context.Context, name string, source stream.Source, p pupil) {
	logger := klog.FromContext(ctx)
	var t stream.Type
	var position edge.Revision
	wait := pauseMin
	for ctx.Err() == nil {
		before := position
		var err error
		if position == 0 {
			var s stream.Snapshot
			if s, err = source.Snapshot(ctx); err == nil {
				p.replace(s)
				t, position = s.Type, s.Revision
			} else {
				p.failed(ctx, err)
			}
		}
		if err == nil {
			position, err = watch(ctx, t, source, position, p)
		}
		if position != before && position != 0 {
			wait = pauseMin
		}
		switch {
		case errors.Is(err, stream.ErrExpired):
			position = 0
		case err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, stream.ErrNotReady) && ctx.Err() == nil:
			logger.V(2).Info("What service topology follows is not told now, trying again", "what", name, "err", err)
		}
		if !pause(ctx, wait/2+rand.N(wait/2)) {
			return
		}
		wait = min(2*wait, pauseMax)
		if errors.Is(err, stream.ErrNotReady) {
			wait = min(wait, pauseReady)
		}
	}
}

func watch(ctx context.Context, t stream.Type, source stream.Source, after edge.Revision, p pupil) (edge.Revision, error) {
	w, err := source.Watch(ctx, after)
	if err != nil {
		return after, err
	}
	defer w.Close()
	for {
		events, err := w.Next(ctx)
		if err != nil {
			return after, err
		}
		p.apply(t, events)
		after = events[len(events)-1].Object.Revision
	}
}

// pause waits, and reports whether ctx still lives.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// services knows which Services have a topology.
type services struct {
	// version counts what may be a change in effect; 0 before all Services are known.
	version *live.Value[uint64]

	mu       sync.Mutex
	near     map[stream.Key]rule // those with a scope
	position edge.Revision
}

func newServices() *services {
	return &services{version: live.NewValue[uint64](0), near: map[stream.Key]rule{}}
}

// rules returns a copy of what is known.
func (s *services) rules() told[map[stream.Key]rule] {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make(map[stream.Key]rule, len(s.near))
	for key, r := range s.near {
		all[key] = r
	}
	return told[map[stream.Key]rule]{all, s.position}
}

func (s *services) replace(snapshot stream.Snapshot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.near
	s.near = make(map[stream.Key]rule, len(old))
	changed := s.version.Get() == 0
	for _, o := range snapshot.Objects {
		if s.scopeLocked(snapshot.Type.Encoding, o, old) != old[o.Key].scope {
			changed = true
		}
	}
	s.position = snapshot.Revision
	if changed || len(s.near) != len(old) {
		s.version.Set(s.version.Get() + 1)
	}
}

func (s *services) apply(t stream.Type, events []stream.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	changed := false
	for _, e := range events {
		before := s.near[e.Object.Key].scope
		switch e.Type {
		case stream.Added, stream.Modified:
			changed = s.scopeLocked(t.Encoding, e.Object, s.near) != before || changed
		case stream.Deleted:
			delete(s.near, e.Object.Key)
			changed = before != everywhere || changed
		default:
		}
		s.position = max(s.position, e.Object.Revision)
	}
	if changed {
		s.version.Set(s.version.Get() + 1)
	}
}

// scopeLocked takes a Service in. One that cannot be read keeps the scope that it had.
func (s *services) scopeLocked(e stream.Encoding, o stream.Object, old map[stream.Key]rule) scope {
	m, err := stream.ScanMeta(e, o.Raw)
	if err != nil {
		if r, ok := old[o.Key]; ok {
			s.near[o.Key] = r
		}
		return old[o.Key].scope
	}
	r := rule{scopeOf(m.Annotations[annotation]), o.Revision}
	if r.scope == everywhere {
		delete(s.near, o.Key)
	} else {
		s.near[o.Key] = r
	}
	return r.scope
}

func (s *services) failed(context.Context, error) {} // until all are known nothing is served
