package remote

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/stream"
	"yurtcoordinator/internal/stream/streamtest"
)

const path = "/apis/discovery.k8s.io/v1/endpointslices"

// server is an API server with one resource: all of its history, from which it answers.
type server struct {
	typ       stream.Type
	gzip      bool
	bookmarks bool // one follows each batch

	mu        sync.Mutex
	revision  edge.Revision
	compacted edge.Revision
	model     streamtest.Model
	events    []stream.Event
	changed   chan struct{}
	lists     int
}

func newServer(t stream.Type) *server {
	return &server{typ: t, revision: 40, model: streamtest.Model{}, changed: make(chan struct{})}
}

func (s *server) Change(events ...stream.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range events {
		s.model.Apply(e)
		s.revision = e.Object.Revision
	}
	s.events = append(s.events, events...)
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *server) Compact(upTo edge.Revision, _ func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.compacted = upTo
}

func (s *server) Revision() edge.Revision {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.revision
}

func (s *server) Type() stream.Type { return s.typ }

// since is what is there after a revision, and a signal of more.
func (s *server) since(after edge.Revision) (events []stream.Event, now, compacted edge.Revision, changed chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.events {
		if e.Object.Revision > after {
			events = append(events, e)
		}
	}
	return events, s.revision, s.compacted, s.changed
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != path || r.Header.Get("Accept") != "application/vnd.kubernetes.protobuf,application/json" {
		http.NotFound(w, r)
		return
	}
	query := r.URL.Query()
	w.Header().Set("Content-Type", s.typ.Encoding.ContentType(query.Has("watch")))
	if !query.Has("watch") {
		s.list(w, r)
		return
	}
	seconds, err := strconv.Atoi(query.Get("timeoutSeconds"))
	after, err2 := edge.ParseRevision(query.Get("resourceVersion"))
	if err != nil || err2 != nil || seconds < 300 || seconds > 600 || query.Get("allowWatchBookmarks") != "true" ||
		r.Header.Get("Accept-Encoding") != "identity" {
		http.Error(w, "bad watch "+r.URL.RawQuery, http.StatusBadRequest)
		return
	}
	s.watch(w, r, after)
}

