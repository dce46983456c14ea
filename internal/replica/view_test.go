package replica_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/live"
	"yurtcoordinator/internal/replica"
	"yurtcoordinator/internal/stream"
	"yurtcoordinator/internal/stream/streamtest"
)

// team shows only the objects of one team, or of several, as x+y, by a label, and never an object named "secret".
type team struct{ look *live.Value[teamLook] }

type teamLook string

func newTeam(name string) *team { return &team{live.NewValue(teamLook(name))} }

func (v *team) Look() (replica.Look, <-chan struct{}) { return v.look.Watch() }

func (v *team) become(name string) { v.look.Set(teamLook(name)) }

func (l teamLook) Show(t stream.Type, o stream.Object) ([]byte, bool) {
	set, err := stream.Labels(t.Encoding, o.Raw)
	return o.Raw, err == nil && slices.Contains(strings.Split(string(l), "+"), set["app"]) && o.Key.Name != "secret"
}

func app(name string) map[string]string { return map[string]string{"app": name} }

func TestView(t *testing.T) {
	r := filled(t)
	s := serve(t, newHandler(t, replica.HandlerConfig{Replica: r, View: newTeam("x")}))
	list := func() []string {
		got, _, err := stream.ReadList(strings.NewReader(string(s.get(t, slicesPath, asProtobuf).body)), stream.Protobuf, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		return names(got.Objects)
	}
	if got := list(); !slices.Equal(got, []string{"a/x", "a-b/x"}) {
		t.Errorf("list: %v", got)
	}
	const path = "/apis/discovery.k8s.io/v1/namespaces/a/endpointslices/"
	if a := s.get(t, path+"x", asJSON); a.StatusCode != http.StatusOK {
		t.Errorf("get what is visible: %s", a.body)
	}
	if a := s.get(t, path+"y", asJSON); a.StatusCode != http.StatusNotFound {
		t.Errorf("get what is not: %s", a.body)
	}
	f := s.watch(t, slicesPath+"?watch=1", asProtobuf)
	f.want("ADDED a/x@10", "ADDED a-b/x@30")
	apply(t, r,
		event(stream.Modified, slice("a", "y", 101, 1, app("z"))),     // never seen
		event(stream.Modified, slice("a", "y", 102, 1, app("x"))),     // comes into view
		event(stream.Modified, slice("a", "y", 103, 1, app("x"))),     // stays
		event(stream.Modified, slice("a", "x", 104, 1, app("y"))),     // leaves
		event(stream.Deleted, slice("a", "x", 105, 1, app("y"))),      // nobody misses it
		event(stream.Deleted, slice("a-b", "x", 106, 1, app("x"))),    // goes
		event(stream.Added, slice("a", "secret", 107, 1, app("x"))),   // never seen
		event(stream.Deleted, slice("a", "secret", 108, 1, app("x"))), // as is this
		event(stream.Added, slice("a", "end", 109, 1, app("x"))))
	f.want("ADDED a/y@102", "MODIFIED a/y@103", "DELETED a/x@104", "DELETED a-b/x@106", "ADDED a/end@109")
}

// A view is not asked about objects in JSON: clients see all of them, at the cloud's revisions, and nothing new when it turns.
func TestViewIsNotAskedAboutJSON(t *testing.T) {
	r := replica.New(replica.Config{Resource: slicesResource})
	defer r.Close()
	object := func(name string, at edge.Revision) stream.Object {
		return streamtest.Object(streamtest.Widgets, "a", name, at, "")
	}
	if err := r.Replace(t.Context(), stream.Snapshot{
		Type: streamtest.Widgets, Revision: 100, Objects: []stream.Object{object("secret", 10), object("x", 20)},
	}); err != nil {
		t.Fatal(err)
	}
	view := newTeam("x")
	s := serve(t, newHandler(t, replica.HandlerConfig{Replica: r, View: view}))
	list := s.get(t, slicesPath, asJSON)
	got, _, err := stream.ReadList(bytes.NewReader(list.body), stream.JSON, 1<<20)
	if err != nil || !slices.Equal(names(got.Objects), []string{"a/secret", "a/x"}) || got.Objects[0].Revision != 10 {
		t.Errorf("a list: %v, %v", got.Objects, err)
	}
	f := s.watch(t, slicesPath+"?watch=1", asJSON)
	f.want("ADDED a/secret@10", "ADDED a/x@20")
	view.become("y")
	apply(t, r, event(stream.Modified, object("secret", 110)), event(stream.Deleted, object("x", 120)))
	f.want("MODIFIED a/secret@110", "DELETED a/x@120")
}

// hidden is the revision with which an object is shown that is hidden, or no longer.
func hidden(revision edge.Revision) edge.Revision { return 1<<62 | revision<<20 }

// TestLooks: a watch tells changes of the view, and tells a returning client what it may have missed. A client ahead of the
// replica is told nothing until the replica has caught up.
func TestLooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, view := filled(t), newTeam("x")
		h := newHandler(t, replica.HandlerConfig{Replica: r, View: view})
		watch := func(query string) *recorder {
			w := &recorder{ResponseRecorder: httptest.NewRecorder()}
			ctx, cancel := context.WithCancel(t.Context())
			var done sync.WaitGroup
			done.Go(func() { h.Serve(w, ask(ctx, query), replica.Request{Verb: "watch"}) })
			t.Cleanup(func() { cancel(); done.Wait() })
			synctest.Wait()
			return w
		}
		expect := func(what string, w *recorder, want ...string) {
			t.Helper()
			synctest.Wait()
			if got := w.events(t); !slices.Equal(got, want) {
				t.Errorf("%s: %q, want %q", what, got, want)
			}
		}
		hide := func(key string, at edge.Revision) string { return fmt.Sprintf("DELETED %s@%d", key, hidden(at)) }
		expired := func(what, query string) {
			t.Helper()
			if got := watch(query).Body.String(); !strings.Contains(got, "Expired") {
				t.Errorf("%s: %q, want 410", what, got)
			}
		}
		expired("a client from before this process", "?watch=1&resourceVersion=100")
		apply(t, r, event(stream.Bookmark, stream.Object{Revision: 110}))
		plain := watch("?watch=1&resourceVersion=105")
		marks := watch("?watch=1&resourceVersion=105&allowWatchBookmarks=1&timeoutSeconds=3000")
		ahead := watch("?watch=1&resourceVersion=120")
		expect("one that has seen this look", plain)
		view.become("y")
		told := []string{"DELETED a/x@10", "ADDED a/y@20", "DELETED a-b/x@30"}
		expect("the change", plain, told...)
		expect("the change, with bookmarks", marks, told[0], "BOOKMARK @110", told[1], "BOOKMARK @110", told[2], "BOOKMARK @110")
		expect("a client that is ahead", ahead)
		apply(t, r, event(stream.Modified, slice("a", "y", 125, 1, app("y"))))
		expect("and a true change", plain, append(told, "MODIFIED a/y@125")...)
		if got := ahead.Body.String(); !strings.Contains(got, "Expired") {
			t.Errorf("a client that was ahead: %q, want 410", got)
		}
		expect("one that comes back", watch(fmt.Sprint("?watch=1&resourceVersion=", hidden(110))),
			"MODIFIED a/y@125", hide("a/x", 10), hide("a-b/x", 30), hide("b/x", 40), "MODIFIED a/y@125")
	})
}

