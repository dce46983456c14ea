package share

import (
	"net/http"
	"testing"
	"time"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/stream"
)

// renew begins the replica in another history of the cloud, at an earlier revision.
func (s *source) renew(in edge.History, revision edge.Revision, names ...string) {
	s.t.Helper()
	s.revision = revision
	snapshot := stream.Snapshot{Revision: revision, History: in, Type: s.of()}
	for _, n := range names {
		snapshot.Objects = append(snapshot.Objects, s.object(n, revision))
	}
	if err := s.Replace(s.t.Context(), snapshot); err != nil {
		s.t.Fatal(err)
	}
}

func TestALaterHistoryIsPushedWhole(t *testing.T) {
	inWorld(t, func(w *world) {
		w.coordinator.histories = true
		s := newSource(t, things, "a", "b", "c")
		w.set.become(s)
		w.begin()
		w.pass(time.Second)
		w.same(s)
		s.renew(1, 50, "a", "z")
		w.pass(time.Second)
		w.same(s)
		s.put("y")
		w.pass(3 * time.Second)
		w.same(s)
		w.declared(`{"things.example.com":"51"}`)
		if in := w.lease().Annotations[edge.AnnotationHistory]; in != "1" {
			t.Errorf("declared history %q", in)
		}
	})
}

// What has not followed into a new history is not declared with what has.
func TestOneHistoryIsDeclared(t *testing.T) {
	inWorld(t, func(w *world) {
		w.coordinator.histories = true
		first, second := newSource(t, things, "a"), newSource(t, others, "b")
		w.set.become(first, second)
		w.begin()
		w.pass(3 * time.Second)
		w.declared(`{"others":"110","things.example.com":"110"}`)
		first.renew(1, 50, "a")
		w.pass(3 * time.Second)
		w.declared(`{"things.example.com":"50"}`)
		second.renew(1, 60, "b")
		w.pass(3 * time.Second)
		w.declared(`{"others":"60","things.example.com":"50"}`)
	})
}

// The mirror is in a history that this hub has not heard of.
func TestAMirrorInALaterHistoryIsNotPushed(t *testing.T) {
	inWorld(t, func(w *world) {
		w.coordinator.histories = true
		heard := make(chan edge.History, 100)
		w.later = func(h edge.History) bool { heard <- h; return true }
		s := newSource(t, things, "a")
		w.set.become(s)
		w.coordinator.stores["/mirror/v1/example.com/v1/things"] = &store{
			applied: 90, history: "2", objects: map[string]edge.Revision{},
		}
		w.begin()
		w.pass(3 * time.Second)
		w.wantPosted()
		w.declared("{}")
		if h := <-heard; h != 2 {
			t.Errorf("told of history %s", h)
		}
		s.renew(2, 95, "x")
		w.pass(3 * time.Second)
		w.same(s)
		w.declared(`{"things.example.com":"95"}`)
	})
}

// Only a liar says that the cloud is in that history. The leader insists on the cloud's own, until the mirror believes it.
func TestAHistoryThatNoCloudReachesIsReplaced(t *testing.T) {
	inWorld(t, func(w *world) {
		w.coordinator.histories = true
		w.later = func(edge.History) bool { return false }
		s := newSource(t, things, "a")
		w.set.become(s)
		mirror := &store{
			applied: 900, history: edge.History(1 << 22).String(), objects: map[string]edge.Revision{"ns/ghost": 900},
		}
		w.coordinator.stores["/mirror/v1/example.com/v1/things"] = mirror
		var offers []time.Time
		w.coordinator.answer = func(*http.Request, []stream.Event) *answered {
			if offers = append(offers, time.Now()); len(offers) < 3 {
				return &answered{code: http.StatusConflict, applied: 900, retryAfter: 15 * time.Second}
			}
			if len(offers) == 3 {
				mirror.applied = 0
			}
			return nil
		}
		w.begin()
		w.pass(time.Minute)
		w.same(s)
		if len(offers) < 3 || offers[2].Sub(offers[0]) < 30*time.Second {
			t.Errorf("offered at %v", offers)
		}
	})
}

// The cloud, which feeds the replica, has not come as far as the mirror: it was set back, and nobody has noticed.
func TestAMirrorThatStaysAheadIsPushedEverything(t *testing.T) {
	inWorld(t, func(w *world) {
		w.coordinator.histories = true
		s := newSource(t, things, "a")
		w.set.become(s)
		w.coordinator.stores["/mirror/v1/example.com/v1/things"] = &store{
			applied: 900, history: "0", objects: map[string]edge.Revision{"ns/ghost": 900},
		}
		w.begin()
		w.pass(overAfter / 2)
		w.wantPosted()
		w.pass(90 * time.Second)
		w.same(s)
	})
}
