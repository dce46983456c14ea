package cache

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/hub/link"
	"yurtcoordinator/internal/hub/recall"
	"yurtcoordinator/internal/live"
	"yurtcoordinator/internal/replica"
	"yurtcoordinator/internal/store"
	"yurtcoordinator/internal/stream"
)

var (
	jsonMaps = stream.Type{GroupVersionKind: configMaps.GroupVersion().WithKind("ConfigMap"), Encoding: stream.JSON}
	// inA is the selection of "/api/v1/namespaces/a/configmaps".
	inA = Selection{Resource: configMaps, Namespace: "a"}
)

const listOfA = "/api/v1/namespaces/a/configmaps"

// setObject is a ConfigMap of namespace a.
func setObject(name string, revision edge.Revision) stream.Object {
	return stream.Object{
		Key: stream.Key{Namespace: "a", Name: name}, Revision: revision,
		Raw: fmt.Appendf(nil, `{"metadata":{"namespace":"a","name":%q,"resourceVersion":"%d"},"data":{"at":"%[2]d"}}`,
			name, revision),
	}
}

// source is a selection at the cloud.
type source struct {
	*replica.Replica

	mu    sync.Mutex
	fails error // of lists
	// watchFails is of watches.
	watchFails error
	lists      int
	running    int           // feeds
	slow       time.Duration // how long a list and a watch take to be answered
	hold       chan struct{} // if not nil, feeds do not end before it is closed
}

func (s *source) Snapshot(ctx context.Context) (stream.Snapshot, error) {
	s.mu.Lock()
	s.lists++
	err, slow := s.fails, s.slow
	s.mu.Unlock()
	if err := wait(ctx, slow); err != nil {
		return stream.Snapshot{}, err
	}
	if err != nil {
		return stream.Snapshot{}, err
	}
	return s.Replica.Snapshot(ctx)
}

func (s *source) Watch(ctx context.Context, after edge.Revision) (stream.Watch, error) {
	s.mu.Lock()
	err, slow := s.watchFails, s.slow
	s.mu.Unlock()
	if err := wait(ctx, slow); err != nil {
		return nil, err
	}
	if err != nil {
		return nil, err
	}
	return s.Replica.Watch(ctx, after)
}

// Look implements Prover.
func (s *source) Look(_ context.Context, key stream.Key, _ edge.Revision) (current, object edge.Revision, err error) {
	o, _ := s.Get(key)
	return s.Position(), o.Revision, nil
}

func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (s *source) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

func (s *source) count() (lists, running int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lists, s.running
}

// feeding is a real feed that is counted.
type feeding struct {
	*Feed
	source *source
	t      *testing.T
}

func (f feeding) Run(ctx context.Context) {
	f.source.set(func() {
		if f.source.running++; f.source.running > 1 {
			f.t.Error("two feeds of one selection run at the same time")
		}
	})
	f.Feed.Run(ctx)
	f.source.mu.Lock()
	hold := f.source.hold
	f.source.mu.Unlock()
	if hold != nil {
		<-hold
	}
	f.source.set(func() { f.source.running-- })
}

// faulty is a disk that can be broken.
type faulty struct {
	*store.Store
	mu    sync.Mutex
	fails error
}

func (f *faulty) failure() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.fails
}

func (f *faulty) PutBlob(key string, value []byte) error {
	if err := f.failure(); err != nil {
		return err
	}
	return f.Store.PutBlob(key, value)
}

func (f *faulty) Sink(id store.Collection) stream.Sink { return faultySink{f.Store.Sink(id), f} }

type faultySink struct {
	stream.Sink
	disk *faulty
}

func (s faultySink) Position() edge.Revision {
	if s.disk.failure() != nil {
		return 0
	}
	return s.Sink.Position()
}

func (s faultySink) Replace(ctx context.Context, all stream.Snapshot) error {
	if err := s.disk.failure(); err != nil {
		return err
	}
	return s.Sink.Replace(ctx, all)
}

func (s faultySink) Apply(ctx context.Context, events []stream.Event) error {
	if err := s.disk.failure(); err != nil {
		return err
	}
	return s.Sink.Apply(ctx, events)
}

// setWorld is a hub's set, what it remembers, its disk, and the cloud. Use it in a bubble.
type setWorld struct {
	*Set
	client  string // who asks
	t       *testing.T
	dir     string
	disk    *faulty
	link    *live.Value[link.State]
	mu      sync.Mutex
	sources map[Selection]*source
	said    []string // what the cloud was asked by passing on
	cloud   http.HandlerFunc
	stop    func()
	// histories has open make history, which feeds follow then.
	histories bool
	history   *HistoryKeeper
	// kubelet is the Config's KubeletView of the sets that open makes.
	kubelet func(Selection) replica.View
}

