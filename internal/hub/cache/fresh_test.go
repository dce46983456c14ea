package cache

import (
	"errors"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"yurtcoordinator/internal/doubt"
	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/hub/lead"
	"yurtcoordinator/internal/hub/link"
	"yurtcoordinator/internal/stream"
)

// restored gives the sink what a disk had, before the feed begins.
func (w *feedWorld) restored(position edge.Revision, names ...string) {
	w.sink.setLocked(stream.Snapshot{Revision: position, Objects: objects(position, names...)})
}

func objects(revision edge.Revision, names ...string) []stream.Object {
	var all []stream.Object
	for _, n := range names {
		all = append(all, stream.Object{Key: stream.Key{Name: n}, Revision: revision, Raw: []byte(n)})
	}
	return all
}

func (w *feedWorld) fresh(want bool) {
	w.t.Helper()
	synctest.Wait()
	if s := w.feed.Status().Get(); s.Fresh != want {
		w.t.Errorf("Status() = %+v, want it fresh: %v", s, want)
	}
}

func (w *feedWorld) failing(want bool) {
	w.t.Helper()
	synctest.Wait()
	if s := w.feed.Status().Get(); s.Failing != want {
		w.t.Errorf("Status() = %+v, want it failing: %v", s, want)
	}
}

func TestFreshOnceTheSourceHasToldAll(t *testing.T) {
	t.Run("by a list", func(t *testing.T) {
		inFeedWorld(t, func(w *feedWorld) {
			w.alone = true
			w.cloud.slow = time.Second
			w.begin()
			w.fresh(false)
			w.links(link.Up, link.Down)
			w.fresh(false)
			w.pass(time.Second)
			w.fresh(true)
			w.links(link.Down, link.Down)
			w.fresh(true) // it was fresh; the link's state says how old that is
			w.stop()
			w.begin()
			w.fresh(false)
		})
	})
	t.Run("by a watch that is never quiet", func(t *testing.T) {
		inFeedWorld(t, func(w *feedWorld) {
			w.restored(101, "a")
			w.beginAlone()
			w.want(Cloud, 0)
			for passed := time.Duration(0); passed < replayTime; passed += 100 * time.Millisecond {
				w.fresh(false)
				w.cloud.put("d")
				w.pass(100 * time.Millisecond)
			}
			w.fresh(true)
		})
	})
	t.Run("by a watch that is quiet", func(t *testing.T) {
		inFeedWorld(t, func(w *feedWorld) {
			w.restored(101, "a")
			w.beginAlone()
			w.want(Cloud, 0)
			w.fresh(false)
			w.pass(quietTime - time.Millisecond)
			w.fresh(false)
			w.cloud.put("d")
			w.pass(quietTime - time.Millisecond)
			w.fresh(false)
			w.pass(time.Millisecond)
			w.fresh(true)
			w.has(w.cloud)
		})
	})
	t.Run("by a bookmark", func(t *testing.T) {
		inFeedWorld(t, func(w *feedWorld) {
			w.alone = true
			w.cloud.early = true
			w.restored(103, "a", "b", "c")
			w.begin()
			w.links(link.Up, link.Down)
			w.want(Cloud, 0)
			w.fresh(true)
		})
	})
	t.Run("not by a watch that breaks", func(t *testing.T) {
		inFeedWorld(t, func(w *feedWorld) {
			w.restored(101, "a")
			w.beginAlone()
			w.pass(quietTime / 2)
			w.cloudLink.Set(link.Down)
			w.cloud.end(errors.New("connection reset"))
			w.pass(time.Minute)
			w.fresh(false)
		})
	})
}

// A mirror that nobody keeps complete may be as old as the disk.
func TestAMirrorMakesFreshOnlyWhileItIsCovered(t *testing.T) {
	for name, position := range map[string]edge.Revision{"listed": 0, "resumed": 103} {
		t.Run(name, func(t *testing.T) {
			inFeedWorld(t, func(w *feedWorld) {
				w.mirror.copy(w.cloud)
				if position > 0 {
					w.restored(position, "a", "b", "c")
				}
				w.standing.Set(lead.Standing{Role: lead.Follower, Leader: "n2"})
				w.links(link.Down, link.Up)
				w.begin()
				w.pass(time.Minute)
				w.want(Coordinator, 0)
				w.fresh(false)
				w.cover(true)
				w.pass(quietTime)
				w.fresh(true)
			})
		})
	}
}

