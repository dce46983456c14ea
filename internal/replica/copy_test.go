package replica_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/replica"
	"yurtcoordinator/internal/run"
	"yurtcoordinator/internal/stream"
)

// TestCopyOfOneHistory: a source is emptied, and filled from another history that passes the revision of the first. The copy
// never mixes the two.
func TestCopyOfOneHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from, to := newReplica(t, replica.Config{}), newReplica(t, replica.Config{})
		replace(t, from, snapshot(100, slice("a", "old", 50, 1, nil)))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			for ctx.Err() == nil {
				all, watch, err := from.Begin(ctx)
				if err == nil && run.Pause(ctx, time.Second) == nil { // in which much befalls the source
					to.Reset()
					_ = to.Replace(ctx, all)
					_ = stream.Copy(ctx, watch, to)
				}
			}
		}()
		time.Sleep(time.Second / 2)
		from.Reset()
		replace(t, from, snapshot(90, slice("a", "new", 60, 1, nil)))
		for revision := edge.Revision(91); revision < 120; revision++ {
			apply(t, from, event(stream.Added, slice("a", fmt.Sprint("n", revision), revision, 1, nil)))
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		cancel()
		<-done
		want, _ := from.Snapshot(t.Context())
		got, _ := to.Snapshot(t.Context())
		if got.Revision != want.Revision || fmt.Sprint(names(got.Objects)) != fmt.Sprint(names(want.Objects)) {
			t.Errorf("the copy has %v at %d, its source %v at %d",
				names(got.Objects), got.Revision, names(want.Objects), want.Revision)
		}
	})
}