func (s *server) list(w http.ResponseWriter, r *http.Request) {
	if r.URL.RawQuery != "" || r.Header.Get("Accept-Encoding") != "gzip" {
		http.Error(w, "bad list "+r.URL.RawQuery, http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	s.lists++
	objects, revision := s.model.Content(), s.revision
	s.mu.Unlock()
	slices.SortFunc(objects, func(a, b stream.Object) int { return strings.Compare(a.Key.String(), b.Key.String()) }) // as etcd
	out := io.Writer(w)
	if s.gzip {
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		defer z.Close()
		out = z
	}
	_ = stream.WriteList(out, s.typ, metav1.ListMeta{ResourceVersion: revision.String()},
		func(yield func(stream.Object, error) bool) {
			for _, o := range objects {
				if !yield(o, nil) {
					return
				}
			}
		})
}

func (s *server) watch(w http.ResponseWriter, r *http.Request, after edge.Revision) {
	flusher := http.NewResponseController(w)
	_ = flusher.Flush()
	frames := stream.NewFrameWriter(w, s.typ)
	for {
		events, now, compacted, changed := s.since(after)
		if after < compacted {
			_ = frames.WriteError(&apierrors.NewResourceExpired("too old").ErrStatus)
			return
		}
		for _, e := range events {
			_ = frames.Write(e)
		}
		if now > after {
			after = now
		}
		if s.bookmarks && now >= after {
			_ = frames.Write(stream.Event{Type: stream.Bookmark, Object: stream.Object{Revision: after}})
		}
		_ = flusher.Flush()
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		}
	}
}

// Look asks for one object, by its own namespace's path.
func TestLook(t *testing.T) {
	for name, test := range map[string]struct {
		config Config
		key    stream.Key
		at     edge.Revision
		path   string
		query  string
	}{
		"of a cluster": {
			Config{Path: path}, stream.Key{Namespace: "a", Name: "x"}, 0,
			"/apis/discovery.k8s.io/v1/namespaces/a/endpointslices", "fieldSelector=metadata.name%3Dx&limit=1",
		},
		"as it was": {
			Config{Path: path}, stream.Key{Namespace: "a", Name: "x"}, 30,
			"/apis/discovery.k8s.io/v1/namespaces/a/endpointslices",
			"fieldSelector=metadata.name%3Dx&limit=1&resourceVersion=30&resourceVersionMatch=Exact",
		},
		"without a namespace": {
			Config{Path: "/api/v1/nodes", LabelSelector: "l=m"}, stream.Key{Name: "x"}, 0,
			"/api/v1/nodes", "fieldSelector=metadata.name%3Dx&labelSelector=l%3Dm&limit=1",
		},
		"of one object": {
			Config{Path: "/api/v1/namespaces/a/secrets", FieldSelector: "metadata.name=x"},
			stream.Key{Namespace: "a", Name: "x"}, 0,
			"/api/v1/namespaces/a/secrets", "fieldSelector=metadata.name%3Dx&limit=1",
		},
		"any": {
			Config{Path: "/api/v1/pods", FieldSelector: "spec.nodeName=n"}, stream.Key{}, 0,
			"/api/v1/pods", "fieldSelector=spec.nodeName%3Dn&limit=1",
		},
		"of a node's": {
			Config{Path: "/api/v1/pods", FieldSelector: "spec.nodeName=n"}, stream.Key{Namespace: "a", Name: "x"}, 0,
			"/api/v1/namespaces/a/pods", "fieldSelector=spec.nodeName%3Dn%2Cmetadata.name%3Dx&limit=1",
		},
	} {
		t.Run(name, func(t *testing.T) {
			typ := stream.Type{Encoding: stream.JSON}
			typ.Version, typ.Kind = "v1", "X"
			there := true
			far := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != test.path || r.URL.RawQuery != test.query {
					t.Errorf("asked for %s?%s", r.URL.Path, r.URL.RawQuery)
				}
				w.Header().Set("Content-Type", "application/json")
				if a := r.Header.Get("Accept"); !strings.HasPrefix(a,
					"application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;") {
					t.Errorf("asked for %s", a)
				}
				item := fmt.Sprintf(`{"metadata":{"name":%q,"namespace":%q,"resourceVersion":"7"}}`,
					cmp.Or(test.key.Name, "x"), test.key.Namespace)
				if !there {
					item = ""
				}
				fmt.Fprintf(w, `{"kind":"XList","apiVersion":"v1","metadata":{"resourceVersion":"44"},"items":[%s]}`, item)
			}))
			defer far.Close()
			base, err := url.Parse(far.URL)
			if err != nil {
				t.Fatal(err)
			}
			test.config.Base, test.config.Name = base, "cloud"
			s := New(test.config)
			current, object, err := s.Look(t.Context(), test.key, test.at)
			if err != nil || current != 44 || object != 7 {
				t.Errorf("Look() = %d, %d, %v", current, object, err)
			}
			there = false
			if current, object, err = s.Look(t.Context(), test.key, test.at); err != nil || current != 44 || object != 0 {
				t.Errorf("without it: Look() = %d, %d, %v", current, object, err)
			}
		})
	}
}

// harness is a server and a Source that reads it.
type harness struct {
	*server
	source *Source
}

func (h harness) Source() stream.Source { return h.source }

func serve(t *testing.T, handler http.Handler, two bool) *Source {
	t.Helper()
	far := httptest.NewUnstartedServer(handler)
	far.EnableHTTP2 = two
	far.Config.ErrorLog = log.New(io.Discard, "", 0) // of connections that a test ends on purpose
	if two {
		far.StartTLS()
	} else {
		far.Start()
	}
	t.Cleanup(far.Close)
	t.Cleanup(far.CloseClientConnections)
	base, err := url.Parse(far.URL)
	if err != nil {
		t.Fatal(err)
	}
	return New(Config{Client: far.Client(), Base: base, Path: path, Name: "cloud"})
}