func TestRefreshListsInsteadOfResuming(t *testing.T) {
	t.Run("at the cloud", func(t *testing.T) {
		inFeedWorld(t, func(w *feedWorld) {
			w.alone = true
			w.restored(101, "a")
			w.begin()
			w.feed.Refresh()
			w.feed.Refresh()
			w.links(link.Up, link.Down)
			w.fresh(true)
			w.want(Cloud, 1)
			w.has(w.cloud)
			w.feed.Refresh() // it is fresh
			w.pass(time.Minute)
			w.want(Cloud, 1)
		})
	})
	t.Run("while a watch has not told all", func(t *testing.T) {
		inFeedWorld(t, func(w *feedWorld) {
			w.restored(101, "a")
			w.beginAlone()
			w.want(Cloud, 0)
			w.fresh(false)
			w.feed.Refresh()
			w.fresh(true)
			w.want(Cloud, 1)
			w.has(w.cloud)
		})
	})
	t.Run("at once when the cloud forgot", func(t *testing.T) {
		inFeedWorld(t, func(w *feedWorld) {
			w.alone = true
			w.restored(50, "a")
			w.begin()
			w.links(link.Up, link.Down) // a list is due after a random time
			began := time.Now()
			w.feed.Refresh()
			w.pass(backoffMin)
			w.fresh(true)
			w.want(Cloud, 1)
			if time.Since(began) > backoffMin {
				t.Errorf("took %v", time.Since(began))
			}
		})
	})
	t.Run("at the mirror that is covered", func(t *testing.T) {
		inFeedWorld(t, func(w *feedWorld) {
			w.mirror.copy(w.cloud)
			w.restored(101, "a")
			w.standing.Set(lead.Standing{Role: lead.Follower, Leader: "n2"})
			w.covered.Set(true)
			w.begin()
			w.feed.Refresh()
			w.links(link.Up, link.Up)
			w.fresh(true)
			w.want(Coordinator, 0)
			w.has(w.cloud)
			if lists, _, _ := w.mirror.counts(); lists != 1 {
				t.Errorf("%d lists of the mirror", lists)
			}
		})
	})
	t.Run("at a mirror that has no more than we", func(t *testing.T) {
		inFeedWorld(t, func(w *feedWorld) {
			w.mirror.copy(w.cloud)
			w.restored(103, "a", "b", "c")
			w.standing.Set(lead.Standing{Role: lead.Follower, Leader: "n2"})
			w.covered.Set(true)
			w.begin()
			w.feed.Refresh()
			w.links(link.Up, link.Up)
			w.fresh(true)
			w.want(Coordinator, 0)
			if _, replaced := w.sink.counts(); replaced != 0 {
				t.Error("applied what it had")
			}
		})
	})
	t.Run("once", func(t *testing.T) {
		inFeedWorld(t, func(w *feedWorld) {
			w.alone = true
			w.restored(101, "a")
			w.cloud.fault = errors.New("broken pipe")
			w.begin()
			w.feed.Refresh()
			w.links(link.Up, link.Down)
			w.pass(time.Second)
			w.cloud.do(func() { w.cloud.fault = nil })
			w.pass(time.Minute)
			w.want(Cloud, 1)
			w.has(w.cloud)
			w.fresh(true)
		})
	})
	t.Run("and the watch is believed where the list is not", func(t *testing.T) {
		inFeedWorld(t, func(w *feedWorld) {
			w.alone = true
			var names []string
			for i := range 20 {
				names = append(names, fmt.Sprint(i))
			}
			w.restored(103, names...)
			w.begin()
			w.feed.Refresh()
			w.links(link.Up, link.Down)
			w.pass(quietTime)
			w.want(Cloud, 1)
			w.fresh(true)
			if n, _ := w.sink.counts(); n != 20 {
				t.Errorf("%d objects, want those that the watch does not take away", n)
			}
		})
	})
}

