package store

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/stream"
)

const month = 30 * 24 * time.Hour

// world is a store that runs, in a bubble.
type world struct {
	t    *testing.T
	dir  string
	now  func() time.Time
	s    *Store
	stop func()
}

func (w *world) start() {
	w.t.Helper()
	w.s = opening(w.t, Config{Dir: w.dir, Now: w.now}, nil)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.s.Run(ctx) }()
	w.stop = func() {
		cancel()
		if err := <-done; err != nil {
			w.t.Error(err)
		}
		_ = w.s.Close()
	}
}

// has says whether a collection is on disk, without reading it.
func (w *world) has(id Collection) bool { return onDisk(w.t, w.s, id).Revision != 0 }

func named(name string) Collection {
	id := slicesID
	id.Namespace, id.Fields = "ns", "metadata.name="+name
	return id
}

// What the node needs stays, however long nobody reads it; what nobody needs goes, but only by time in which the cloud could
// be asked, and never while it cannot.
func TestRetention(t *testing.T) {
	needed, idle := named("needed"), named("idle")
	idle.Client = "idle 1"
	for _, test := range []struct {
		name         string
		live         func(w *world)
		needed, idle bool
	}{
		{"a month online", func(w *world) {
			w.s.Online(true)
			w.s.Need([]Collection{needed})
			time.Sleep(month)
		}, true, false},
		{"a month online, of which nobody has said what is needed", func(w *world) {
			w.s.Online(true)
			time.Sleep(month)
		}, true, true},
		{"a month cut off", func(w *world) {
			w.s.Need([]Collection{needed})
			w.s.Online(false)
			time.Sleep(month)
		}, true, true},
		{"nobody has said whether the cloud can be asked", func(w *world) {
			w.s.Need(nil)
			time.Sleep(month)
		}, true, true},
		{"a month cut off, then two days online", func(w *world) {
			w.s.Need([]Collection{needed})
			w.s.Online(false)
			time.Sleep(month)
			w.s.Online(true)
			time.Sleep(48 * time.Hour)
		}, true, true},
		{"eight days online in all, with cuts and restarts between", func(w *world) {
			for range 8 {
				w.s.Need([]Collection{needed})
				w.s.Online(true)
				time.Sleep(24*time.Hour + clockLag) // what a kill may cost
				w.s.Online(false)
				time.Sleep(24 * time.Hour)
				w.stop()
				time.Sleep(24 * time.Hour)
				w.start()
			}
			w.s.Need([]Collection{needed})
			w.s.Online(true)
			time.Sleep(2 * time.Hour)
		}, true, false},
		{"old when the link fails: not collected while it is down", func(w *world) {
			w.s.Need([]Collection{needed})
			w.s.Online(true)
			time.Sleep(7*24*time.Hour - time.Minute)
			w.s.Online(false)
			time.Sleep(month)
		}, true, true},
		{"read by who is still here", func(w *world) {
			w.s.Online(true)
			w.s.Need([]Collection{needed}, "idle")
			time.Sleep(month)
		}, true, true},
		{"no longer needed", func(w *world) {
			w.s.Online(true)
			w.s.Need([]Collection{needed})
			time.Sleep(month)
			w.s.Need(nil)
			time.Sleep(2 * time.Hour)
		}, false, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &world{t: t, dir: t.TempDir()}
				w.start()
				replace(t, w.s, needed, snapshotOf(1, 10, 5))
				replace(t, w.s, idle, snapshotOf(1, 10, 5))
				time.Sleep(2 * time.Second)
				test.live(w)
				if got := w.has(needed); got != test.needed {
					t.Errorf("what was needed is there: %v", got)
				}
				if got := w.has(idle); got != test.idle {
					t.Errorf("what nobody reads is there: %v", got)
				}
				w.stop()
			})
		})
	}
}

