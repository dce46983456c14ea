package copies

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/replica"
	"yurtcoordinator/internal/stream"
)

var (
	endpoints = schema.GroupVersionResource{Version: "v1", Resource: "endpoints"}
	services  = schema.GroupVersionResource{Version: "v1", Resource: "services"}
)

// filler is a feed that fills its replica with one object and then waits.
type filler struct {
	replica *replica.Replica
	shared  bool
	fails   error
	away    bool   // there is nobody to ask: it fills nothing
	ends    func() // called when it ends; nil: nothing is

	mu      sync.Mutex
	running bool
}

func (f *filler) Run(ctx context.Context) error {
	f.set(true)
	defer f.set(false)
	if f.fails != nil {
		return f.fails
	}
	if f.away {
		<-ctx.Done()
		return nil
	}
	if err := f.fill(ctx); err != nil {
		return err
	}
	<-ctx.Done()
	if f.ends != nil {
		f.ends()
	}
	return nil
}

func (f *filler) fill(ctx context.Context) error {
	object := corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "b", ResourceVersion: "7"}}
	raw, err := object.Marshal()
	if err != nil {
		return err
	}
	return f.replica.Replace(ctx, stream.Snapshot{
		Type:     stream.Type{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("Service"), Encoding: stream.Protobuf},
		Revision: 7,
		Objects:  []stream.Object{{Key: stream.Key{Namespace: "a", Name: "b"}, Revision: 7, Raw: raw}},
	})
}

func (f *filler) set(running bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.running = running
}

func (f *filler) runs() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.running
}

func (f *filler) Live() bool        { return f.runs() }
func (f *filler) Source() string    { return "cloud" }
func (f *filler) Unreachable() bool { return f.away }

// world is a set that runs, and the feeds that it has made.
type world struct {
	*Set
	mu    sync.Mutex
	feeds map[string][]*filler
	stop  func() error
}

func run(t *testing.T, c Config, shared ...schema.GroupVersionResource) *world {
	t.Helper()
	w := &world{feeds: map[string][]*filler{}}
	if c.NewFeed == nil {
		c.NewFeed = func(r *replica.Replica, shared bool) (Feed, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			f := &filler{replica: r, shared: shared}
			w.feeds[r.Resource().Resource] = append(w.feeds[r.Resource().Resource], f)
			return f, nil
		}
	}
	var err error
	if w.Set, err = New(c, shared); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	w.stop = sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
	t.Cleanup(func() {
		if err := w.stop(); err != nil && !errors.Is(err, errBroken) {
			t.Error(err)
		}
	})
	synctest.Wait()
	return w
}

var errBroken = errors.New("broken")

// feed is the latest of a resource, and how many there were.
func (w *world) feed(resource string) (*filler, int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := w.feeds[resource]
	if len(all) == 0 {
		return nil, 0
	}
	return all[len(all)-1], len(all)
}

func (w *world) get(r schema.GroupVersionResource) *httptest.ResponseRecorder {
	answer := httptest.NewRecorder()
	req := httptest.NewRequest(http.MethodGet, "/api/v1/namespaces/a/"+r.Resource+"/b", nil)
	req.Header.Set("Accept", "application/json")
	w.ServeHTTP(answer, req.WithContext(request.WithRequestInfo(req.Context(), &request.RequestInfo{
		Verb: "get", APIGroup: r.Group, APIVersion: r.Version, Resource: r.Resource, Namespace: "a", Name: "b",
	})))
	return answer
}

func TestACopyIsFedOnceItIsAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := run(t, Config{Always: []schema.GroupVersionResource{services}}, endpoints)
		for _, r := range []string{"endpoints", "services"} {
			if f, n := w.feed(r); n != 1 || f.runs() || f.shared != (r == "endpoints") {
				t.Errorf("%s: %d feeds, %+v", r, n, f)
			}
		}
		if answer := w.get(endpoints); answer.Code != http.StatusOK || !strings.Contains(answer.Body.String(), `"name":"b"`) {
			t.Errorf("%d %s", answer.Code, answer.Body)
		}
		f, _ := w.feed("endpoints")
		if other, _ := w.feed("services"); !f.runs() || other.runs() {
			t.Error("another feed runs than the one that was asked for")
		}
		s := w.Status()
		if len(s) != 2 || s[0].Resource != "endpoints" || s[0].Revision != edge.Revision(7) ||
			s[0].Objects != 1 || !s[0].Shared ||
			s[1].Revision != 0 || s[1].Shared {
			t.Errorf("Status() = %+v", s)
		}
	})
}

func TestAPoolsCopiesAreFedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := run(t, Config{Always: []schema.GroupVersionResource{services}, Eager: true}, endpoints)
		f, _ := w.feed("endpoints")
		if other, _ := w.feed("services"); !f.runs() || other.runs() {
			t.Error("not exactly the shared copy is fed")
		}
	})
}

func TestChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := run(t, Config{Always: []schema.GroupVersionResource{services}, Eager: true}, endpoints)
		before, changed := w.Copies()
		first, _ := w.feed("endpoints")
		watch, err := before[0].Replica.Watch(t.Context(), 7)
		if err != nil {
			t.Fatal(err)
		}
		defer watch.Close()

		w.Change([]schema.GroupVersionResource{services})
		synctest.Wait()
		select {
		case <-changed:
		default:
			t.Error("nobody is told of the change")
		}
		if w.Has(endpoints) || first.runs() {
			t.Error("what has left the set is still there, or fed")
		}
		if _, err := watch.Next(t.Context()); err == nil {
			t.Error("a watch of what has left the set goes on")
		}
		if f, n := w.feed("services"); n != 2 || !f.runs() || !f.shared {
			t.Errorf("services, which are shared now: %d feeds, %+v", n, f)
		}
		if answer := w.get(endpoints); answer.Code != http.StatusServiceUnavailable || answer.Header().Get("Retry-After") == "" {
			t.Errorf("a request that was routed just before: %d", answer.Code)
		}

		w.Change([]schema.GroupVersionResource{services, endpoints})
		synctest.Wait()
		if f, n := w.feed("endpoints"); n != 2 || !f.runs() {
			t.Errorf("endpoints are back: %d feeds", n)
		}
		if _, n := w.feed("services"); n != 2 {
			t.Errorf("services, which have stayed, were disturbed: %d feeds", n)
		}
		if err := w.stop(); err != nil {
			t.Error(err)
		}
		if f, _ := w.feed("endpoints"); f.runs() || w.Has(endpoints) {
			t.Error("something outlives Run")
		}
	})
}

func TestAFeedThatFailsEndsTheSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := run(t, Config{Eager: true, NewFeed: func(r *replica.Replica, _ bool) (Feed, error) {
			return &filler{replica: r, fails: errBroken}, nil
		}}, endpoints)
		if err := w.stop(); !errors.Is(err, errBroken) || !strings.Contains(fmt.Sprint(err), "endpoints") {
			t.Errorf("Run: %v", err)
		}
	})
}

func TestTheViewIsReadyFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked []string
		w := run(t, Config{View: func(r schema.GroupVersionResource) (replica.View, func(context.Context)) {
			return nil, func(context.Context) { asked = append(asked, r.Resource) }
		}}, endpoints)
		w.get(endpoints)
		if len(asked) != 1 || asked[0] != "endpoints" {
			t.Errorf("ready was called for %v", asked)
		}
	})
}

// A request for a resource that becomes shared, or ceases to be, must never be sent past the hub: a watch that is opened
// at the cloud in that moment would stay there. And who needed the old copy, service topology among them, needs the new.
func TestAResourceThatStaysHasACopyAllTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := run(t, Config{Always: []schema.GroupVersionResource{services}})
		w.get(services)
		for _, shared := range [][]schema.GroupVersionResource{{services}, nil} {
			old := w.Find(services)
			f, before := w.feed("services")
			ended := false
			f.ends = func() {
				ended = true
				if now := w.Find(services); now == nil || now == old {
					t.Errorf("while the old copy ends, requests find %+v", now)
				}
				if next, n := w.feed("services"); n != before+1 || next.runs() {
					t.Errorf("while the old copy is fed there are %d feeds, the last %+v", n, next)
				}
			}
			w.Change(shared)
			synctest.Wait()
			if next, _ := w.feed("services"); !ended || !next.runs() || next.shared != (shared != nil) {
				t.Errorf("the old feed ended: %v; the next is %+v", ended, next)
			}
		}
	})
}