func TestFailingIsWhenTheCloudHasNoAnswer(t *testing.T) {
	page := func(code int) error { // of somebody on the way
		err := apierrors.NewGenericServerResponse(code, http.MethodGet, slices1.GroupResource(), "", "", 0, true)
		return stream.ErrorOf(ptrTo(err.Status()))
	}
	for name, test := range map[string]struct {
		fault   error
		failing bool
	}{
		"502":        {answer(http.StatusBadGateway), true},
		"503":        {answer(http.StatusServiceUnavailable), true},
		"504":        {answer(http.StatusGatewayTimeout), true},
		"no answer":  {errors.New("connection refused"), true},
		"500":        {answer(http.StatusInternalServerError), false},
		"403":        {answer(http.StatusForbidden), false},
		"401":        {answer(http.StatusUnauthorized), false},
		"410":        {answer(http.StatusGone), false},
		"500 page":   {page(http.StatusInternalServerError), true},
		"403 page":   {page(http.StatusForbidden), true},
		"401 page":   {page(http.StatusUnauthorized), true},
		"404 page":   {page(http.StatusNotFound), false},
		"429 page":   {page(http.StatusTooManyRequests), false},
		"an answer":  {nil, false},
		"not a list": {fmt.Errorf("%w: nonsense", stream.ErrSink), false},
	} {
		for began, position := range map[string]edge.Revision{"listed": 0, "resumed": 103} {
			t.Run(name+" "+began, func(t *testing.T) {
				inFeedWorld(t, func(w *feedWorld) {
					w.alone = true
					if position > 0 {
						w.restored(position, "a", "b", "c")
					}
					w.cloud.fault = test.fault
					w.begin()
					w.failing(false)
					w.links(link.Up, link.Down)
					w.failing(test.failing)
					w.links(link.Down, link.Down)
					w.failing(false) // the link says it all
					w.links(link.Up, link.Down)
					w.pass(time.Minute)
					w.failing(test.failing)
					w.cloud.do(func() { w.cloud.fault = nil })
					w.pass(time.Minute)
					w.failing(false)
					w.fresh(true)
				})
			})
		}
	}
	t.Run("a mirror", func(t *testing.T) {
		inFeedWorld(t, func(w *feedWorld) {
			w.standing.Set(lead.Standing{Role: lead.Follower, Leader: "n2"})
			w.begin()
			w.links(link.Up, link.Up)
			w.pass(time.Second)
			if lists, _, _ := w.mirror.counts(); lists == 0 {
				t.Error("the mirror was not asked")
			}
			w.failing(false)
		})
	})
}

// A feed that a mirror feeds asks the cloud nothing itself: the answer to the history's question is the cloud's next answer.
func TestFailingEndsWithTheHistorysAnswer(t *testing.T) {
	for name, answer := range map[string]error{"an answer": nil, "a refusal": answer(http.StatusInternalServerError)} {
		t.Run(name, func(t *testing.T) {
			inFeedWorld(t, func(w *feedWorld) {
				w.follows()
				w.beginAs(lead.Leader, false)
				w.want(Cloud, 1)
				w.mirror.copy(w.cloud)
				w.is(lead.Follower, "n2")
				w.cover(true)
				w.want(Coordinator, 1)
				w.cloud.do(func() { w.cloud.fault = errors.New("connection refused") })
				w.links(link.Down, link.Up)
				w.links(link.Up, link.Up)
				w.failing(true)
				w.cloud.do(func() { w.cloud.fault = answer })
				w.pass(2 * historyPauseMax)
				w.want(Coordinator, 1)
				w.failing(false)
			})
		})
	}
}

func ptrTo[T any](v T) *T { return &v }

// A node was off while its Pods moved: kubelet waits for what the cloud says, and must not wait long.
func TestWhatIsFromTheDiskIsDoubtedForTenSeconds(t *testing.T) {
	const soon = 11 * time.Second
	var names []string
	for i := range 20 {
		names = append(names, fmt.Sprint(i))
	}
	inFeedWorld(t, func(w *feedWorld) {
		w.alone, w.precious = true, true
		w.restored(50, names...)
		w.begin()
		w.links(link.Up, link.Down)
		w.feed.Refresh()
		w.pass(doubt.Restored().For - time.Second)
		if n, _ := w.sink.counts(); n != 20 {
			t.Errorf("%d objects: the first lists were believed", n)
		}
		w.fresh(false)
		w.pass(soon - doubt.Restored().For + time.Second)
		w.has(w.cloud)
		w.fresh(true)
	})
	// Lists take long.
	inFeedWorld(t, func(w *feedWorld) {
		w.alone = true
		w.cloud.slow = 7 * time.Second
		w.restored(50, names...)
		w.begin()
		w.links(link.Up, link.Down)
		w.feed.Refresh()
		w.pass(2*w.cloud.slow + doubt.Restored().Pause() + time.Second)
		w.has(w.cloud)
		w.want(Cloud, 2)
	})
	// A list against what the cloud has shown is doubted for longer, also by a feed that began with a disk.
	inFeedWorld(t, func(w *feedWorld) {
		w.restored(103, names...)
		w.beginAlone()
		w.pass(time.Minute)
		w.cloud.do(func() { w.cloud.revision++ })
		w.cloud.compact()
		w.cloud.end(stream.ErrExpired)
		w.pass(doubt.Shown().For - time.Second)
		if n, _ := w.sink.counts(); n != 20 {
			t.Errorf("%d objects: what was shown is taken for what the disk said", n)
		}
		w.pass(20 * time.Second)
		w.has(w.cloud)
	})
}