// TestWhoComesBackIsToldEverything: a client that resumes from the revision at which the look changed, or from an earlier one,
// may have seen another look, or a part of this one.
func TestWhoComesBackIsToldEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, view := filled(t), newTeam("x")
		h := newHandler(t, replica.HandlerConfig{Replica: r, View: view})
		expect := func(what string, from edge.Revision, want ...string) {
			t.Helper()
			w := &recorder{ResponseRecorder: httptest.NewRecorder()}
			ctx, cancel := context.WithCancel(t.Context())
			var done sync.WaitGroup
			done.Go(func() {
				h.Serve(w, ask(ctx, fmt.Sprint("?watch=1&resourceVersion=", from)), replica.Request{Verb: "watch"})
			})
			synctest.Wait()
			cancel()
			done.Wait()
			if got := w.events(t); !slices.Equal(got, want) {
				t.Errorf("%s: %q, want %q", what, got, want)
			}
		}
		hide := func(key string, at edge.Revision) string { return fmt.Sprintf("DELETED %s@%d", key, hidden(at)) }
		h.Serve(&recorder{ResponseRecorder: httptest.NewRecorder()}, ask(t.Context(), ""), replica.Request{Verb: "list"})
		apply(t, r, event(stream.Bookmark, stream.Object{Revision: 110}))
		expect("the same look", 110)
		view.become("x+y")
		more := []string{"MODIFIED a/x@10", "MODIFIED a/y@20", "MODIFIED a-b/x@30", hide("b/x", 40)}
		expect("a look that shows more", 110, more...)
		expect("… once more: the client may have had a part", 110, more...)
		apply(t, r, event(stream.Bookmark, stream.Object{Revision: 120}))
		expect("who was shown nothing before it", 120)
		view.become("y")
		expect("of the last look", 115, hide("a/x", 10), "MODIFIED a/y@20", hide("a-b/x", 30), hide("b/x", 40))
		apply(t, r, event(stream.Bookmark, stream.Object{Revision: 130}))
		view.become("x+y")
		expect("back again", 125, more...)
		apply(t, r, event(stream.Modified, slice("a", "y", 131, 1, app("y"))))
		expect("with what has changed since", 125,
			"MODIFIED a/y@131", "MODIFIED a/x@10", "MODIFIED a-b/x@30", hide("b/x", 40), "MODIFIED a/y@131")
	})
}

