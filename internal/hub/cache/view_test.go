package cache

import (
	"errors"
	"testing"
	"testing/synctest"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/stream"
)

// Without NodePools in the cloud, or without the right to read them, service topology must learn that none will come. Otherwise
// it would never be complete, and every request for endpoints would wait for it.
func TestWhatIsDeniedIsNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := runSet(t, Config{Always: []Selection{pool}})
		source := w.Source(pool)
		m, status := w.find(pool), &w.feeds["nodepools"][0].status
		if _, _, err := source.Begin(t.Context()); !errors.Is(err, stream.ErrNotReady) {
			t.Errorf("before anything was asked: %v", err)
		}
		status.Set(FeedStatus{Source: Cloud, Refused: "connection refused"})
		if _, _, err := source.Begin(t.Context()); !errors.Is(err, stream.ErrNotReady) {
			t.Errorf("a cloud that can't be reached: %v", err)
		}
		status.Set(FeedStatus{Source: Cloud, Refused: "no such resource", Denied: true})
		if _, _, err := source.Begin(t.Context()); err == nil || errors.Is(err, stream.ErrNotReady) {
			t.Errorf("denied: %v", err)
		}
		if err := m.Replica.Replace(t.Context(), stream.Snapshot{
			Type:     stream.Type{GroupVersionKind: pool.Resource.GroupVersion().WithKind("NodePool"), Encoding: stream.JSON},
			Revision: 7,
		}); err != nil {
			t.Fatal(err)
		}
		if s, _, err := source.Begin(t.Context()); err != nil || s.Revision != 7 || w.Position(pool) != 7 {
			t.Errorf("denied after there was something: %+v, %v", s, err)
		}
		if err := w.stop(); err != nil {
			t.Error(err)
		}
		if _, _, err := source.Begin(t.Context()); !errors.Is(err, stream.ErrNotReady) || w.Position(pool) != 0 {
			t.Errorf("after the end: %v", err)
		}
	})
}

// Position is the revision of one of the hub's own selections; 0 if there is none.
func (s *Set) Position(what Selection) edge.Revision {
	if m := s.find(what); m != nil {
		return m.Replica.Position()
	}
	return 0
}