// A node without a clock of its own boots in 1970, and gets the right time later, or a wrong one: nothing is lost by it, for
// only what passes counts. A clock that is set while the store runs is not seen, as time.Now's differences are monotonic; one
// that is played for tests counts forward, and never back.
func TestClocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ahead atomic.Int64 // of the bubble's clock, in nanoseconds
		set := func(to time.Time) { ahead.Store(int64(time.Until(to))) }
		set(time.Unix(3600, 0))
		w := &world{t: t, dir: t.TempDir(), now: func() time.Time {
			return time.Now().Add(time.Duration(ahead.Load())).Round(0)
		}}
		w.start()
		replace(t, w.s, slicesID, snapshotOf(1, 10, 5))
		w.s.Online(true)
		w.s.Need(nil)
		time.Sleep(3 * time.Hour)
		for _, next := range []time.Time{
			time.Unix(1.8e9, 0), time.Unix(3600, 0), time.Unix(4e9, 0), time.Unix(1.8e9, 0),
		} {
			w.stop()
			set(next)
			w.start()
			w.s.Online(true)
			w.s.Need(nil)
			time.Sleep(3 * time.Hour)
			if !w.has(slicesID) {
				t.Fatalf("collected after a start at %v", next)
			}
			ahead.Add(-int64(100 * time.Hour)) // it was ahead
			time.Sleep(3 * time.Hour)
			if !w.has(slicesID) {
				t.Fatal("collected after the clock was set back")
			}
		}
		ahead.Add(int64(month))
		time.Sleep(2 * time.Minute)
		if w.has(slicesID) {
			t.Fatal("a month has passed, and it is still there")
		}
		w.stop()
	})
}

// A Sink that is used is a reader: what somebody keeps true does not go for its age.
func TestSinksInUse(t *testing.T) {
	writes, asks := named("writes"), named("asks")
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, dir: t.TempDir()}
		w.start()
		defer w.stop()
		w.s.Online(true)
		w.s.Need(nil)
		replace(t, w.s, writes, snapshotOf(1, 10, 5))
		replace(t, w.s, asks, snapshotOf(1, 10, 5))
		for r := range edge.Revision(30) {
			time.Sleep(24 * time.Hour)
			bookmark := stream.Event{Type: stream.Bookmark, Object: stream.Object{Revision: 10 + r}}
			if err := w.s.Sink(writes).Apply(t.Context(), []stream.Event{bookmark}); err != nil {
				t.Fatal(err)
			}
			if !w.has(writes) || w.s.Sink(asks).Position() != 5 {
				t.Fatalf("collected on day %d", r)
			}
		}
	})
}

// What has been replaced takes no space that something else would have to go for: it is removed first.
func TestGarbageGoesBeforeContent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := opening(t, Config{Dir: t.TempDir(), maxBytes: 1 << 20}, nil)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() { _ = s.Run(ctx) }()
		idle, busy := named("idle"), named("busy")
		replace(t, s, idle, snapshotOf(100, 1000, 5))
		replace(t, s, busy, snapshotOf(100, 1000, 5))
		all := snapshotOf(100, 1000, 5)
		for n := range 2000 {
			o := all.Objects[n%100]
			o.Revision = edge.Revision(6 + n)
			if err := s.Sink(busy).Apply(ctx, []stream.Event{{Type: stream.Modified, Object: o}}); err != nil {
				t.Fatal(err)
			}
			all.Objects[n%100], all.Revision = o, o.Revision
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(time.Minute)
		holds(t, s, idle, snapshotOf(100, 1000, 5))
		holds(t, s, busy, all)
		if h := s.Health(); h.Bytes > 1<<20 {
			t.Errorf("%d bytes are in use", h.Bytes)
		}
	})
}

// What has gone for lack of space is not taken again for an hour though it is in use; what is needed does not go, and is
// taken at once.
func TestNoSpace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var commits atomic.Int64
		s := opening(t, Config{Dir: t.TempDir(), maxBytes: 1 << 20}, func(point string) error {
			if point == "committed" {
				commits.Add(1)
			}
			return nil
		})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() { _ = s.Run(ctx) }()
		s.Online(true)
		needed, large := named("needed"), named("large")
		s.Need([]Collection{needed})
		replace(t, s, needed, snapshotOf(500, 1000, 5))
		time.Sleep(2 * time.Second)
		replace(t, s, large, snapshotOf(700, 1000, 5))
		time.Sleep(2 * time.Second)
		misses(t, s, large, "no space")
		commits.Store(0)
		for range 100 { // as who follows it does
			time.Sleep(30 * time.Second)
			s.Touch(large)
			if err := s.Sink(large).Replace(ctx, snapshotOf(700, 1000, 5)); !errors.Is(err, ErrFull) {
				t.Fatal(err)
			}
		}
		if n := commits.Load(); n > 2 {
			t.Errorf("%d writes in 50 minutes", n)
		}
		holds(t, s, needed, snapshotOf(500, 1000, 5))
		s.Need([]Collection{large})
		replace(t, s, large, snapshotOf(700, 1000, 5))
		time.Sleep(2 * time.Second)
		holds(t, s, large, snapshotOf(700, 1000, 5))
		misses(t, s, needed, "no space")
	})
}