// TestBeforeExpired: before a client is told to list again, and so forgets its revision, what it has been told must survive a
// crash of this process. A client forgets nothing when its watch ends in an orderly way.
func TestBeforeExpired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, v := filled(t), newTeam("x")
		var asked []time.Duration
		h := newHandler(t, replica.HandlerConfig{Replica: r, View: v, BeforeExpired: func(ctx context.Context) {
			by, _ := ctx.Deadline()
			asked = append(asked, time.Until(by))
		}})
		watch := func(query string) string {
			answer := &recorder{ResponseRecorder: httptest.NewRecorder()}
			h.Serve(answer, ask(t.Context(), query), replica.Request{Verb: "watch"})
			return answer.Body.String()
		}
		if got := watch("?watch=1&timeoutSeconds=5"); len(asked) != 0 {
			t.Errorf("asked %d times before an orderly end: %q", len(asked), got)
		}
		got := watch("?watch=1&resourceVersion=1")
		if len(asked) != 1 || asked[0] != 3*time.Second || !strings.Contains(got, "Expired") {
			t.Errorf("asked %v before %q", asked, got)
		}
	})
}

func TestPagesAreOfOneLook(t *testing.T) {
	r, view := filled(t), newTeam("x")
	s := serve(t, newHandler(t, replica.HandlerConfig{Replica: r, View: view}))
	_, cont, err := stream.ReadList(strings.NewReader(string(s.get(t, slicesPath+"?limit=1", asJSON).body)), stream.JSON, 1<<20)
	if err != nil || cont == "" {
		t.Fatalf("%q %v", cont, err)
	}
	view.become("y")
	if a := s.get(t, slicesPath+"?limit=1&continue="+cont, asJSON); a.StatusCode != http.StatusGone {
		t.Errorf("the second page of another look: %s", a.body)
	}
}

