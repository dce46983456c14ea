package hub

import (
	"errors"
	"testing"
	"testing/synctest"

	"yurtcoordinator/internal/hub/feed"
	"yurtcoordinator/internal/live"
	"yurtcoordinator/internal/replica"
	"yurtcoordinator/internal/stream"
)

// Without NodePools in the cloud, or without the right to read them, it must be known that there will be none: service
// topology would never be complete, and every request for endpoints would wait for it.
func TestNodePoolsThatAreDeniedAreNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, err := replica.New(replica.Config{Resource: nodePools})
		if err != nil {
			t.Fatal(err)
		}
		status := live.NewValue(feed.Status{})
		pools := poolCopy{r, status}
		if _, err := pools.Snapshot(t.Context()); !errors.Is(err, stream.ErrNotReady) {
			t.Errorf("before anything was asked: %v", err)
		}
		status.Set(feed.Status{Source: feed.Cloud, Refused: "connection refused"})
		if _, err := pools.Snapshot(t.Context()); !errors.Is(err, stream.ErrNotReady) {
			t.Errorf("a cloud that can't be reached: %v", err)
		}
		status.Set(feed.Status{Source: feed.Cloud, Refused: "no such resource", Denied: true})
		if _, err := pools.Snapshot(t.Context()); err == nil || errors.Is(err, stream.ErrNotReady) {
			t.Errorf("denied: %v", err)
		}
		if err := r.Replace(t.Context(), stream.Snapshot{
			Type:     stream.Type{GroupVersionKind: nodePools.GroupVersion().WithKind("NodePool"), Encoding: stream.JSON},
			Revision: 7,
		}); err != nil {
			t.Fatal(err)
		}
		if s, err := pools.Snapshot(t.Context()); err != nil || s.Revision != 7 {
			t.Errorf("denied after there was something: %+v, %v", s, err)
		}
	})
}
