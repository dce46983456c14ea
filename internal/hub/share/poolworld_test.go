package share

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/hub/hubtest"
	"yurtcoordinator/internal/live"
	"yurtcoordinator/internal/replica"
	"yurtcoordinator/internal/stream"
)

var (
	things = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "things"}
	others = schema.GroupVersionResource{Version: "v1", Resource: "others"}
)

// source is a replica whose revisions are its changes, one by one, so that a gap shows.
type source struct {
	*replica.Replica
	t        *testing.T
	revision edge.Revision
	live     atomic.Bool
	filling  atomic.Int64
}

func newSource(t *testing.T, gvr schema.GroupVersionResource, names ...string) *source {
	t.Helper()
	r := replica.New(replica.Config{Resource: gvr})
	s := &source{Replica: r, t: t, revision: 100}
	s.live.Store(true)
	if names != nil {
		s.fill(names...)
	}
	return s
}

func (s *source) object(name string, revision edge.Revision) stream.Object {
	return stream.Object{Key: stream.Key{Namespace: "ns", Name: name}, Revision: revision, Raw: fmt.Appendf(nil,
		`{"metadata":{"namespace":"ns","name":%q,"resourceVersion":"%d"}}`, name, revision)}
}

// of is the type of its objects.
func (s *source) of() stream.Type {
	return stream.Type{GroupVersionKind: s.Resource().GroupVersion().WithKind("Thing"), Encoding: stream.JSON}
}

// fill begins the replica anew, at a later revision.
func (s *source) fill(names ...string) {
	s.t.Helper()
	s.revision += 10
	snapshot := stream.Snapshot{Revision: s.revision, Type: s.of()}
	for _, n := range slices.Sorted(slices.Values(names)) {
		snapshot.Objects = append(snapshot.Objects, s.object(n, s.revision))
	}
	if err := s.Replace(s.t.Context(), snapshot); err != nil {
		s.t.Fatal(err)
	}
}

func (s *source) tell(events ...stream.Event) {
	s.t.Helper()
	if err := s.Apply(s.t.Context(), events); err != nil {
		s.t.Fatal(err)
	}
}

func (s *source) put(names ...string) {
	s.t.Helper()
	var events []stream.Event
	for _, n := range names {
		s.revision++
		events = append(events, stream.Event{Type: stream.Modified, Object: s.object(n, s.revision)})
	}
	s.tell(events...)
}

func (s *source) remove(name string) {
	s.t.Helper()
	s.revision++
	s.tell(stream.Event{Type: stream.Deleted, Object: s.object(name, s.revision)})
}

func (s *source) bookmark() {
	s.t.Helper()
	s.revision++
	s.tell(stream.Event{Type: stream.Bookmark, Object: stream.Object{Revision: s.revision}})
}

// store is one resource in the coordinator.
type store struct {
	applied edge.Revision
	history string
	filled  bool // by a filler
	objects map[string]edge.Revision
}

// answered is how the mirror refuses a push.
type answered struct {
	code       int
	message    string
	applied    edge.Revision // of a conflict: where the mirror stands
	retryAfter time.Duration
}

// coordinator is a mirror by its protocol, with faults.
type coordinator struct {
	t *testing.T

	mu       sync.Mutex
	instance int
	stores   map[string]*store
	term     string
	before   func(*http.Request) error // may block until the request ends
	after    func(*http.Request) error
	answer   func(*http.Request, []stream.Event) *answered
	posts    []string // what was applied: "full 3", "12 changes", "bookmark" if it told something new
	requests int

	histories bool          // it knows of them
	older     int           // pushes of everything that were older than what it had
	lie       edge.Revision // acknowledged instead of where the mirror stands
	cut       func()        // breaks off the last push of changes that was answered
}