// TestSelectorsAgainstModel changes labels at random, and compares what a client with a selector is told with a model: the
// content at each revision, filtered.
func TestSelectorsAgainstModel(t *testing.T) {
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 3))
		r := newReplica(t, replica.Config{})
		replace(t, r, snapshot(1))
		s := serve(t, newHandler(t, replica.HandlerConfig{Replica: r}))
		f := s.watch(t, slicesPath+"?watch=1&resourceVersion=1&labelSelector=app%3Dx", asProtobuf)
		matching := map[string]bool{}
		var want []string
		for revision := edge.Revision(2); revision < 300; revision++ {
			name, label := fmt.Sprint("o", random.IntN(5)), []string{"x", "y"}[random.IntN(2)]
			e := event(stream.Modified, slice("a", name, revision, 1, app(label)))
			if random.IntN(5) == 0 {
				e.Type = stream.Deleted
				if matching[name] {
					label = "x" // a deleted object is as it was
				} else {
					label = "y"
				}
				e.Object = slice("a", name, revision, 1, app(label))
			}
			was, is := matching[name], label == "x" && e.Type != stream.Deleted
			matching[name] = is
			switch {
			case is && was:
				want = append(want, fmt.Sprintf("MODIFIED a/%s@%d", name, revision))
			case is:
				want = append(want, fmt.Sprintf("ADDED a/%s@%d", name, revision))
			case was:
				want = append(want, fmt.Sprintf("DELETED a/%s@%d", name, revision))
			}
			apply(t, r, e)
		}
		f.want(want...)
		f.cancel()
	}
}

// recorder is a client without a network, for tests in which time is made.
type recorder struct {
	*httptest.ResponseRecorder
	mu        sync.Mutex
	deadlines []time.Time
	block     chan struct{} // if not nil, writes wait for it or fail at the deadline
}

func (r *recorder) SetWriteDeadline(at time.Time) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.deadlines = append(r.deadlines, at)
	return nil
}

func (r *recorder) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.block != nil {
		select {
		case <-r.block:
		case <-time.After(time.Until(r.deadlines[len(r.deadlines)-1])):
			return 0, errors.New("deadline exceeded")
		}
	}
	return r.ResponseRecorder.Write(p)
}

func (r *recorder) events(t *testing.T) []string {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []string
	f := stream.NewFrameReader(strings.NewReader(r.Body.String()), stream.Protobuf, 1<<20)
	for {
		e, err := f.Read()
		if err != nil {
			return all
		}
		all = append(all, fmt.Sprintf("%s %s@%d", e.Type, e.Object.Key, e.Object.Revision))
	}
}

func ask(ctx context.Context, query string) *http.Request {
	req := httptest.NewRequest(http.MethodGet, slicesPath+query, nil).WithContext(ctx)
	req.Header.Set("Accept", asProtobuf)
	return req
}

func TestTooLarge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHandler(t, replica.HandlerConfig{Replica: filled(t)})
		for _, query := range []string{
			"?resourceVersion=101", "?resourceVersion=101&resourceVersionMatch=Exact",
			"?watch=1&resourceVersion=101&sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
		} {
			began := time.Now()
			w := httptest.NewRecorder()
			h.Serve(w, ask(t.Context(), query), replica.Request{Verb: "list"})
			if waited := time.Since(began); waited != 3*time.Second {
				t.Errorf("%s: answered after %v, want 3 s", query, waited)
			}
			var err error
			if strings.Contains(query, "watch") {
				_, err = stream.NewFrameReader(w.Body, stream.Protobuf, 1<<20).Read()
			} else {
				s, failed := stream.ReadStatus(w.Body.Bytes())
				if failed != nil {
					t.Fatal(failed)
				}
				err = &apierrors.StatusError{ErrStatus: s}
				if w.Code != http.StatusGatewayTimeout || w.Header().Get("Retry-After") != "1" {
					t.Errorf("%s: %d, Retry-After %q", query, w.Code, w.Header().Get("Retry-After"))
				}
			}
			if !apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge) {
				t.Errorf("%s: %v", query, err)
			}
		}
	})
}

