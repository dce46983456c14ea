package replica_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/replica"
	"yurtcoordinator/internal/stream"
	"yurtcoordinator/internal/stream/streamtest"
)

const (
	asJSON     = "application/json"
	asProtobuf = "application/vnd.kubernetes.protobuf"
	asTable    = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
)

// slice makes an EndpointSlice as an API server would have it.
func slice(namespace, name string, revision edge.Revision, endpoints int, labels map[string]string) stream.Object {
	port, proto, http := int32(8080), "TCP", "http"
	ready, node := true, "node-1"
	s := discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, ResourceVersion: revision.String(), UID: "0b1e2a6c", Generation: 1,
			Labels: labels, CreationTimestamp: metav1.NewTime(time.Date(2024, 1, 2, 3, 4, 5, 0, time.UTC)),
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: &http, Protocol: (*corev1.Protocol)(&proto), Port: &port}},
	}
	for i := range endpoints {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{fmt.Sprintf("10.0.%d.%d", i/256, i%256)}, NodeName: &node,
			Conditions: discoveryv1.EndpointConditions{Ready: &ready, Serving: &ready},
		})
	}
	raw, err := s.Marshal()
	if err != nil {
		panic(err)
	}
	return stream.Object{Key: stream.Key{Namespace: namespace, Name: name}, Revision: revision, Raw: raw}
}

// server serves replicas over HTTP, by their paths.
type server struct {
	*httptest.Server
	// selected and elsewhere are of all requests.
	selected, elsewhere bool

	mu       sync.Mutex
	requests []*url.URL
}

func serve(t testing.TB, handlers ...*replica.Handler) *server {
	t.Helper()
	parse := &request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}
	s := &server{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info, err := parse.NewRequestInfo(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		s.mu.Lock()
		s.requests = append(s.requests, r.URL)
		s.mu.Unlock()
		q := replica.Request{
			Verb: info.Verb, Namespace: info.Namespace, Name: info.Name, Selected: s.selected, Elsewhere: s.elsewhere,
		}
		handlers[0].Serve(w, r, q)
	}))
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s
}

// asked returns the queries that contain a text.
func (s *server) asked(text string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, u := range s.requests {
		if strings.Contains(u.RawQuery, text) {
			n++
		}
	}
	return n
}

func newHandler(t testing.TB, c replica.HandlerConfig) *replica.Handler {
	t.Helper()
	return replica.NewHandler(c)
}

const slicesPath = "/apis/discovery.k8s.io/v1/endpointslices"

// answer is what came back, all of it.
type answer struct {
	*http.Response
	body []byte
}

func (s *server) get(t testing.TB, path, accept string) answer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", accept)
	res, err := s.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return answer{res, body}
}

func (a answer) status(t testing.TB) metav1.Status {
	t.Helper()
	s, err := stream.ReadStatus(a.body)
	if err != nil {
		t.Fatalf("%v: %q", err, a.body)
	}
	if int(s.Code) != a.StatusCode {
		t.Errorf("the Status says %d, HTTP %d", s.Code, a.StatusCode)
	}
	return s
}

func names(objects []stream.Object) []string {
	var all []string
	for _, o := range objects {
		all = append(all, o.Key.String())
	}
	return all
}

// filled is a replica at revision 100 with some slices.
func filled(t testing.TB) *replica.Replica {
	r := newReplica(t, replica.Config{})
	replace(t, r, snapshot(100,
		slice("a", "x", 10, 2, map[string]string{"app": "x"}), slice("a", "y", 20, 1, map[string]string{"app": "y"}),
		slice("a-b", "x", 30, 1, map[string]string{"app": "x"}), slice("b", "x", 40, 5, nil)))
	return r
}

var widgetsResource = schema.GroupVersionResource{Group: "example.org", Version: "v1", Resource: "widgets"}

// frames reads a watch.
type frames struct {
	*stream.FrameReader
	t      testing.TB
	cancel context.CancelFunc
}

func (s *server) watch(t testing.TB, path, accept string) *frames {
	t.Helper()
	return s.watchAs(t, path, accept, "test")
}

func (s *server) watchAs(t testing.TB, path, accept, agent string) *frames {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), streamtest.Patience)
	t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", accept)
	req.Header.Set("User-Agent", agent)
	res, err := s.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = res.Body.Close() })
	if res.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(res.Body)
		t.Fatalf("%s: %s %s", path, res.Status, body)
	}
	e, err := stream.EncodingOf(res.Header.Get("Content-Type"))
	if err != nil {
		t.Fatal(err)
	}
	return &frames{stream.NewFrameReader(res.Body, e, 1<<20), t, cancel}
}

// want reads events and compares them, each as "TYPE key@revision".
func (f *frames) want(want ...string) {
	f.t.Helper()
	for i, w := range want {
		e, err := f.Read()
		if err != nil {
			f.t.Fatalf("event %d: %v, want %s", i, err, w)
		}
		got := fmt.Sprintf("%s %s@%d", e.Type, e.Object.Key, e.Object.Revision)
		if e.Type == stream.InitialEventsEnd {
			got = fmt.Sprintf("END @%d", e.Object.Revision)
		}
		if got != w {
			f.t.Fatalf("event %d is %s, want %s", i, got, w)
		}
	}
}

func (f *frames) wantErr(ok func(error) bool) {
	f.t.Helper()
	if e, err := f.Read(); err == nil || !ok(err) {
		f.t.Fatalf("%v %v: another end was wanted", e, err)
	}
}

func isExpired(err error) bool {
	return errors.Is(err, stream.ErrExpired) && apierrors.IsResourceExpired(err)
}

func isEOF(err error) bool { return errors.Is(err, io.EOF) }