// RoundTrip implements http.RoundTripper: the LAN.
func (c *coordinator) RoundTrip(r *http.Request) (*http.Response, error) {
	c.set(func() { c.requests++ })
	if r.Method == http.MethodPost && r.URL.Query().Has("from") {
		return c.follow(r)
	}
	if r.Body != nil {
		defer r.Body.Close()
	}
	if err := c.meet(r, &c.before); err != nil {
		return nil, err
	}
	w := httptest.NewRecorder()
	if r.Method == http.MethodGet {
		w.Body = bytes.NewBuffer(c.index())
	} else {
		events, err := read(c.frames(r))
		if err != nil {
			return nil, err
		}
		why := c.take(r, 0, events)
		code, header := status(why)
		maps.Copy(w.Header(), header)
		w.WriteHeader(code)
		_, _ = w.Write(c.line(r, why))
	}
	if err := c.meet(r, &c.after); err != nil {
		return nil, err
	}
	return w.Result(), nil
}

// meet is what a request, or a batch, meets on its way, and fails if its sender has given up.
func (c *coordinator) meet(r *http.Request, fault *func(*http.Request) error) error {
	c.mu.Lock()
	met := *fault
	c.mu.Unlock()
	if met != nil {
		if err := met(r); err != nil {
			return err
		}
	}
	return context.Cause(r.Context())
}

// follow answers a push of changes, line by line; the answer begins with the first.
func (c *coordinator) follow(r *http.Request) (*http.Response, error) {
	at, err := edge.ParseRevision(r.URL.Query().Get("from"))
	if err != nil {
		c.t.Error(err)
	}
	frames := c.frames(r)
	body, answer := io.Pipe()
	context.AfterFunc(r.Context(), func() { _ = answer.CloseWithError(context.Cause(r.Context())) })
	// batch takes one in.
	batch := func() (line []byte, why *answered, err error) {
		events, err := read(frames)
		if err == nil {
			err = c.meet(r, &c.before)
		}
		if err != nil {
			return nil, nil, err
		}
		why = c.take(r, at, events)
		at = events[len(events)-1].Object.Revision
		return c.line(r, why), why, c.meet(r, &c.after)
	}
	line, why, err := batch()
	if err != nil {
		_ = r.Body.Close()
		return nil, err
	}
	c.set(func() { c.cut = func() { _ = answer.CloseWithError(errors.New("connection reset")) } })
	response := &http.Response{Body: body}
	response.StatusCode, response.Header = status(why)
	go func() { // until the request ends
		defer r.Body.Close()
		for err == nil && why == nil {
			if _, err = answer.Write(line); err == nil {
				line, why, err = batch()
			}
		}
		if why != nil {
			_, _ = answer.Write(line)
		}
		_ = answer.CloseWithError(err)
	}()
	return response, nil
}

func status(why *answered) (code int, header http.Header) {
	code, header = http.StatusOK, http.Header{}
	if why != nil {
		code = why.code
	}
	if why != nil && why.retryAfter > 0 {
		header.Set("Retry-After", fmt.Sprint(int(why.retryAfter.Seconds())))
	}
	return code, header
}

func (c *coordinator) frames(r *http.Request) *stream.FrameReader {
	e, err := stream.EncodingOf(r.Header.Get("Content-Type"))
	if err != nil || r.Method != http.MethodPost {
		c.t.Errorf("%s %s: %v", r.Method, r.URL, err)
	}
	return stream.NewFrameReader(r.Body, e, 8<<20)
}

// read reads a batch: up to a bookmark of one sort or the other.
func read(frames *stream.FrameReader) (events []stream.Event, err error) {
	for {
		event, err := frames.Read()
		if err != nil {
			return nil, err
		}
		if events = append(events, event); event.Type == stream.Bookmark || event.Type == stream.InitialEventsEnd {
			return events, nil
		}
	}
}

// index is where the mirror stands.
func (c *coordinator) index() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	resources := []map[string]any{}
	for path, s := range c.stores {
		parts := strings.Split(strings.TrimPrefix(path, "/mirror/v1/"), "/")
		resources = append(resources, map[string]any{
			"group": strings.TrimPrefix(parts[0], "core"), "version": parts[1], "resource": parts[2],
			"applied": strconv.FormatUint(uint64(s.applied), 10),
		})
		if c.histories {
			resources[len(resources)-1]["history"], resources[len(resources)-1]["filled"] = s.history, s.filled
		}
	}
	return c.json(map[string]any{"instance": fmt.Sprint(c.instance), "resources": resources})
}

