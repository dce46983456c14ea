package cache

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/hub/link"
	"yurtcoordinator/internal/stream"
)

// What only the disk has said is an answer where the cloud can't be asked, and only there.
func TestProspect(t *testing.T) {
	const no = "refused"
	fresh, failing := FeedStatus{Fresh: true}, FeedStatus{Refused: no, Failing: true}
	denied, stranger := FeedStatus{Refused: no, Denied: true}, FeedStatus{Refused: no, Stranger: true}
	doubtful := FeedStatus{Refused: no}
	freshDenied := FeedStatus{Refused: no, Denied: true, Fresh: true}
	for _, tt := range []struct {
		name     string
		complete bool
		feed     FeedStatus
		// of a fresh read, and of a watch that goes on from a revision
		up, unknown, down       prospect
		upOn, unknownOn, downOn prospect
		guestUp, guestUnknown   prospect
		guestDown               prospect
	}{
		{"nothing yet", false, FeedStatus{}, open, open, unreachable, open, open, unreachable, open, open, unreachable},
		{"nothing, failing", false, failing, foreign, open, unreachable, foreign, open, unreachable, foreign, open, unreachable},
		{"nothing, denied", false, denied, foreign, open, unreachable, foreign, open, unreachable, foreign, open, unreachable},
		{
			"nothing, a stranger", false, stranger, foreign, open, unreachable, foreign, open, unreachable,
			foreign, open, unreachable,
		},
		{"from the disk", true, FeedStatus{}, open, open, known, known, known, known, open, open, known},
		{"from the disk, failing", true, failing, known, known, known, known, known, known, known, known, known},
		{"from the disk, denied", true, denied, foreign, open, known, foreign, known, known, foreign, open, known},
		{"from the disk, a stranger", true, stranger, known, known, known, known, known, known, foreign, known, known},
		{"from the disk, not believed yet", true, doubtful, open, open, known, known, known, known, open, open, known},
		{"fresh", true, fresh, known, known, known, known, known, known, known, known, known},
		{"fresh, then denied", true, freshDenied, foreign, known, known, foreign, known, known, foreign, known, known},
	} {
		failing := situation{fresh: true, complete: tt.complete, cloud: link.Failing, feed: tt.feed, node: true}
		if got := failing.prospect(); tt.complete && !tt.feed.Denied && got != known {
			t.Errorf("%s, a cloud that fails: %v, want %v", tt.name, got, known)
		}
		for state, want := range map[link.State][3]prospect{
			link.Up:      {tt.up, tt.upOn, tt.guestUp},
			link.Unknown: {tt.unknown, tt.unknownOn, tt.guestUnknown},
			link.Down:    {tt.down, tt.downOn, tt.guestDown},
		} {
			s := situation{fresh: true, complete: tt.complete, cloud: state, feed: tt.feed, node: true}
			if got := s.prospect(); got != want[0] {
				t.Errorf("%s, the cloud %v: %v, want %v", tt.name, state, got, want[0])
			}
			s.fresh = false
			if got := s.prospect(); got != want[1] {
				t.Errorf("%s, the cloud %v, a watch that goes on: %v, want %v", tt.name, state, got, want[1])
			}
			s.fresh, s.node = true, false
			if got := s.prospect(); got != want[2] {
				t.Errorf("%s, the cloud %v, a guest: %v, want %v", tt.name, state, got, want[2])
			}
		}
	}
}

func TestAsksForNow(t *testing.T) {
	for query, want := range map[string]bool{
		"list": true, "list?resourceVersion=0": true, "list?resourceVersion=5": true, "watch": true,
		"watch?resourceVersion=0": true, "watch?resourceVersion=5": false,
		"watch?resourceVersion=5&sendInitialEvents=true": true, "watch?resourceVersion=5&sendInitialEvents=false": false,
	} {
		verb, _, _ := strings.Cut(query, "?")
		if got := asksForNow(httptest.NewRequest(http.MethodGet, "/"+query, nil), verb); got != want {
			t.Errorf("%s: %v", query, got)
		}
	}
}

// afterAnAbsence is a world that has x of revision 5 on its disk while the cloud, at revision 50, has y alone.
func afterAnAbsence(t *testing.T, test func(w *setWorld, s *source)) {
	t.Helper()
	bubble(t, func(t *testing.T, w *setWorld) {
		s := w.has(inA, 9, setObject("x", 5))
		want(t, w.get(listOfA), http.StatusOK, `"name":"x"`)
		time.Sleep(5 * time.Second) // to the disk
		w.link.Set(link.Unknown)
		w.stop()
		w.has(inA, 50, setObject("y", 50)) // a history that has no longer what was before
		w.open()
		w.run()
		test(w, s)
	})
}

// A node that was off, and boots with the cloud in reach, starts none of the Pods that it had before.
func TestWhatTheDiskHasIsNoAnswerBeforeTheLinkIsKnown(t *testing.T) {
	for _, target := range []string{
		listOfA,
		listOfA + "?watch=1&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan&resourceVersion=5",
	} {
		for name, state := range map[string]link.State{`"name":"y"`: link.Up, `"name":"x"`: link.Down} {
			afterAnAbsence(t, func(w *setWorld, _ *source) {
				out, end := w.watch(target)
				defer end()
				time.Sleep(200 * time.Millisecond)
				if out.Body.Len() > 0 {
					t.Fatalf("answered before the link is known: %s", out.Body)
				}
				w.link.Set(state)
				time.Sleep(time.Second)
				synctest.Wait()
				want(t, out, http.StatusOK, name)
				if state == link.Up && strings.Contains(out.Body.String(), `"name":"x"`) {
					t.Errorf("what is no longer so: %s", out.Body)
				}
				w.nothing()
			})
		}
	}
}