func TestConformance(t *testing.T) {
	for _, typ := range []stream.Type{streamtest.EndpointSlices, streamtest.Widgets} {
		for _, two := range []bool{false, true} {
			for _, more := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s HTTP2 %t gzip and bookmarks %t", typ.Kind, two, more), func(t *testing.T) {
					streamtest.Sources(t, func(t *testing.T) streamtest.SourceHarness {
						s := newServer(typ)
						s.gzip, s.bookmarks = more, more
						return harness{server: s, source: serve(t, s, two)}
					})
				})
			}
		}
	}
}

func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), streamtest.Patience)
	t.Cleanup(cancel)
	return ctx
}

// A namespace is part of the path, whatever is in it.
func TestWhereItReads(t *testing.T) {
	base, err := url.Parse("https://cloud:6443/prefix")
	if err != nil {
		t.Fatal(err)
	}
	for at, want := range map[string]string{
		path:                            "https://cloud:6443/prefix" + path,
		"/api/v1/namespaces/a?b#c/pods": "https://cloud:6443/prefix/api/v1/namespaces/a%3Fb%23c/pods",
	} {
		if s := New(Config{Base: base, Path: at}); s.collection.String() != want {
			t.Errorf("%s is read at %s, want %s", at, s.collection.String(), want)
		}
	}
}

// TestRefusals: what a server says instead of an answer, and what becomes of it.
func TestRefusals(t *testing.T) {
	status := func(s *apierrors.StatusError, e stream.Encoding) []byte {
		var frame bytes.Buffer
		if err := stream.NewFrameWriter(&frame, stream.Type{Encoding: stream.JSON}).WriteError(&s.ErrStatus); err != nil {
			t.Fatal(err)
		}
		text := strings.TrimSuffix(strings.TrimPrefix(frame.String(), `{"type":"ERROR","object":`), "}\n")
		if e == stream.JSON {
			return []byte(text)
		}
		raw, err := s.ErrStatus.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		of := stream.Type{Encoding: e}
		of.Version, of.Kind = "v1", "Status"
		return stream.Envelope(of, raw)
	}
	const binary, text = stream.Protobuf, stream.JSON
	none := schema.GroupResource{Group: "discovery.k8s.io", Resource: "endpointslices"}
	for name, test := range map[string]struct {
		code  int
		body  []byte
		retry string
		is    error
		says  string
		delay int
	}{
		"expired":           {410, status(apierrors.NewResourceExpired("too old"), binary), "", stream.ErrExpired, "too old", 0},
		"gone, text":        {410, []byte("gone"), "", stream.ErrExpired, "410 Gone", 0},
		"not ready":         {503, status(apierrors.NewServiceUnavailable("wait"), text), "7", stream.ErrNotReady, "wait", 7},
		"not ready, text":   {503, []byte("no backend"), "7", stream.ErrNotReady, "503 Service Unavailable", 7},
		"too many requests": {429, status(apierrors.NewTooManyRequests("slow down", 3), binary), "", nil, "slow down", 3},
		"forbidden": {
			403, status(apierrors.NewForbidden(none, "", errors.New("no")), stream.Protobuf), "", nil, "forbidden", 0,
		},
		"not found":           {404, []byte("404 page not found\n"), "", nil, "404 Not Found", 0},
		"unauthorized":        {401, nil, "", nil, "401 Unauthorized", 0},
		"a redirect":          {302, nil, "", nil, "302 Found", 0},
		"no content":          {204, nil, "", nil, "204 No Content", 0},
		"a lie of success":    {500, []byte(`{"kind":"Status","apiVersion":"v1","status":"Success"}`), "", nil, "500", 0},
		"garbage":             {500, []byte("k8s\x00\xff\xff"), "", nil, "500 Internal Server Error", 0},
		"a retry of a decade": {429, nil, "315360000", nil, "429", 3600},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if test.retry != "" {
					w.Header().Set("Retry-After", test.retry)
				}
				w.Header().Set("Location", "/elsewhere")
				w.WriteHeader(test.code)
				_, _ = w.Write(test.body)
			}), false)
			_, listed := s.Snapshot(within(t))
			_, watched := s.Watch(within(t), 5)
			for did, err := range map[string]error{"list": listed, "watch": watched} {
				var got *apierrors.StatusError
				if !errors.As(err, &got) || int(got.ErrStatus.Code) != test.code {
					t.Errorf("%s: %v, want a Status of %d", did, err, test.code)
					continue
				}
				if test.is != nil && !errors.Is(err, test.is) || test.is == nil &&
					(errors.Is(err, stream.ErrExpired) || errors.Is(err, stream.ErrNotReady)) {
					t.Errorf("%s: %v, want it to be %v", did, err, test.is)
				}
				for _, part := range []string{"cloud: " + did + " " + path, test.says} {
					if !strings.Contains(err.Error(), part) || strings.Contains(err.Error(), "\n") {
						t.Errorf("%s: %q, want one line with %q", did, err, part)
					}
				}
				if delay, _ := apierrors.SuggestsClientDelay(err); delay != test.delay {
					t.Errorf("%s: it suggests a delay of %d s, want %d", did, delay, test.delay)
				}
			}
		})
	}
}