const bookmarked = "?watch=1&resourceVersion=100&allowWatchBookmarks=1&timeoutSeconds="

func TestBookmarksOfAWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := filled(t)
		h := newHandler(t, replica.HandlerConfig{Replica: r})
		w := &recorder{ResponseRecorder: httptest.NewRecorder()}
		quiet := &recorder{ResponseRecorder: httptest.NewRecorder()}
		var watches sync.WaitGroup
		began := time.Now()
		watches.Go(func() {
			h.Serve(w, ask(t.Context(), bookmarked+"200"), replica.Request{Verb: "watch"})
		})
		watches.Go(func() {
			h.Serve(quiet, ask(t.Context(), "?watch=1&resourceVersion=100&timeoutSeconds=200"), replica.Request{Verb: "watch"})
		})
		synctest.Wait()
		apply(t, r, event(stream.Bookmark, stream.Object{Revision: 150}))
		time.Sleep(76 * time.Second)
		synctest.Wait()
		if got := w.events(t); !slices.Equal(got, []string{"BOOKMARK @150"}) {
			t.Errorf("after 76 s: %v", got)
		}
		watches.Wait()
		if took := time.Since(began); took != 200*time.Second {
			t.Errorf("the watch took %v, want 200 s", took)
		}
		if got := len(w.events(t)); got != 3 && got != 4 {
			t.Errorf("%d bookmarks in 200 s, want one a minute, up to a quarter more, and the last", got)
		}
		if got := quiet.events(t); len(got) != 0 {
			t.Errorf("a client that wants no bookmarks got %v", got)
		}
	})
}

// A Prompt handler tells how far the replica is as soon as it is, and nothing twice.
func TestPromptBookmarks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := filled(t)
		h := newHandler(t, replica.HandlerConfig{Replica: r, Prompt: true})
		w := &recorder{ResponseRecorder: httptest.NewRecorder()}
		quiet := &recorder{ResponseRecorder: httptest.NewRecorder()}
		var watches sync.WaitGroup
		watches.Go(func() {
			h.Serve(w, ask(t.Context(), bookmarked+"50"), replica.Request{Verb: "watch"})
		})
		watches.Go(func() {
			h.Serve(quiet, ask(t.Context(), "?watch=1&resourceVersion=100&timeoutSeconds=50"), replica.Request{Verb: "watch"})
		})
		at := func(want ...string) {
			t.Helper()
			synctest.Wait()
			if got := w.events(t); !slices.Equal(got, want) {
				t.Errorf("got %v, want %v", got, want)
			}
		}
		at()
		apply(t, r, event(stream.Bookmark, stream.Object{Revision: 150}))
		at("BOOKMARK @150")
		apply(t, r, event(stream.Bookmark, stream.Object{Revision: 150}))
		at("BOOKMARK @150")
		apply(t, r, event(stream.Deleted, object("a", "x", 160, "")))
		at("BOOKMARK @150", "DELETED a/x@160")
		apply(t, r, event(stream.Bookmark, stream.Object{Revision: 170}))
		at("BOOKMARK @150", "DELETED a/x@160", "BOOKMARK @170")
		watches.Wait()
		if got := quiet.events(t); !slices.Equal(got, []string{"DELETED a/x@160"}) {
			t.Errorf("a client that wants no bookmarks got %v", got)
		}
	})
}