func newWorld(t *testing.T) *setWorld {
	t.Helper()
	w := &setWorld{t: t, dir: t.TempDir(), link: live.NewValue(link.Up), sources: map[Selection]*source{}, stop: func() {}}
	w.cloud = func(out http.ResponseWriter, _ *http.Request) {
		out.Header().Set("Content-Type", "text/plain")
		_, _ = io.WriteString(out, "the cloud's own")
	}
	w.open()
	t.Cleanup(func() { w.stop() })
	return w
}

// onDisk reports whether a collection is on the disk.
func (w *setWorld) onDisk(id store.Collection) bool {
	_, err := w.disk.Load(id)
	return err == nil
}

// open makes the set anew, from the disk alone.
func (w *setWorld) open() {
	w.t.Helper()
	disk, err := store.Open(store.Config{Dir: w.dir})
	if err != nil {
		w.t.Fatal(err)
	}
	w.openOn(&faulty{Store: disk})
	w.stop = func() { _ = disk.Close() }
}

// openOn makes the set anew, from a disk.
func (w *setWorld) openOn(disk *faulty) {
	w.disk = disk
	w.history = NewHistory(HistoryConfig{Link: w.link, Disk: w.disk})
	config := Config{
		Disk: w.disk, Cloud: w.link, Coordinator: live.NewValue(link.Down), Changed: func() {}, KubeletView: w.kubelet,
	}
	config.NewFeed = func(o Order) Feeder {
		s := w.source(of(o.Client, o.Selection))
		config := FeedConfig{
			Resource: o.Resource, Sink: o.Replica, Cloud: s, CloudLink: w.link, Lists: make(chan struct{}, 1),
			Metrics: NewFeedMetrics(nil), History: neverProven,
		}
		if w.histories {
			config.History = func() History { return w.history.Of(o.Client, o.Resource.GroupResource()) }
		}
		return feeding{NewFeed(config), s, w.t}
	}
	w.Set = New(config, nil)
}

// run runs the set and its disk until stop.
func (w *setWorld) run() {
	ctx, cancel := context.WithCancel(w.t.Context())
	writing, writer := context.WithCancel(w.t.Context())
	ended, written, known := make(chan error, 1), make(chan error, 1), make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	go func() {
		defer close(known)
		if w.histories {
			known <- w.history.Run(ctx)
		}
	}()
	go func() { written <- w.disk.Run(writing) }()
	w.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			w.t.Errorf("Run: %v", err)
		}
		if err := <-known; err != nil {
			w.t.Errorf("the history's Run: %v", err)
		}
		writer()
		if err := <-written; err != nil {
			w.t.Errorf("the disk's Run: %v", err)
		}
		if err := w.disk.Close(); err != nil {
			w.t.Error(err)
		}
	})
	synctest.Wait()
}

// restart is a restart of the hub.
func (w *setWorld) restart() {
	w.stop()
	w.open()
	w.run()
}

var errBroken = errors.New("broken")

// source is a selection at the cloud, which has nothing yet.
func (w *setWorld) source(what Selection) *source {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.sources[what]
	if s == nil {
		r := replica.New(replica.Config{Resource: what.Resource})
		s = &source{Replica: r}
		w.sources[what] = s
	}
	return s
}

// has gives the cloud a content.
func (w *setWorld) has(what Selection, revision edge.Revision, objects ...stream.Object) *source {
	w.t.Helper()
	return w.hasAs(jsonMaps, what, revision, objects...)
}

func (w *setWorld) hasAs(t stream.Type, what Selection, revision edge.Revision, objects ...stream.Object) *source {
	w.t.Helper()
	s := w.source(what)
	all := stream.Snapshot{Type: t, Revision: revision, Objects: objects}
	if err := s.Replace(context.Background(), all); err != nil {
		w.t.Fatal(err)
	}
	return s
}

func (w *setWorld) apply(what Selection, kind stream.EventType, o stream.Object) {
	w.t.Helper()
	if err := w.source(what).Apply(context.Background(), []stream.Event{{Type: kind, Object: o}}); err != nil {
		w.t.Fatal(err)
	}
	synctest.Wait()
}

// passed returns what was passed on since it was last asked.
func (w *setWorld) passed() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	said := w.said
	w.said = nil
	return said
}

var infos = &request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}

// ask makes the set answer, as the front does.
func (w *setWorld) ask(method, target, body string, header ...string) *httptest.ResponseRecorder {
	w.t.Helper()
	out := httptest.NewRecorder()
	w.serve(w.t.Context(), out, method, target, body, header...)
	return out
}

