package cache

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/hub/link"
	"yurtcoordinator/internal/live"
	"yurtcoordinator/internal/replica"
	"yurtcoordinator/internal/store"
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
	away    bool // there is nobody to ask: it fills nothing
	status  live.Value[FeedStatus]
	ends    func() // called when it ends; nil: nothing is

	mu      sync.Mutex
	running bool
}

func (f *filler) Run(ctx context.Context) {
	f.set(true)
	status := f.status.Get() // what the test has said of it stays
	status.Source, status.Fresh = Cloud, !f.away
	f.status.Set(status)
	defer f.set(false)
	if !f.away {
		_ = f.fill(ctx) // else it is shown to be empty
	}
	<-ctx.Done()
	if !f.away && f.ends != nil {
		f.ends()
	}
}

func (f *filler) fill(ctx context.Context) error {
	all, err := content()
	if err != nil {
		return err
	}
	return f.replica.Replace(ctx, all)
}

func content() (stream.Snapshot, error) {
	object := corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "b", ResourceVersion: "7"}}
	raw, err := object.Marshal()
	return stream.Snapshot{
		Type:     stream.Type{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("Service"), Encoding: stream.Protobuf},
		Revision: 7,
		Objects:  []stream.Object{{Key: stream.Key{Namespace: "a", Name: "b"}, Revision: 7, Raw: raw}},
	}, err
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

func (f *filler) Status() *live.Value[FeedStatus] { return &f.status }

// fixedWorld is a set that runs, and the feeds that it has made.
type fixedWorld struct {
	*Set
	mu    sync.Mutex
	feeds map[string][]*filler
	stop  func() error
}

func runSet(t *testing.T, c Config, shared ...schema.GroupVersionResource) *fixedWorld {
	t.Helper()
	w := &fixedWorld{}
	w.start(t, c, shared...)
	return w
}

func (w *fixedWorld) start(t *testing.T, c Config, shared ...schema.GroupVersionResource) {
	t.Helper()
	w.feeds = map[string][]*filler{}
	if c.NewFeed == nil {
		c.NewFeed = func(o Order) Feeder {
			w.mu.Lock()
			defer w.mu.Unlock()
			f := &filler{replica: o.Replica, shared: o.Shared}
			w.feeds[o.Resource.Resource] = append(w.feeds[o.Resource.Resource], f)
			return f
		}
	}
	if c.Disk == nil {
		c.Disk = store.NewMemory(nil)
	}
	if c.Cloud == nil {
		c.Cloud = live.NewValue(link.Up)
	}
	c.Coordinator, c.Changed = cmp.Or(c.Coordinator, live.NewValue(link.Down)), func() {}
	w.Set = New(c, shared)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	w.stop = sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
	t.Cleanup(func() {
		if err := w.stop(); err != nil {
			t.Error(err)
		}
	})
	synctest.Wait()
}

// feed is the latest of a resource, and how many there were.
func (w *fixedWorld) feed(resource string) (*filler, int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := w.feeds[resource]
	if len(all) == 0 {
		return nil, 0
	}
	return all[len(all)-1], len(all)
}

func (w *fixedWorld) get(r schema.GroupVersionResource) *httptest.ResponseRecorder {
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
		w := runSet(t, Config{Always: []Selection{Whole(services)}}, endpoints)
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
		if len(s) != 2 || s[0].Selection != Whole(endpoints) || s[0].Revision != edge.Revision(7) ||
			s[0].Objects != 1 || !s[0].Shared ||
			s[1].Revision != 0 || s[1].Shared {
			t.Errorf("Status() = %+v", s)
		}
	})
}

func TestAPoolsCopiesAreFedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := runSet(t, Config{Always: []Selection{Whole(services)}, Eager: true}, endpoints)
		f, _ := w.feed("endpoints")
		if other, _ := w.feed("services"); !f.runs() || other.runs() {
			t.Error("not exactly the shared copy is fed")
		}
	})
}

func TestChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := runSet(t, Config{Always: []Selection{Whole(services)}, Eager: true}, endpoints)
		before, changed := w.Shared()
		if len(before) != 1 || before[0].Resource != endpoints {
			t.Errorf("the pool shares %v", before)
		}
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
		if now, _ := w.Shared(); len(now) != 1 || now[0].Resource != services {
			t.Errorf("the pool shares %v", now)
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

// pool is what service topology has to know beside the Services.
var pool = Selection{
	Resource: schema.GroupVersionResource{Group: "apps.openyurt.io", Version: "v1beta2", Resource: "nodepools"},
	Fields:   "metadata.name=p1",
}

// A view that can't learn is waited for only so long: not at all if the cloud denies what it needs.
func TestAViewThatCannotLearnIsNotWaitedFor(t *testing.T) {
	for name, tt := range map[string]struct {
		state  link.State
		denied bool
		want   time.Duration
	}{
		"the cloud is up":                {link.Up, false, viewWait},
		"the cloud is down":              {link.Down, false, offlineWait},
		"the cloud denies what it is of": {link.Up, true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				v := &View{Complete: live.NewValue(false), From: Whole(services)}
				w := runSet(t, Config{
					Cloud: live.NewValue(tt.state), Always: []Selection{Whole(services)},
					View: func(r schema.GroupVersionResource) *View {
						if r != endpoints {
							return nil
						}
						return v
					},
				}, endpoints)
				w.find(Whole(endpoints)).want()
				f, _ := w.feed("services")
				f.status.Set(FeedStatus{Source: Cloud, Refused: "no permission", Denied: tt.denied})
				synctest.Wait()
				began := time.Now()
				if answer := w.get(endpoints); answer.Code != http.StatusOK {
					t.Errorf("%d %s", answer.Code, answer.Body)
				}
				if took := time.Since(began); took != tt.want {
					t.Errorf("it took %v, want %v", took, tt.want)
				}
			})
		})
	}
}

func TestTheViewIsReadyFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := &View{Complete: live.NewValue(false), From: Whole(services), Also: []Selection{pool}}
		w := runSet(t, Config{Always: []Selection{Whole(services), pool}, View: func(r schema.GroupVersionResource) *View {
			if r != endpoints {
				return nil
			}
			return v
		}}, endpoints)
		answered := make(chan *httptest.ResponseRecorder, 1)
		go func() { answered <- w.get(endpoints) }()
		synctest.Wait()
		for _, r := range []string{"services", "nodepools"} {
			if f, _ := w.feed(r); !f.runs() {
				t.Errorf("%s, from which the view learns, are not fed", r)
			}
		}
		select {
		case answer := <-answered:
			t.Fatalf("answered before the view knows: %d %s", answer.Code, answer.Body)
		default:
		}
		v.Complete.Set(true)
		if answer := <-answered; answer.Code != http.StatusOK {
			t.Errorf("%d %s", answer.Code, answer.Body)
		}
	})
}

// A request for a resource that becomes shared, or stops being shared, must never bypass the hub: a watch opened at the cloud in
// that moment would stay there. Clients that needed the old copy, service topology among them, need the new one.
func TestAResourceThatStaysHasACopyAllTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := runSet(t, Config{Always: []Selection{Whole(services)}})
		w.get(services)
		for _, shared := range [][]schema.GroupVersionResource{{services}, nil} {
			old := w.find(Whole(services))
			f, before := w.feed("services")
			ended := false
			f.ends = func() {
				ended = true
				if now := w.find(Whole(services)); now == nil || now == old {
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

// survivor is a disk that has a content of each, and counts who writes to it.
type survivor struct {
	*store.Store
	t        *testing.T
	w        *fixedWorld
	restored atomic.Int32
	saving   atomic.Int32
}

func (s *survivor) Load(id store.Collection) (stream.Snapshot, error) {
	s.restored.Add(1)
	if s.saving.Load() != 0 {
		s.t.Error("restored while the old copy is still being saved")
	}
	if f, _ := s.w.feed(id.Resource.Resource); f == nil || f.runs() {
		s.t.Errorf("restored when the feed is %+v", f)
	}
	return stream.Snapshot{
		Type: stream.Type{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("Service"), Encoding: stream.JSON}, Revision: 5,
		Objects: []stream.Object{{
			Key: stream.Key{Namespace: "a", Name: "b"}, Revision: 5, Raw: []byte(`{"metadata":{"namespace":"a","name":"b"}}`),
		}},
	}, nil
}

func (s *survivor) Sink(id store.Collection) stream.Sink {
	s.w.Set.mu.Lock()
	defer s.w.Set.mu.Unlock()
	return writing{s, s.w.members[id].Replica}
}

// writing is a Sink that never has done with it.
type writing struct {
	disk    *survivor
	replica *replica.Replica
}

func (writing) Position() edge.Revision { return 0 }

func (w writing) Replace(ctx context.Context, _ stream.Snapshot) error {
	w.disk.saving.Add(1)
	<-ctx.Done()
	if !w.replica.Complete().Get() {
		w.disk.t.Error("the replica was closed while it was saved")
	}
	w.disk.saving.Add(-1)
	return context.Cause(ctx)
}

func (writing) Apply(context.Context, []stream.Event) error { return nil }

func TestWhatHasSurvivedComesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &survivor{Store: store.NewMemory(nil), t: t}
		s.w = &fixedWorld{}
		s.w.start(t, Config{Always: []Selection{Whole(services)}, Disk: s})
		if s.restored.Load() != 0 {
			t.Error("restored though nobody asked")
		}
		s.w.get(services)
		synctest.Wait()
		at := s.w.find(Whole(services)).Replica.Position()
		if f, _ := s.w.feed("services"); s.restored.Load() != 1 || s.saving.Load() != 1 || !f.runs() || at != 7 {
			t.Errorf("restored %d times, saved %d at a time, fed: %v, at %d", s.restored.Load(), s.saving.Load(), f.runs(), at)
		}
		s.w.Change([]schema.GroupVersionResource{services}) // another copy, of which there must not be two to save
		synctest.Wait()
		if s.restored.Load() != 2 || s.saving.Load() != 1 {
			t.Errorf("restored %d times, saved %d at a time", s.restored.Load(), s.saving.Load())
		}
		if err := s.w.stop(); err != nil {
			t.Error(err)
		}
		if s.saving.Load() != 0 {
			t.Error("saving outlives Run")
		}
	})
}

