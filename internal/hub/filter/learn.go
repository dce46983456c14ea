package filter

import (
	"context"
	"errors"
	"io"
	"maps"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/hub/follow"
	"yurtcoordinator/internal/live"
	"yurtcoordinator/internal/run"
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
	stream.Sink
	// failed is told that there is no Snapshot.
	failed(ctx context.Context, err error)
}

// learn keeps a pupil taught until ctx ends.
func learn(ctx context.Context, what follow.Selection, source stream.Source, p pupil) {
	logger := klog.FromContext(ctx)
	pause := run.Backoff{Min: pauseMin, Max: pauseMax}
	// It ends with ctx only, for what is called when an attempt has ended returns no other error.
	_ = stream.Copy(ctx, source, p, stream.CopyConfig{Ended: func(ctx context.Context, a stream.Attempt) error {
		if a.Progress {
			pause.Reset()
		}
		wait := pause.Next()
		switch notReady := errors.Is(a.Err, stream.ErrNotReady); {
		case notReady:
			wait = min(wait, pauseReady)
		case !errors.Is(a.Err, io.EOF) && !errors.Is(a.Err, stream.ErrExpired):
			logger.V(2).Info("What service topology follows is not told now, trying again", "what", what, "err", a.Err)
		}
		if a.Listed && !a.Progress {
			p.failed(ctx, a.Err)
		}
		return run.Pause(ctx, wait)
	}})
}

// services knows which Services have a topology.
type services struct {
	// version counts what may be a change in effect; 0 before all Services are known.
	version *live.Value[uint64]

	mu       sync.Mutex
	near     map[stream.Key]scope // those with a scope
	encoding stream.Encoding
	position edge.Revision
}

func newServices() *services {
	return &services{version: live.NewValue[uint64](0), near: map[stream.Key]scope{}}
}

// all returns a copy of what is known.
func (s *services) all() map[stream.Key]scope {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.near)
}

// Position implements stream.Sink.
func (s *services) Position() edge.Revision {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.position
}

// Replace implements stream.Sink.
func (s *services) Replace(_ context.Context, snapshot stream.Snapshot) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.near
	s.near, s.encoding = make(map[stream.Key]scope, len(old)), snapshot.Type.Encoding
	changed := s.version.Get() == 0
	for _, o := range snapshot.Objects {
		if s.scopeLocked(o, old) != old[o.Key] {
			changed = true
		}
	}
	s.position = snapshot.Revision
	if changed || len(s.near) != len(old) {
		s.version.Set(s.version.Get() + 1)
	}
	return nil
}

// Apply implements stream.Sink.
func (s *services) Apply(_ context.Context, events []stream.Event) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	changed := false
	for _, e := range events {
		before := s.near[e.Object.Key]
		switch e.Type {
		case stream.Added, stream.Modified:
			changed = s.scopeLocked(e.Object, s.near) != before || changed
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
	return nil
}

// scopeLocked takes a Service in. One that cannot be read keeps the scope that it had.
func (s *services) scopeLocked(o stream.Object, old map[stream.Key]scope) scope {
	m, err := stream.ScanMeta(s.encoding, o.Raw)
	if err != nil {
		if r, ok := old[o.Key]; ok {
			s.near[o.Key] = r
		}
		return old[o.Key]
	}
	near := scopeOf(m.Annotations[annotation])
	if near == everywhere {
		delete(s.near, o.Key)
	} else {
		s.near[o.Key] = near
	}
	return near
}

func (s *services) failed(context.Context, error) {} // until all are known nothing is served