// TestLiars: answers that look like success.
func TestLiars(t *testing.T) {
	object := func(revision edge.Revision) stream.Event {
		return stream.Event{Type: stream.Added, Object: streamtest.Object(streamtest.Widgets, "a", "b", revision, "c")}
	}
	bookmark := func(revision edge.Revision) stream.Event {
		return stream.Event{Type: stream.Bookmark, Object: stream.Object{Revision: revision}}
	}
	asked := stream.Protobuf.ContentType(true)
	initialEnd := stream.Event{Type: stream.InitialEventsEnd, Object: object(8).Object}
	frames := func(events ...stream.Event) string {
		var b bytes.Buffer
		w := stream.NewFrameWriter(&b, streamtest.Widgets)
		for _, e := range events {
			if err := w.Write(e); err != nil {
				t.Fatal(err)
			}
		}
		return b.String()
	}
	for name, test := range map[string]struct {
		header map[string]string
		body   string
		events int // that are told before the end
		is     error
		says   string
	}{
		"ends in order":         {nil, frames(object(6), bookmark(6), bookmark(9), object(10)), 4, io.EOF, ""},
		"nothing":               {nil, "", 0, io.EOF, ""},
		"before the beginning":  {nil, frames(object(4)), 0, stream.ErrExpired, "told revision 4 after 5"},
		"at the beginning":      {nil, frames(object(5)), 0, stream.ErrExpired, "told revision 5 after 5"},
		"bookmark of the past":  {nil, frames(bookmark(4)), 0, stream.ErrExpired, "told revision 4 after 5"},
		"the same again":        {nil, frames(object(6), object(6)), 1, stream.ErrExpired, "told revision 6 after 6"},
		"after its bookmark":    {nil, frames(bookmark(9), object(7)), 1, stream.ErrExpired, "told revision 7 after 9"},
		"initial events' end":   {nil, frames(initialEnd), 1, io.EOF, ""},
		"cut in an event":       {nil, frames(object(6)) + `{"type":`, 1, io.ErrUnexpectedEOF, "unexpected EOF"},
		"a list":                {nil, `{"kind":"WidgetList","apiVersion":"example.org/v1","items":[]}`, 0, nil, "no object"},
		"HTML":                  {map[string]string{"Content-Type": "text/html"}, "<html>", 0, nil, "text/html"},
		"compressed":            {map[string]string{"Content-Encoding": "gzip"}, "x", 0, nil, "unasked"},
		"said to be other type": {map[string]string{"Content-Type": asked}, frames(object(6)), 0, nil, "larger than"},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				for k, v := range test.header {
					w.Header().Set(k, v)
				}
				_, _ = io.WriteString(w, test.body)
			}), false)
			events, err := drain(t, s, 5)
			if err == nil || test.is != nil && !errors.Is(err, test.is) || !strings.Contains(err.Error(), test.says) {
				t.Errorf("ends with %v, want %v %q", err, test.is, test.says)
			}
			if test.is == nil && errors.Is(err, io.EOF) {
				t.Errorf("ends with %v, as if in order", err)
			}
			if len(events) != test.events {
				t.Errorf("%d events, want %d", len(events), test.events)
			}
			for _, e := range events {
				if e.Type == stream.InitialEventsEnd {
					t.Error("a Watch must not tell InitialEventsEnd")
				}
			}
		})
	}
}