func TestLastBookmark(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHandler(t, replica.HandlerConfig{Replica: filled(t)})
		w := &recorder{ResponseRecorder: httptest.NewRecorder()}
		var watching sync.WaitGroup
		watching.Go(func() {
			h.Serve(w, ask(t.Context(), bookmarked+"50"), replica.Request{Verb: "watch"})
		})
		time.Sleep(47 * time.Second)
		if got := w.events(t); len(got) != 0 {
			t.Errorf("%v: want nothing before the last bookmark", got)
		}
		watching.Wait()
		if got := w.events(t); !slices.Equal(got, []string{"BOOKMARK @100"}) {
			t.Errorf("%v: want one bookmark before the end", got)
		}
	})
}

func TestNoBookmarkTakesAClientBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := filled(t)
		h := newHandler(t, replica.HandlerConfig{Replica: r})
		w := &recorder{ResponseRecorder: httptest.NewRecorder()}
		query := "?watch=1&resourceVersion=120&allowWatchBookmarks=1&timeoutSeconds=150" // the replica is at 100
		time.AfterFunc(90*time.Second, func() { apply(t, r, event(stream.Bookmark, stream.Object{Revision: 130})) })
		h.Serve(w, ask(t.Context(), query), replica.Request{Verb: "watch"})
		got := w.events(t)
		if len(got) == 0 || slices.ContainsFunc(got, func(e string) bool { return e != "BOOKMARK @130" }) {
			t.Errorf("%v: want nothing until the replica is past 120", got)
		}
	})
}

func TestWatchLastsHalfAnHourAtLeast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHandler(t, replica.HandlerConfig{Replica: filled(t)})
		began := time.Now()
		h.Serve(httptest.NewRecorder(), ask(t.Context(), "?watch=1"), replica.Request{Verb: "watch"})
		if took := time.Since(began); took < 30*time.Minute || took > time.Hour {
			t.Errorf("it took %v, want 30 to 60 min", took)
		}
	})
}

func TestClientThatDoesNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := filled(t)
		h := newHandler(t, replica.HandlerConfig{Replica: r})
		w := &recorder{ResponseRecorder: httptest.NewRecorder(), block: make(chan struct{})}
		began := time.Now()
		h.Serve(w, ask(t.Context(), "?watch=1"), replica.Request{Verb: "watch"})
		if took := time.Since(began); took > 31*time.Second {
			t.Errorf("it was held for %v, want 30 s", took)
		}
		if n := r.Stats().Watchers; n != 0 {
			t.Errorf("%d watchers are left", n)
		}
		if last := w.deadlines[len(w.deadlines)-1]; !last.IsZero() {
			t.Error("the deadline was left on the connection")
		}
	})
}

// firstOf is the key of a replica's first object.
func firstOf(t *testing.T, r *replica.Replica) stream.Key {
	t.Helper()
	all, err := r.Snapshot(t.Context())
	if err != nil || len(all.Objects) == 0 {
		t.Fatal(len(all.Objects), err)
	}
	return all.Objects[0].Key
}

// What nothing has changed since is still there, however long ago it was.
func TestWhatHasNotChangedIsStillThere(t *testing.T) {
	r := filled(t)
	h := newHandler(t, replica.HandlerConfig{Replica: r})
	code := func(query string) int {
		w := httptest.NewRecorder()
		h.Serve(w, ask(t.Context(), query), replica.Request{Verb: "list"})
		if w.Code == http.StatusOK {
			all, _, err := stream.ReadList(w.Body, stream.Protobuf, 1<<20)
			if err != nil || !strings.Contains(query, all.Revision.String()) {
				t.Errorf("%s: of revision %v, %v", query, all.Revision, err)
			}
		}
		return w.Code
	}
	exactly := func(revision string) string { return "?resourceVersionMatch=Exact&resourceVersion=" + revision }
	for _, step := range []struct {
		do    func()
		query string
		want  int
	}{
		{func() {}, exactly("100"), http.StatusOK},
		{func() { apply(t, r, event(stream.Bookmark, stream.Object{Revision: 110})) }, exactly("100"), http.StatusOK},
		{func() {}, "?limit=1&resourceVersion=105", http.StatusOK},
		{func() {}, exactly("110"), http.StatusOK},
		{func() {}, exactly("99"), http.StatusGone},
		{func() { apply(t, r, event(stream.Deleted, stream.Object{Key: firstOf(t, r), Revision: 120})) },
			exactly("119"), http.StatusGone},
		{func() { apply(t, r, event(stream.Bookmark, stream.Object{Revision: 130})) }, exactly("125"), http.StatusOK},
		{func() {}, exactly("120"), http.StatusOK},
	} {
		if step.do(); code(step.query) != step.want {
			t.Errorf("%s: %d, want %d", step.query, code(step.query), step.want)
		}
	}
}

func TestPagesAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := filled(t)
		h := newHandler(t, replica.HandlerConfig{Replica: r})
		w := httptest.NewRecorder()
		h.Serve(w, ask(t.Context(), "?limit=1"), replica.Request{Verb: "list"})
		_, cont, err := stream.ReadList(w.Body, stream.Protobuf, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		// What there is now is no longer the list that is continued.
		apply(t, r, event(stream.Deleted, stream.Object{Key: firstOf(t, r), Revision: 101}))
		page := func() int {
			w := httptest.NewRecorder()
			h.Serve(w, ask(t.Context(), "?continue="+cont), replica.Request{Verb: "list"})
			return w.Code
		}
		time.Sleep(59 * time.Second)
		if got := page(); got != http.StatusOK {
			t.Errorf("after 59 s: %d", got)
		}
		time.Sleep(2 * time.Second)
		if got := page(); got != http.StatusGone {
			t.Errorf("after 61 s: %d, want 410", got)
		}
	})
}

func TestUnwritableObjects(t *testing.T) {
	r := newReplica(t, replica.Config{})
	bad := slice("a", "x", 10, 1, nil)
	bad.Raw = append(slices.Clone(bad.Raw), 0x12, 2, 0xff, 0xff) // endpoints that are none
	replace(t, r, snapshot(100, bad))
	s := serve(t, newHandler(t, replica.HandlerConfig{Replica: r}))
	if a := s.get(t, slicesPath, asProtobuf); a.StatusCode != http.StatusOK {
		t.Errorf("verbatim: %s", a.Status)
	}
	if a := s.get(t, slicesPath, asJSON); a.status(t).Code != http.StatusInternalServerError {
		t.Errorf("as JSON: %s", a.Status)
	}
	s.watch(t, slicesPath+"?watch=1", asJSON).wantErr(apierrors.IsInternalError)
	s.watch(t, slicesPath+"?watch=1", asProtobuf).want("ADDED a/x@10")
}

// TestSilentWatchHasNoDeadline: an HTTP/2 server ends a stream at its write deadline, even while nothing is being written. A
// silent watch must never reach that deadline.
func TestSilentWatchHasNoDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReplica(t, replica.Config{})
		replace(t, r, snapshot(1))
		h := newHandler(t, replica.HandlerConfig{Replica: r})
		ctx, cancel := context.WithCancel(t.Context())
		w := &recorder{ResponseRecorder: httptest.NewRecorder()}
		done := make(chan struct{})
		go func() {
			defer close(done)
			h.Serve(w, ask(ctx, "?watch=1&resourceVersion=1"), replica.Request{Verb: "watch"})
		}()
		for range 240 { // four minutes: the shortest watch lasts five
			time.Sleep(time.Second)
			synctest.Wait()
			w.mu.Lock()
			last := w.deadlines[len(w.deadlines)-1]
			w.mu.Unlock()
			if left := time.Until(last); left < 15*time.Second {
				t.Fatalf("a silent watch has %v left", left)
			}
		}
		cancel()
		<-done
		if last := w.deadlines[len(w.deadlines)-1]; !last.IsZero() {
			t.Errorf("the connection keeps a deadline: %v", last)
		}
	})
}