// line is what a push is told.
func (c *coordinator) line(r *http.Request, why *answered) []byte {
	if why != nil {
		return c.json(map[string]any{
			"kind": "Status", "message": why.message, "code": why.code, "applied": strconv.FormatUint(uint64(why.applied), 10),
			"details": map[string]int{"retryAfterSeconds": int(why.retryAfter.Seconds())},
		})
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	applied := c.stores[r.URL.Path].applied
	if c.lie != 0 {
		applied = c.lie
	}
	return c.json(map[string]string{"applied": applied.String()})
}

func (c *coordinator) json(content any) []byte {
	text, err := json.Marshal(content)
	if err != nil {
		c.t.Error(err)
	}
	return append(text, '\n')
}

// take applies a push.
func (c *coordinator) take(r *http.Request, from edge.Revision, events []stream.Event) *answered {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.answer != nil {
		if why := c.answer(r, events); why != nil {
			return why
		}
	}
	if r.URL.Query().Get("term") != c.term {
		return &answered{code: http.StatusForbidden, message: "you do not lead"}
	}
	s := c.stores[r.URL.Path]
	if s == nil {
		s = &store{}
		c.stores[r.URL.Path] = s
	}
	in := r.Header.Get(edge.HeaderHistory)
	if s.filled && from == 0 {
		s.filled, s.applied = false, 0 // whatever comes from a leader replaces it
	}
	if c.histories && s.applied != 0 && (s.filled || in < s.history || from != 0 && in != s.history) {
		return &answered{code: http.StatusConflict, applied: s.applied, message: "another history"}
	}
	if c.histories && from == 0 && in == s.history && events[len(events)-1].Object.Revision < s.applied {
		if c.older++; c.older < 3 {
			return &answered{code: http.StatusConflict, applied: s.applied, retryAfter: 15 * time.Second}
		}
	}
	s.history = in
	if from != 0 {
		if from != s.applied {
			return &answered{code: http.StatusConflict, applied: s.applied}
		}
		changes := 0
		for _, e := range events {
			switch {
			case e.Type == stream.Bookmark && e.Object.Revision < s.applied:
				c.t.Errorf("a bookmark at %s after %s", e.Object.Revision, s.applied)
			case e.Type == stream.Bookmark:
			case e.Object.Revision != s.applied+1:
				c.t.Errorf("revision %s follows %s: something is missing", e.Object.Revision, s.applied)
			case e.Type == stream.Deleted:
				delete(s.objects, e.Object.Key.String())
				changes++
			default:
				s.objects[e.Object.Key.String()] = e.Object.Revision
				changes++
			}
			s.applied = e.Object.Revision
		}
		if changes > maxEvents {
			c.t.Errorf("a batch of %d changes", changes)
		}
		switch {
		case changes > 0:
			c.posts = append(c.posts, fmt.Sprintf("%d changes", changes))
		case s.applied > from:
			c.posts = append(c.posts, "bookmark")
		}
		return nil
	}
	end := events[len(events)-1]
	if end.Type != stream.InitialEventsEnd {
		c.t.Errorf("a full stream ends in %s", end.Type)
	}
	if end.Object.Revision < s.applied && !c.histories {
		return &answered{code: http.StatusConflict, applied: s.applied}
	}
	s.applied, s.objects = end.Object.Revision, map[string]edge.Revision{}
	for _, e := range events[:len(events)-1] {
		s.objects[e.Object.Key.String()] = e.Object.Revision
	}
	c.posts = append(c.posts, fmt.Sprintf("full %d", len(s.objects)))
	return nil
}

func (c *coordinator) set(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
}

// hang is a fault: nothing comes back.
func hang(r *http.Request) error {
	<-r.Context().Done()
	return context.Cause(r.Context())
}

// onPosts limits a fault to pushes.
func onPosts(fault func(*http.Request) error) func(*http.Request) error {
	return func(r *http.Request) error {
		if r.Method == http.MethodPost {
			return fault(r)
		}
		return nil
	}
}

// set is a Set that tests change.
type set struct {
	live.Value[int] // changes with the list
	mu              sync.Mutex
	list            []Resource
}

func (s *set) Resources() ([]Resource, <-chan struct{}) {
	_, changed := s.Watch()
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.list), changed
}