// slow is a disk that takes a second to be read.
type slow struct {
	*store.Store
	survived bool
}

func (s slow) Load(store.Collection) (stream.Snapshot, error) {
	time.Sleep(time.Second)
	if !s.survived {
		return stream.Snapshot{}, store.ErrMiss
	}
	return content()
}

// Nothing on disk and nobody to ask: the answer is known at once. What is on the disk is waited for.
func TestWhatCannotBeKnownIsRefusedAtOnce(t *testing.T) {
	for _, survived := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := runSet(t, Config{
				Disk:  slow{Store: store.NewMemory(nil), survived: survived},
				Cloud: live.NewValue(link.Down), Coordinator: live.NewValue(link.Down),
				NewFeed: func(o Order) Feeder { return &filler{replica: o.Replica, away: true} },
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

// What never was restored, because it was given up at the moment when somebody wanted it, keeps nobody waiting.
func TestNobodyWaitsForWhatWasGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := runSet(t, Config{Always: []Selection{Whole(services)}})
		m := w.find(Whole(services))
		if err := w.stop(); err != nil {
			t.Fatal(err)
		}
		select {
		case <-m.restored:
		default:
			t.Error("who waits for it waits for ever")
		}
	})
}

// What the hub follows for itself comes back with a new hub, under the ID that it always had.
func TestACopyComesBackFromTheDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		life := func(state link.State, use func(w *fixedWorld)) {
			disk, err := store.Open(store.Config{Dir: dir})
			if err != nil {
				t.Fatal(err)
			}
			w := runSet(t, Config{Disk: disk, Always: []Selection{Whole(services)}, Cloud: live.NewValue(state)})
			if state == link.Down {
				f, _ := w.feed("services")
				f.away = true
			}
			use(w)
			if err := w.stop(); err != nil {
				t.Error(err)
			}
			if err := disk.Flush(t.Context()); err != nil {
				t.Error(err)
			}
			if _, err := disk.Load(store.Collection{Client: "yurthub", Resource: services}); err != nil {
				t.Error(err)
			}
			if _, err := disk.Load(store.Collection{Resource: services}); !errors.Is(err, store.ErrMiss) {
				t.Errorf("it is there under another name: %v", err)
			}
			if err := disk.Close(); err != nil {
				t.Error(err)
			}
		}
		life(link.Up, func(w *fixedWorld) {
			w.get(services)
			synctest.Wait()
		})
		life(link.Down, func(w *fixedWorld) {
			if answer := w.get(services); answer.Code != http.StatusOK || w.Position(Whole(services)) != 7 {
				t.Errorf("%d %s at revision %d", answer.Code, answer.Body, w.Position(Whole(services)))
			}
		})
	})
}

func (f *filler) Refresh() {}

func (f *filler) Filling() int { return 0 }