// drain reads a watch to its end.
func drain(t *testing.T, s stream.Source, after edge.Revision) (events []stream.Event, err error) {
	t.Helper()
	w, err := s.Watch(within(t), after)
	if err != nil {
		return nil, err
	}
	defer w.Close()
	for {
		batch, err := w.Next(within(t))
		if err != nil {
			return events, err
		}
		events = append(events, batch...)
	}
}

func TestListLiars(t *testing.T) {
	const fine = `{"kind":"WidgetList","apiVersion":"example.org/v1","metadata":{"resourceVersion":"7"},"items":[]}`
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, _ = io.WriteString(z, fine)
	_ = z.Close()
	damaged := bytes.Clone(packed.Bytes())
	damaged[len(damaged)-6]++ // its checksum
	for name, test := range map[string]struct {
		header     map[string]string
		body, says string
	}{
		"fine":          {nil, fine, ""},
		"a part":        {nil, strings.Replace(fine, `"7"`, `"7","continue":"x"`, 1), "a part of the list"},
		"other coding":  {map[string]string{"Content-Encoding": "br"}, fine, `"br"`},
		"not gzip":      {map[string]string{"Content-Encoding": "gzip"}, fine, "decompress"},
		"gzip":          {map[string]string{"Content-Encoding": "gzip"}, packed.String(), ""},
		"gzip cut":      {map[string]string{"Content-Encoding": "gzip"}, packed.String()[:packed.Len()-9], "unexpected EOF"},
		"gzip damaged":  {map[string]string{"Content-Encoding": "gzip"}, string(damaged), "checksum"},
		"shorter":       {map[string]string{"Content-Length": "1000"}, fine[:20], "unexpected EOF"},
		"a watch event": {nil, `{"type":"ADDED","object":{}}`, "without items"},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				for k, v := range test.header {
					w.Header().Set(k, v)
				}
				_, _ = io.WriteString(w, test.body)
			}), false)
			snapshot, err := s.Snapshot(within(t))
			if (err == nil) != (test.says == "") || err != nil && !strings.Contains(err.Error(), test.says) {
				t.Errorf("%v, %v; want an error with %q", snapshot, err, test.says)
			}
		})
	}
}

// A watch whose objects are of another kind or encoding than the list was must not go on.
func TestTypeMayNotChange(t *testing.T) {
	far := newServer(streamtest.Widgets)
	s := serve(t, far, false)
	if _, err := s.Snapshot(within(t)); err != nil {
		t.Fatal(err)
	}
	far.typ = streamtest.EndpointSlices
	far.Change(stream.Event{Type: stream.Added, Object: streamtest.Object(streamtest.EndpointSlices, "a", "b", 50, "c")})
	if _, err := drain(t, s, 40); !errors.Is(err, stream.ErrExpired) {
		t.Errorf("the watch ends with %v, want ErrExpired: list again", err)
	}
	if got, err := s.Snapshot(within(t)); err != nil || got.Type != streamtest.EndpointSlices {
		t.Errorf("listed again: %v, %v", got.Type, err)
	}
}

func TestListIsBounded(t *testing.T) {
	for _, typ := range []stream.Type{streamtest.EndpointSlices, streamtest.Widgets} {
		for _, compressed := range []bool{false, true} {
			far := newServer(typ)
			for i := range 100 {
				name := strconv.Itoa(i)
				far.Change(stream.Event{Type: stream.Added, Object: streamtest.Object(typ, "a", name, edge.Revision(50+i), name)})
			}
			s := serve(t, far, compressed)
			if all, err := s.Snapshot(within(t)); err != nil || len(all.Objects) != 100 {
				t.Errorf("%s: %d objects, %v", typ.Kind, len(all.Objects), err)
			}
			s.listBytes = 2000
			if _, err := s.Snapshot(within(t)); !errors.Is(err, stream.ErrTooLarge) {
				t.Errorf("%s, compressed %t: %v, want ErrTooLarge", typ.Kind, compressed, err)
			}
			if _, err := s.Watch(within(t), 149); err != nil {
				t.Errorf("a watch has no such bound: %v", err)
			}
		}
	}
}