func (s *set) become(sources ...*source) {
	s.mu.Lock()
	s.list = nil
	for _, each := range sources {
		s.list = append(s.list, Resource{GVR: each.Resource(), Replica: each.Replica, Live: each.live.Load,
			Filling: func() int { return int(each.filling.Load()) },
		})
	}
	s.mu.Unlock()
	s.Set(s.Get() + 1)
	synctest.Wait()
}

// world is a leader's hub with its coordinator.
type world struct {
	t           *testing.T
	coordinator *coordinator
	leases      *hubtest.LeaseServer
	set         *set
	things      *source
	valid       atomic.Bool
	later       func(edge.History) bool
	pusher      *Pool
	stop        func()
}

// inWorld runs a test with a coordinator that is empty, a replica of things at revision 110, and a term that has begun.
func inWorld(t *testing.T, test func(*world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{
			t: t, coordinator: &coordinator{t: t, stores: map[string]*store{}, term: "7"}, leases: hubtest.NewLeaseServer(10),
			set: &set{}, things: newSource(t, things, "a", "b"),
		}
		w.valid.Store(true)
		w.leases.Edit(edge.NamespaceSystem, edge.LeaseInformerSync, func(*coordinationv1.Lease) {})
		w.set.become(w.things)
		w.pusher = NewPool(PoolConfig{Resources: w.set, Leases: w.leases, Config: Config{
			Node: "n1", Transport: w.coordinator, Base: &url.URL{Scheme: "https", Host: "coordinator"},
			Metrics: prometheus.NewRegistry(),
			Later:   func(h edge.History) bool { return w.later == nil || w.later(h) },
		}})
		test(w)
		if w.stop != nil {
			w.stop()
		}
	})
}

func (w *world) begin() {
	w.t.Helper()
	ctx, cancel := context.WithCancel(klog.NewContext(w.t.Context(), ktesting.NewLogger(w.t, ktesting.NewConfig())))
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := w.pusher.Run(ctx, edge.Term{Transitions: 7, Valid: w.valid.Load}); err != nil {
			w.t.Errorf("Run = %v", err)
		}
	}()
	w.stop = func() {
		cancel()
		<-done
		w.stop = nil
	}
	synctest.Wait()
}

func (w *world) pass(d time.Duration) {
	time.Sleep(d) // of the bubble's clock
	synctest.Wait()
}

// same holds the mirror to a replica's content.
func (w *world) same(s *source) {
	w.t.Helper()
	synctest.Wait()
	snapshot, err := s.Snapshot(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	want := map[string]edge.Revision{}
	for _, o := range snapshot.Objects {
		want[o.Key.String()] = o.Revision
	}
	group := s.Resource().Group
	if group == "" {
		group = "core"
	}
	w.coordinator.mu.Lock()
	defer w.coordinator.mu.Unlock()
	got := w.coordinator.stores["/mirror/v1/"+group+"/v1/"+s.Resource().Resource]
	if got == nil || got.applied != snapshot.Revision || !maps.Equal(got.objects, want) {
		w.t.Errorf("the mirror has %+v, want %v at %s", got, want, snapshot.Revision)
	}
}

// posted returns what was pushed since it was asked last.
func (w *world) posted() []string {
	synctest.Wait()
	w.coordinator.mu.Lock()
	defer w.coordinator.mu.Unlock()
	posts := w.coordinator.posts
	w.coordinator.posts = nil
	return posts
}

func (w *world) wantPosted(want ...string) {
	w.t.Helper()
	if got := w.posted(); !slices.Equal(got, want) {
		w.t.Errorf("pushed %q, want %q", got, want)
	}
}

func (w *world) lease() *coordinationv1.Lease {
	return w.leases.Peek(edge.NamespaceSystem, edge.LeaseInformerSync)
}

// declared holds the Lease to an annotation.
func (w *world) declared(want string) {
	w.t.Helper()
	synctest.Wait()
	if got := w.lease().Annotations[edge.AnnotationAppliedRevisions]; got != want {
		w.t.Errorf("declared %q, want %q", got, want)
	}
}
