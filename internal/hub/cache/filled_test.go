package cache

import (
	"testing"
	"time"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/hub/lead"
	"yurtcoordinator/internal/hub/link"
	"yurtcoordinator/internal/stream"
)

// fill makes the mirror one that a filler has filled with another store's content.
func (w *feedWorld) fill(with *feedStore) {
	w.mirror.copy(with)
	w.mirror.do(func() { w.mirror.in = edge.History(0).Filled() })
}

// lead has a leader fill the mirror with what the cloud has.
func (w *feedWorld) lead() {
	w.mirror.copy(w.cloud)
	w.mirror.do(func() { w.mirror.in = 0 })
	w.is(lead.Follower, "n2")
	w.cover(true)
}

// lies is a filler's content with three errors: an object that does not exist, another in an earlier state, and a revision that
// the cloud has not reached.
func lies() *feedStore {
	s := newStore(500, "ghost")
	s.objects[stream.Key{Name: "a"}] = stream.Object{Key: stream.Key{Name: "a"}, Revision: 101, Raw: []byte("not a")}
	return s
}

// TestAHubThatHasNothingTakesWhatAFillerBrought checks that an empty hub serves a filler's content until the cloud's content
// arrives. Then nothing of the filler's content is left, whatever its revisions.
func TestAHubThatHasNothingTakesWhatAFillerBrought(t *testing.T) {
	t.Run("until a leader has come", func(t *testing.T) {
		inFeedWorld(t, func(w *feedWorld) {
			w.follows()
			w.fill(lies())
			w.links(link.Down, link.Up)
			w.begin()
			w.pass(time.Second)
			w.want(Coordinator, 0)
			w.has(w.mirror)
			if s := w.feed.Status().Get(); s.Fresh {
				t.Errorf("%+v", s)
			}
			w.lead()
			w.pass(3 * time.Second)
			w.want(Coordinator, 0)
			w.has(w.cloud)
			w.cloud.put("d")
			w.mirror.relay(w.cloud)
			w.has(w.cloud)
		})
	})
	t.Run("until the link is back, and the pool has no leader", func(t *testing.T) {
		inFeedWorld(t, func(w *feedWorld) {
			w.follows()
			w.fill(lies())
			w.links(link.Down, link.Up)
			w.begin()
			w.pass(time.Second)
			w.has(w.mirror)
			w.links(link.Up, link.Up)
			w.pass(soon)
			w.want(Cloud, 1)
			w.has(w.cloud)
		})
	})
	t.Run("until it leads itself", func(t *testing.T) {
		inFeedWorld(t, func(w *feedWorld) {
			w.follows()
			w.fill(lies())
			w.links(link.Down, link.Up)
			w.begin()
			w.pass(time.Second)
			w.has(w.mirror)
			w.links(link.Up, link.Up)
			w.is(lead.Leader, "n1")
			w.pass(soon)
			w.want(Cloud, 1)
			w.has(w.cloud)
			if n := w.history.Number(); n != 0 || w.sink.History() != 0 {
				t.Errorf("the cloud is in history %s, the sink in %s", n, w.sink.History())
			}
		})
	})
	t.Run("until another filler has brought something later", func(t *testing.T) {
		inFeedWorld(t, func(w *feedWorld) {
			w.follows()
			w.fill(newStore(90, "old"))
			w.links(link.Down, link.Up)
			w.begin()
			w.pass(time.Second)
			w.has(w.mirror)
			w.fill(w.cloud)
			w.pass(3 * time.Second)
			w.want(Coordinator, 0)
			w.has(w.mirror)
		})
	})
}

// TestAHubThatHasSomethingTakesNothingFromAFiller: not even if it is later. It asks now and then, and lists nothing.
func TestAHubThatHasSomethingTakesNothingFromAFiller(t *testing.T) {
	inFeedWorld(t, func(w *feedWorld) {
		w.follows()
		w.links(link.Up, link.Down)
		w.begin()
		w.pass(soon)
		w.has(w.cloud)
		lists, _, _ := w.cloud.counts()
		w.fill(lies())
		w.links(link.Down, link.Up)
		_, before, _ := w.mirror.counts()
		w.pass(10 * time.Minute)
		w.has(w.cloud)
		mirrorLists, asked, _ := w.mirror.counts()
		if asked -= before; mirrorLists != 0 || asked < 10 || asked > 130 {
			t.Errorf("in ten minutes it listed the mirror %d times and asked %d times", mirrorLists, asked)
		}
		position := w.sink.Position()
		w.cloud.put("d")
		w.lead()
		w.pass(3 * time.Second)
		w.want(Coordinator, lists)
		w.has(w.cloud)
		if w.sink.Position() <= position {
			t.Errorf("it went from revision %s to %s", position, w.sink.Position())
		}
	})
}