func TestFieldSelector(t *testing.T) {
	var asked []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.Query().Get("watch")+" "+r.URL.Query().Get("fieldSelector"))
		http.Error(w, "no", http.StatusForbidden)
	}))
	defer server.Close()
	base, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	s := New(Config{Base: base, Path: "/apis/g/v1/things", FieldSelector: "metadata.name=a", Name: "cloud"})
	if _, err := s.Snapshot(within(t)); err == nil {
		t.Error("a refused list is no error")
	}
	if _, err := s.Watch(within(t), 1); err == nil {
		t.Error("a refused watch is no error")
	}
	if want := []string{" metadata.name=a", "1 metadata.name=a"}; !slices.Equal(asked, want) {
		t.Errorf("asked %q, want %q", asked, want)
	}
}

// Next returns all that has arrived, within its bounds, and nothing is lost between batches.
func TestBatches(t *testing.T) {
	far := newServer(streamtest.EndpointSlices)
	s := serve(t, far, true)
	const n = 1000
	for i := range n {
		far.Change(stream.Event{
			Type:   stream.Added,
			Object: streamtest.Object(far.typ, "a", fmt.Sprint(i), far.Revision()+1, strings.Repeat("x", 100)),
		})
	}
	w, err := s.Watch(within(t), 40)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	batches, events := 0, 0
	for events < n {
		batch, err := w.Next(within(t))
		if err != nil {
			t.Fatal(err)
		}
		if len(batch) > batchEvents {
			t.Fatalf("a batch of %d events, want at most %d", len(batch), batchEvents)
		}
		batches++
		events += len(batch)
	}
	if batches > n/10 {
		t.Errorf("%d events came in %d batches", n, batches)
	}
}

// pipes is a transport whose answers are pipes, for tests in which time is an input. A nil pipe never answers.
type pipes struct{ body io.ReadCloser }

func (p pipes) RoundTrip(r *http.Request) (*http.Response, error) {
	if p.body == nil {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	context.AfterFunc(r.Context(), func() { p.body.Close() })
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: p.body, Request: r,
	}, nil
}

func over(t *testing.T, p pipes) *Source {
	t.Helper()
	base := &url.URL{Scheme: "http", Host: "x"}
	return New(Config{Client: &http.Client{Transport: p}, Base: base, Path: path, Name: "cloud"})
}

// Parts are asked for as API servers give them.
func TestPage(t *testing.T) {
	var asked []string
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.Query().Encode())
		w.Header().Set("Content-Type", "application/json")
		switch r.URL.Query().Get("continue") {
		case "":
			_, _ = io.WriteString(w, `{"kind":"WidgetList","apiVersion":"x.io/v1",`+
				`"metadata":{"resourceVersion":"7","continue":"t1"},"items":[{"metadata":{"name":"a","resourceVersion":"3"}}]}`)
		case "t1":
			_, _ = io.WriteString(w, `{"kind":"WidgetList","apiVersion":"x.io/v1","metadata":{"resourceVersion":"7"},`+
				`"items":[{"metadata":{"name":"b","resourceVersion":"4"}}]}`)
		default:
			status := apierrors.NewResourceExpired("too old").ErrStatus
			status.Continue = "t9" // what an API server offers, which is of another revision
			w.WriteHeader(http.StatusGone)
			_ = json.NewEncoder(w).Encode(status)
		}
	}))
	defer api.Close()
	base, err := url.Parse(api.URL)
	if err != nil {
		t.Fatal(err)
	}
	s := New(Config{Base: base, Path: path, Name: "cloud"})
	first, rest, err := s.Page(within(t), 1, "")
	if err != nil || len(first.Objects) != 1 || rest != "t1" {
		t.Fatalf("%v, goes on at %q, %v", first, rest, err)
	}
	last, rest, err := s.Page(within(t), 5, rest)
	if err != nil || len(last.Objects) != 1 || last.Objects[0].Key.Name != "b" || rest != "" {
		t.Errorf("%v, goes on at %q, %v", last, rest, err)
	}
	if _, _, err := s.Page(within(t), 5, "old"); !errors.Is(err, stream.ErrExpired) {
		t.Errorf("%v, want that the revision is forgotten", err)
	}
	if want := []string{"limit=1", "continue=t1&limit=5", "continue=old&limit=5"}; !slices.Equal(asked, want) {
		t.Errorf("asked for %q, want %q", asked, want)
	}
}