// A cloud that is tried once and fails is answered for; one that takes long is asked by passing on.
func TestACloudThatDoesNotTell(t *testing.T) {
	afterAnAbsence(t, func(w *setWorld, s *source) {
		s.set(func() { s.fails, s.watchFails = unavailable(), unavailable() })
		w.link.Set(link.Up)
		began := time.Now()
		want(t, w.get(listOfA), http.StatusOK, `"name":"x"`)
		if took := time.Since(began); took > time.Second {
			t.Errorf("a cloud that fails was waited for for %v", took)
		}
		w.nothing()
	})
	afterAnAbsence(t, func(w *setWorld, s *source) {
		s.set(func() { s.slow = time.Hour })
		w.link.Set(link.Up)
		began := time.Now()
		want(t, w.get(listOfA), http.StatusOK, "the cloud's own")
		if took := time.Since(began); took != patience {
			t.Errorf("it took %v", took)
		}
		w.passedOn()
	})
}

// A right that was taken back is not honoured from the disk, and what was read by it is forgotten.
func TestARightThatWasTakenBack(t *testing.T) {
	bubble(t, func(t *testing.T, w *setWorld) {
		w.client = "sa 1"
		s := w.has(of(w.client, inA), 9, setObject("x", 5))
		want(t, w.get(listOfA), http.StatusOK, `"name":"x"`)
		time.Sleep(5 * time.Second)
		id := inA.id(w.client)
		if !w.onDisk(id) {
			t.Fatal("it is not on the disk")
		}
		time.Sleep(idleTime + time.Minute)
		s.set(func() { s.fails, s.watchFails = forbidden(), forbidden() })
		for range 3 {
			w.passed()
			want(t, w.get(listOfA), http.StatusOK, "the cloud's own")
			w.passedOn()
			time.Sleep(deniedFor/2 + tidyEvery)
		}
		time.Sleep(deniedFor)
		if w.onDisk(id) || len(w.guests()) != 0 {
			t.Errorf("it is kept: %+v", w.guests())
		}
		w.link.Set(link.Down)
		want(t, w.get(listOfA), http.StatusServiceUnavailable, "is not known here")
	})
}

// A right that was given again, or a cloud that could not say for a moment, costs nothing.
func TestARightThatComesBackInTime(t *testing.T) {
	bubble(t, func(t *testing.T, w *setWorld) {
		w.client = "sa 1"
		s := w.has(of(w.client, inA), 9, setObject("x", 5))
		want(t, w.get(listOfA), http.StatusOK, `"name":"x"`)
		time.Sleep(idleTime + time.Minute)
		s.set(func() { s.fails, s.watchFails = forbidden(), forbidden() })
		w.get(listOfA)
		time.Sleep(deniedFor / 2)
		s.set(func() { s.fails, s.watchFails = nil, nil })
		time.Sleep(deniedFor)
		w.link.Set(link.Down)
		want(t, w.get(listOfA), http.StatusOK, `"name":"x"`)
	})
}

// While the disk has less than the memory, nothing is let go of.
func TestWhatTheDiskDoesNotHaveStays(t *testing.T) {
	bubble(t, func(t *testing.T, w *setWorld) {
		w.has(inA, 9, setObject("x", 5))
		want(t, w.get(listOfA), http.StatusOK)
		time.Sleep(5 * time.Second)
		w.disk.mu.Lock()
		w.disk.fails = errBroken
		w.disk.mu.Unlock()
		w.apply(inA, stream.Modified, setObject("x", 12))
		time.Sleep(3 * idleTime)
		w.link.Set(link.Down)
		want(t, w.get(listOfA), http.StatusOK, `"at":"12"`)
		w.link.Set(link.Up)
		w.disk.mu.Lock()
		w.disk.fails = nil
		w.disk.mu.Unlock()
		time.Sleep(3 * idleTime)
		if _, running := w.source(inA).count(); running != 0 {
			t.Error("it stays though the disk has it")
		}
		w.link.Set(link.Down)
		want(t, w.get(listOfA), http.StatusOK, `"at":"12"`)
	})
}

// What keeps changing, if only its revision does, is let go of as anything else is: its right may have been taken back.
func TestWhatKeepsChangingIsLetGoOf(t *testing.T) {
	for _, kind := range []stream.EventType{stream.Bookmark, stream.Modified} {
		bubble(t, func(t *testing.T, w *setWorld) {
			s := w.has(inA, 9, setObject("x", 5))
			want(t, w.get(listOfA), http.StatusOK)
			for i := range (idleTime + 2*tidyEvery) / (2 * time.Second) {
				time.Sleep(2 * time.Second)
				w.apply(inA, kind, setObject("x", edge.Revision(10+i)))
			}
			if _, running := s.count(); running != 0 {
				t.Errorf("%s: it is still followed", kind)
			}
		})
	}
}

func (p prospect) String() string {
	return [...]string{"open", "known", "foreign", "unreachable", "late"}[p]
}
