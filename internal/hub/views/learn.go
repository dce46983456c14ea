package views

import (
	"context"
	"errors"
	"io"
	"maps"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"yurtcoordinator/internal/ends"
	"yurtcoordinator/internal/hub/cache"
	"yurtcoordinator/internal/live"
	"yurtcoordinator/internal/run"
	"yurtcoordinator/internal/stream"
)

// pauseMin and pauseMax bound the pause after a failure. pauseReady is the longest pause while a source has no content yet. It is
// short, because a client may be waiting for the content.
const (
	pauseMin   = 100 * time.Millisecond
	pauseReady = 400 * time.Millisecond
	pauseMax   = 10 * time.Second
)

// Pupil receives what a source has.
type Pupil interface {
	// Replace and Apply work as those of a stream.Sink.
	Replace(all stream.Snapshot)
	Apply(ctx context.Context, events []stream.Event) error
	// Failed reports that the source gave no Snapshot.
	Failed(ctx context.Context, err error)
}

// Learn passes a source's content, and then each change, to a pupil until ctx ends. After any failure Learn passes the whole
// content again, which costs little, because the source is in this hub.
func Learn(ctx context.Context, chance ends.Chance, what cache.Selection, source stream.Beginner, p Pupil) {
	logger := klog.FromContext(ctx)
	pause := run.Backoff{Min: pauseMin, Max: pauseMax}
	for ctx.Err() == nil {
		all, watch, err := source.Begin(ctx)
		if err == nil {
			pause.Reset()
			p.Replace(all)
			err = stream.Copy(ctx, watch, p)
		} else {
			p.Failed(ctx, err)
		}
		wait := pause.Next(chance.Float64())
		switch {
		case errors.Is(err, stream.ErrNotReady):
			wait = min(wait, pauseReady)
		case ctx.Err() == nil && !errors.Is(err, io.EOF) && !errors.Is(err, stream.ErrExpired):
			logger.V(2).Info("What a view follows is not told now, trying again", "what", what, "err", err)
		}
		_ = run.Pause(ctx, wait) // the loop ends with ctx
	}
}

// learnedServices holds the Services that have a topology.
type learnedServices struct {
	// version grows with each change that may alter what clients see. It is 0 until all Services are known.
	version *live.Value[uint64]

	mu       sync.Mutex
	near     map[stream.Key]scope // only Services with a topology
	encoding stream.Encoding
}

func newServices() *learnedServices {
	return &learnedServices{version: live.NewValue[uint64](0), near: map[stream.Key]scope{}}
}

// all returns a copy of the Services that have a topology.
func (s *learnedServices) all() map[stream.Key]scope {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.near)
}

func (s *learnedServices) Replace(snapshot stream.Snapshot) {
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
	if changed || len(s.near) != len(old) {
		s.version.Set(s.version.Get() + 1)
	}
}

// Apply records changes.
func (s *learnedServices) Apply(_ context.Context, events []stream.Event) error {
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
	}
	if changed {
		s.version.Set(s.version.Get() + 1)
	}
	return nil
}

// scopeLocked records a Service and returns its scope. A Service that can't be read keeps its old scope.
func (s *learnedServices) scopeLocked(o stream.Object, old map[stream.Key]scope) scope {
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

func (s *learnedServices) Failed(context.Context, error) {} // nothing is served until all Services are known