// survivor is what has survived of copies, and what keeps it up to date.
type survivor struct {
	t        *testing.T
	w        *world
	restored int
	saving   int
}

func (s *survivor) restore(ctx context.Context, r *replica.Replica) Saver {
	s.restored++
	if s.saving != 0 {
		s.t.Error("restored while the old copy is still being saved")
	}
	if f, _ := s.w.feed(r.Resource().Resource); f == nil || f.runs() {
		s.t.Errorf("restored when the feed is %+v", f)
	}
	object := stream.Object{
		Key: stream.Key{Namespace: "a", Name: "b"}, Revision: 5, Raw: []byte(`{"metadata":{"namespace":"a","name":"b"}}`),
	}
	if err := r.Replace(ctx, stream.Snapshot{
		Type: stream.Type{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("Service"), Encoding: stream.JSON}, Revision: 5,
		Objects: []stream.Object{object},
	}); err != nil {
		s.t.Error(err)
	}
	return savedBy(func(ctx context.Context) {
		s.saving++
		<-ctx.Done()
		if !r.Complete().Get() {
			s.t.Error("the replica was closed while it was saved")
		}
		s.saving--
	})
}

// savedBy is a Saver that has written all that there is at once.
type savedBy func(context.Context)

func (s savedBy) Run(ctx context.Context)  { s(ctx) }
func (savedBy) Sync(context.Context) error { return nil }

func TestWhatHasSurvivedComesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &survivor{t: t}
		s.w = run(t, Config{Always: []schema.GroupVersionResource{services}, Restore: s.restore})
		if s.restored != 0 {
			t.Error("restored though nobody asked")
		}
		s.w.get(services)
		synctest.Wait()
		at := s.w.Find(services).Replica.Position()
		if f, _ := s.w.feed("services"); s.restored != 1 || s.saving != 1 || !f.runs() || at != 7 {
			t.Errorf("restored %d times, saved %d at a time, fed: %v, at %d", s.restored, s.saving, f.runs(), at)
		}
		s.w.Change([]schema.GroupVersionResource{services}) // another copy, of which there must not be two to save
		synctest.Wait()
		if s.restored != 2 || s.saving != 1 {
			t.Errorf("restored %d times, saved %d at a time", s.restored, s.saving)
		}
		if err := s.w.stop(); err != nil {
			t.Error(err)
		}
		if s.saving != 0 {
			t.Error("saving outlives Run")
		}
	})
}

func TestAFeedThatFailsEndsSaving(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		saving := false
		w := run(t, Config{
			Eager:   true,
			NewFeed: func(r *replica.Replica, _ bool) (Feed, error) { return &filler{replica: r, fails: errBroken}, nil },
			Restore: func(context.Context, *replica.Replica) Saver {
				return savedBy(func(ctx context.Context) {
					saving = true
					<-ctx.Done()
					saving = false
				})
			},
		}, endpoints)
		if err := w.stop(); !errors.Is(err, errBroken) || saving {
			t.Errorf("Run: %v; saving: %v", err, saving)
		}
	})
}

// Nothing on disk and nobody to ask: the answer is known at once. What is on the disk is waited for.
func TestWhatCannotBeKnownIsRefusedAtOnce(t *testing.T) {
	for _, survived := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			restore := func(ctx context.Context, r *replica.Replica) Saver {
				time.Sleep(time.Second) // a slow disk
				if survived {
					if err := (&filler{replica: r}).fill(ctx); err != nil {
						t.Error(err)
					}
				}
				return savedBy(func(ctx context.Context) { <-ctx.Done() })
			}
			w := run(t, Config{
				Restore: restore,
				NewFeed: func(r *replica.Replica, _ bool) (Feed, error) { return &filler{replica: r, away: true}, nil },
			}, endpoints)
			began := time.Now()
			answer := w.get(endpoints)
			if want := map[bool]int{false: http.StatusServiceUnavailable, true: http.StatusOK}[survived]; answer.Code != want {
				t.Errorf("survived %v: %d %s", survived, answer.Code, answer.Body)
			}
			if !survived && !strings.Contains(answer.Body.String(), `"kind":"Status"`) {
				t.Errorf("no Status: %s", answer.Body)
			}
			if took := time.Since(began); took != time.Second {
				t.Errorf("survived %v: answered after %v", survived, took)
			}
		})
	}
}