func (w *setWorld) serve(ctx context.Context, out http.ResponseWriter, method, target, body string, header ...string) {
	w.t.Helper()
	var content io.Reader
	if body != "" {
		content = strings.NewReader(body)
	}
	ctx, answered := context.WithCancel(ctx)
	defer answered()
	r := httptest.NewRequest(method, target, content).WithContext(ctx)
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	info, err := infos.NewRequestInfo(r)
	if err != nil {
		w.t.Fatal(err)
	}
	pass := http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		w.mu.Lock()
		w.said = append(w.said, r.Method+" "+r.URL.RequestURI())
		w.mu.Unlock()
		w.cloud(out, r)
	})
	client := w.client
	r = r.WithContext(request.WithRequestInfo(r.Context(), info))
	answers, down := w.answers(client), w.link.Get() == link.Down
	switch {
	case info.Verb == "list" || info.Verb == "watch":
		if !w.Answer(out, r, client) {
			pass.ServeHTTP(out, r)
		}
	case down && (w.Answer(out, r, client) || answers.Recall(out, r)):
	default:
		said := httptest.NewRecorder()
		answers.Remember(said, r, pass)
		if !down && said.Code >= http.StatusBadGateway && (w.Answer(out, r, client) || answers.Recall(out, r)) {
			return
		}
		maps.Copy(out.Header(), said.Header())
		out.WriteHeader(said.Code)
		_, _ = out.Write(said.Body.Bytes())
	}
}

// answers are what is remembered for a client.
func (w *setWorld) answers(client string) *recall.Answers {
	w.t.Helper()
	return recall.New(recall.Config{Client: client, Disk: w.disk, Tenure: &recall.Tenure{}}) // nobody is reviewed
}

const (
	secret = "/api/v1/namespaces/a/secrets/s"
	token  = "/api/v1/namespaces/a/serviceaccounts/sa/token"
	asJSON = "application/json"
)

// says makes the cloud answer with a body of a type.
func (w *setWorld) says(code int, contentType, body string) {
	w.cloud = func(out http.ResponseWriter, _ *http.Request) {
		out.Header().Set("Content-Type", contentType)
		out.WriteHeader(code)
		_, _ = io.WriteString(out, body)
	}
}

// offline asks while the link is down; what is not remembered is answered "unknown".
func (w *setWorld) offline(method, target, body string) *httptest.ResponseRecorder {
	w.t.Helper()
	was, cloud := w.link.Get(), w.cloud
	w.link.Set(link.Down)
	w.says(http.StatusServiceUnavailable, "text/plain", "unknown")
	out := w.ask(method, target, body)
	w.link.Set(was)
	w.cloud = cloud
	w.passed()
	return out
}

func (w *setWorld) get(target string, header ...string) *httptest.ResponseRecorder {
	w.t.Helper()
	return w.ask(http.MethodGet, target, "", header...)
}

// watch begins a request that lasts, and returns where its answer comes and what ends it.
func (w *setWorld) watch(target string) (out *httptest.ResponseRecorder, end func()) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(w.t.Context())
	out = httptest.NewRecorder()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.serve(ctx, out, http.MethodGet, target, "")
	}()
	synctest.Wait()
	return out, sync.OnceFunc(func() {
		cancel()
		<-ended
	})
}

// want checks an answer.
func want(t *testing.T, out *httptest.ResponseRecorder, code int, parts ...string) {
	t.Helper()
	if out.Code != code {
		t.Errorf("%d, want %d: %s", out.Code, code, out.Body)
	}
	for _, part := range parts {
		if !strings.Contains(out.Body.String(), part) {
			t.Errorf("the answer has no %s: %s", part, out.Body)
		}
	}
	if code == http.StatusServiceUnavailable && out.Header().Get("Retry-After") == "" {
		t.Error("503 without Retry-After")
	}
}

func unavailable() error { return apierrors.NewServiceUnavailable("no quorum") }

func forbidden() error {
	return apierrors.NewForbidden(configMaps.GroupResource(), "", errors.New("the node may not"))
}

// nothing checks that the cloud was not asked by passing on.
func (w *setWorld) nothing() {
	w.t.Helper()
	if said := w.passed(); said != nil {
		w.t.Errorf("passed on: %v", said)
	}
}

// passedOn checks that one request, and no other, was passed on.
func (w *setWorld) passedOn() {
	w.t.Helper()
	if said := w.passed(); len(said) != 1 {
		w.t.Errorf("passed on: %v, want one request", said)
	}
}
