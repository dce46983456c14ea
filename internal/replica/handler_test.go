package replica_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	clientfeatures "k8s.io/client-go/features"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/pager"

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
		q := replica.Request{Verb: info.Verb, Namespace: info.Namespace, Name: info.Name}
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
	h, err := replica.NewHandler(c)
	if err != nil {
		t.Fatal(err)
	}
	return h
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

func (a answer) table(t testing.TB) metav1.Table {
	t.Helper()
	var table metav1.Table
	if err := json.Unmarshal(a.body, &table); err != nil || table.Kind != "Table" {
		t.Fatalf("%v: %s", err, a.body)
	}
	return table
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

func TestList(t *testing.T) {
	s := serve(t, newHandler(t, replica.HandlerConfig{Replica: filled(t)}))
	for _, test := range []struct {
		path string
		want []string
	}{
		{slicesPath, []string{"a/x", "a/y", "a-b/x", "b/x"}},
		{slicesPath + "?resourceVersion=0", []string{"a/x", "a/y", "a-b/x", "b/x"}},
		{slicesPath + "?resourceVersion=0&limit=1", []string{"a/x", "a/y", "a-b/x", "b/x"}}, // as a watch cache does
		{slicesPath + "?resourceVersion=90", []string{"a/x", "a/y", "a-b/x", "b/x"}},
		{slicesPath + "?resourceVersion=90&resourceVersionMatch=NotOlderThan", []string{"a/x", "a/y", "a-b/x", "b/x"}},
		{slicesPath + "?resourceVersion=100&resourceVersionMatch=Exact", []string{"a/x", "a/y", "a-b/x", "b/x"}},
		{slicesPath + "?labelSelector=app%3Dx", []string{"a/x", "a-b/x"}},
		{slicesPath + "?labelSelector=!app", []string{"b/x"}},
		{slicesPath + "?fieldSelector=metadata.name%3Dx", []string{"a/x", "a-b/x", "b/x"}},
		{slicesPath + "?fieldSelector=metadata.name!%3Dx", []string{"a/y"}},
		{slicesPath + "?fieldSelector=metadata.namespace%3Da", []string{"a/x", "a/y"}},
		{slicesPath + "?fieldSelector=metadata.namespace%3Da,metadata.name%3Dy", []string{"a/y"}},
		{"/apis/discovery.k8s.io/v1/namespaces/a/endpointslices", []string{"a/x", "a/y"}},
		{"/apis/discovery.k8s.io/v1/namespaces/a/endpointslices?labelSelector=app%3Dx", []string{"a/x"}},
		{"/apis/discovery.k8s.io/v1/namespaces/a/endpointslices?fieldSelector=metadata.namespace%3Db", nil},
		{"/apis/discovery.k8s.io/v1/namespaces/a/endpointslices?fieldSelector=metadata.name%3Dz", nil},
		{"/apis/discovery.k8s.io/v1/namespaces/none/endpointslices", nil},
	} {
		for accept, e := range map[string]stream.Encoding{asJSON: stream.JSON, asProtobuf: stream.Protobuf} {
			a := s.get(t, test.path, accept)
			if a.StatusCode != http.StatusOK || a.Header.Get("Content-Type") != accept {
				t.Errorf("%s: %s, %s", test.path, a.Status, a.Header.Get("Content-Type"))
				continue
			}
			got, _, err := stream.ReadList(strings.NewReader(string(a.body)), e, 1<<20)
			if err != nil {
				t.Errorf("%s: %v", test.path, err)
				continue
			}
			if !slices.Equal(names(got.Objects), test.want) || got.Revision != 100 || got.Type.Kind != typ.Kind {
				t.Errorf("%s: %v at %d of %v, want %v at 100", test.path, names(got.Objects), got.Revision, got.Type, test.want)
			}
		}
	}
}

func TestListIsVerbatim(t *testing.T) {
	r := newReplica(t, replica.Config{})
	o := slice("a", "x", 10, 2, nil)
	o.Raw = append(o.Raw, 0xfa, 0x3e, 3, 'n', 'e', 'w') // a field that nobody here has heard of
	replace(t, r, snapshot(100, o))
	s := serve(t, newHandler(t, replica.HandlerConfig{Replica: r}))
	got, _, err := stream.ReadList(strings.NewReader(string(s.get(t, slicesPath, asProtobuf).body)), stream.Protobuf, 1<<20)
	if err != nil || len(got.Objects) != 1 || string(got.Objects[0].Raw) != string(o.Raw) {
		t.Errorf("%v %v, want the bytes as they were", got, err)
	}
	_, raw, err := stream.OpenEnvelope(s.get(t, "/apis/discovery.k8s.io/v1/namespaces/a/endpointslices/x", asProtobuf).body)
	if err != nil || string(raw) != string(o.Raw) {
		t.Errorf("get: %q %v, want the bytes as they were", raw, err)
	}
}

func TestRefusals(t *testing.T) {
	widgets := newReplica(t, replica.Config{Resource: widgetsResource})
	replace(t, widgets, stream.Snapshot{Type: streamtest.Widgets, Revision: 100})
	built := serve(t, newHandler(t, replica.HandlerConfig{Replica: filled(t)}))
	custom := serve(t, newHandler(t, replica.HandlerConfig{Replica: widgets}))
	const one = "/apis/discovery.k8s.io/v1/namespaces/a/endpointslices/"
	for _, test := range []struct {
		s            *server
		path, accept string
		code         int
		reason       metav1.StatusReason
		message      string
	}{
		{built, one + "none", asJSON, 404, metav1.StatusReasonNotFound, `endpointslices.discovery.k8s.io "none" not found`},
		{built, one + "none", asProtobuf, 404, metav1.StatusReasonNotFound, `endpointslices.discovery.k8s.io "none" not found`},
		{built, slicesPath, "application/yaml", 406, metav1.StatusReasonNotAcceptable, "accept one of them"},
		{built, slicesPath, "application/json;as=Table;v=v1alpha1;g=meta.k8s.io", 406, metav1.StatusReasonNotAcceptable, ""},
		{custom, "/apis/example.org/v1/widgets", asProtobuf, 406, metav1.StatusReasonNotAcceptable, "application/json"},
		{custom, "/apis/example.org/v1/widgets?watch=1", asProtobuf, 406, metav1.StatusReasonNotAcceptable, "application/json"},
		{built, slicesPath + "?fieldSelector=spec.x%3D1", asJSON, 400, metav1.StatusReasonBadRequest,
			`"spec.x" is not a known field selector: only "metadata.name", "metadata.namespace"`},
		{built, slicesPath + "?labelSelector=a%20b", asJSON, 400, metav1.StatusReasonBadRequest, "unable to parse"},
		{built, slicesPath + "?resourceVersion=abc", asJSON, 422, metav1.StatusReasonInvalid, "resourceVersion"},
		{built, slicesPath + "?watch=1&resourceVersion=abc", asJSON, 422, metav1.StatusReasonInvalid, "resourceVersion"},
		{built, slicesPath + "?resourceVersionMatch=Exact", asJSON, 422, metav1.StatusReasonInvalid, "resourceVersionMatch"},
		{built, slicesPath + "?resourceVersion=99&resourceVersionMatch=Exact", asJSON, 410, metav1.StatusReasonExpired, "99"},
		{built, slicesPath + "?resourceVersion=99&limit=1", asJSON, 410, metav1.StatusReasonExpired, "99"},
		{built, slicesPath + "?sendInitialEvents=true", asJSON, 422, metav1.StatusReasonInvalid, "sendInitialEvents"},
		{built, slicesPath + "?watch=1&sendInitialEvents=true", asJSON, 422, metav1.StatusReasonInvalid, "resourceVersionMatch"},
		{built, slicesPath + "?continue=nonsense", asJSON, 400, metav1.StatusReasonBadRequest, "continue"},
		{built, slicesPath + "?includeObject=Everything", asTable, 400, metav1.StatusReasonBadRequest, "includeObject"},
	} {
		a := test.s.get(t, test.path, test.accept)
		s := a.status(t)
		if a.StatusCode != test.code || s.Reason != test.reason || !strings.Contains(s.Message, test.message) {
			t.Errorf("%s as %s: %d %s %q, want %d %s %q",
				test.path, test.accept, a.StatusCode, s.Reason, s.Message, test.code, test.reason, test.message)
		}
		if test.accept == asProtobuf && a.Header.Get("Content-Type") != asProtobuf {
			t.Errorf("%s: the error came as %s", test.path, a.Header.Get("Content-Type"))
		}
	}
}

var widgetsResource = schema.GroupVersionResource{Group: "example.org", Version: "v1", Resource: "widgets"}

func TestPages(t *testing.T) {
	r := filled(t)
	s := serve(t, newHandler(t, replica.HandlerConfig{Replica: r}))
	body := s.get(t, slicesPath+"?limit=2", asJSON).body
	first, cont, err := stream.ReadList(strings.NewReader(string(body)), stream.JSON, 1<<20)
	if err != nil || !slices.Equal(names(first.Objects), []string{"a/x", "a/y"}) || cont == "" {
		t.Fatalf("%v %q %v", names(first.Objects), cont, err)
	}
	// What happens meanwhile is not seen by who reads on.
	apply(t, r, event(stream.Deleted, slice("a-b", "x", 101, 1, nil)), event(stream.Added, slice("b", "y", 102, 1, nil)))
	path := slicesPath + "?limit=2&continue=" + url.QueryEscape(cont)
	second, end, err := stream.ReadList(strings.NewReader(string(s.get(t, path, asJSON).body)), stream.JSON, 1<<20)
	if err != nil || !slices.Equal(names(second.Objects), []string{"a-b/x", "b/x"}) || end != "" || second.Revision != 100 {
		t.Fatalf("%v at %d %q %v", names(second.Objects), second.Revision, end, err)
	}
	exact := s.get(t, slicesPath+"?resourceVersion=100&resourceVersionMatch=Exact", asJSON)
	if exact.StatusCode != http.StatusOK {
		t.Errorf("exactly at a revision that is kept: %s", exact.body)
	}
	// Eight others push it out.
	for i := range edge.Revision(8) {
		apply(t, r, event(stream.Modified, slice("b", "y", 103+i, 1, nil)))
		s.get(t, slicesPath+"?limit=1", asJSON)
	}
	gone := s.get(t, path, asJSON).status(t)
	if gone.Code != http.StatusGone || gone.Continue == "" {
		t.Fatalf("%+v, want 410 and a token to go on with", gone)
	}
	rest, _, err := stream.ReadList(strings.NewReader(string(
		s.get(t, slicesPath+"?continue="+url.QueryEscape(gone.Continue), asJSON).body)), stream.JSON, 1<<20)
	if err != nil || !slices.Equal(names(rest.Objects), []string{"b/x", "b/y"}) || rest.Revision != 110 {
		t.Errorf("%v at %d %v", names(rest.Objects), rest.Revision, err)
	}
}

func TestRemaining(t *testing.T) {
	s := serve(t, newHandler(t, replica.HandlerConfig{Replica: filled(t)}))
	for path, want := range map[string]int64{"?limit=1": 3, "?limit=3": 1, "?limit=1&labelSelector=app": -1, "?limit=4": -1} {
		table := s.get(t, slicesPath+path, asTable).table(t)
		got := int64(-1)
		if table.RemainingItemCount != nil {
			got = *table.RemainingItemCount
		}
		if got != want {
			t.Errorf("%s: %d remain, want %d", path, got, want)
		}
	}
}

func TestTable(t *testing.T) {
	s := serve(t, newHandler(t, replica.HandlerConfig{Replica: filled(t)}))
	for include, kind := range map[string]string{
		"": "PartialObjectMetadata", "Metadata": "PartialObjectMetadata", "Object": "EndpointSlice", "None": "",
	} {
		table := s.get(t, slicesPath+"?includeObject="+include, asTable).table(t)
		var heads []string
		for _, c := range table.ColumnDefinitions {
			heads = append(heads, c.Name)
		}
		want := []string{"Name", "AddressType", "Ports", "Endpoints", "Age"}
		if !slices.Equal(heads, want) || len(table.Rows) != 4 {
			t.Fatalf("columns %v, %d rows, want %v, 4", heads, len(table.Rows), want)
		}
		row := table.Rows[3]
		if got := row.Cells[:4]; !reflect.DeepEqual(got, []any{"x", "IPv4", "8080", "10.0.0.0,10.0.0.1,10.0.0.2 + 2 more..."}) {
			t.Errorf("cells %v", got)
		}
		var about metav1.PartialObjectMetadata
		if kind != "" {
			if err := json.Unmarshal(row.Object.Raw, &about); err != nil {
				t.Fatal(err)
			}
		}
		if about.Kind != kind || (kind != "" && about.Namespace != "b") {
			t.Errorf("includeObject=%s: %s of %s", include, about.Kind, about.Namespace)
		}
		if table.ResourceVersion != "100" {
			t.Errorf("resourceVersion %q", table.ResourceVersion)
		}
	}
	one := s.get(t, "/apis/discovery.k8s.io/v1/namespaces/a/endpointslices/x", asTable).table(t)
	if len(one.Rows) != 1 || one.Rows[0].Cells[0] != "x" {
		t.Errorf("a table of one: %+v", one)
	}
}

func TestGzip(t *testing.T) {
	r := newReplica(t, replica.Config{})
	var many []stream.Object
	for i := range 100 {
		many = append(many, slice("a", fmt.Sprint("s", i), 1+edge.Revision(i), 50, nil))
	}
	replace(t, r, snapshot(200, many...))
	for _, test := range []struct {
		plain        bool
		path, accept string
		want         string
	}{
		{false, slicesPath, "gzip", "gzip"},
		{false, slicesPath, "deflate, gzip;q=0.5", "gzip"},
		{false, slicesPath, "gzip;q=0", ""},
		{false, slicesPath, "gzip;q=0.0", ""},
		{false, slicesPath, "identity", ""},
		{false, slicesPath + "?limit=3", "gzip", ""}, // small
		{true, slicesPath, "gzip", ""},
	} {
		s := serve(t, newHandler(t, replica.HandlerConfig{Replica: r, Uncompressed: test.plain}))
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+test.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Accept-Encoding", test.accept)
		res, err := s.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if got := res.Header.Get("Content-Encoding"); got != test.want {
			t.Errorf("Accept-Encoding %q: %q, want %q", test.accept, got, test.want)
		}
	}
	s := serve(t, newHandler(t, replica.HandlerConfig{Replica: r}))
	a := s.get(t, slicesPath, asProtobuf) // the transport asks for gzip, and undoes it
	got, _, err := stream.ReadList(strings.NewReader(string(a.body)), stream.Protobuf, 1<<20)
	if err != nil || len(got.Objects) != 100 {
		t.Errorf("%d objects, %v", len(got.Objects), err)
	}
	if !a.Uncompressed {
		t.Error("it was not compressed")
	}
}

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

func TestWatch(t *testing.T) {
	const initial = "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
	all := []string{"ADDED a/x@10", "ADDED a/y@20", "ADDED a-b/x@30", "ADDED b/x@40"}
	for _, accept := range []string{
		asJSON, asProtobuf, asJSON + ";stream=watch", asProtobuf + ";stream=watch", asProtobuf + "," + asJSON,
	} {
		for _, test := range []struct {
			query string
			want  []string
		}{
			{"?watch=1", append(slices.Clone(all), "MODIFIED a/x@101", "DELETED b/x@102", "ADDED c/z@103")},
			{"?watch=1&resourceVersion=0", append(slices.Clone(all), "MODIFIED a/x@101", "DELETED b/x@102", "ADDED c/z@103")},
			{"?watch=1&resourceVersion=100", []string{"MODIFIED a/x@101", "DELETED b/x@102", "ADDED c/z@103"}},
			{"?watch=1&resourceVersion=102", []string{"ADDED c/z@103"}},
			{"?watch=1" + initial, append(slices.Clone(all), "END @100", "MODIFIED a/x@101", "DELETED b/x@102", "ADDED c/z@103")},
			{"?watch=1&resourceVersion=50" + initial, append(slices.Clone(all), "END @100", "MODIFIED a/x@101")},
			{"?watch=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan", []string{"MODIFIED a/x@101"}},
			{"?watch=1&resourceVersion=100&fieldSelector=metadata.name%3Dz", []string{"ADDED c/z@103"}},
			{"?watch=1&labelSelector=app%3Dx" + initial,
				[]string{"ADDED a/x@10", "ADDED a-b/x@30", "END @100", "DELETED a/x@101", "ADDED c/z@103"}},
			{"?watch=1&labelSelector=app%3Dnew" + initial, []string{"END @100", "ADDED a/x@101"}},
			{"?watch=1&resourceVersion=100&labelSelector=!app", []string{"DELETED b/x@102"}},
		} {
			r := filled(t)
			f := serve(t, newHandler(t, replica.HandlerConfig{Replica: r})).watch(t, slicesPath+test.query, accept)
			began := slices.IndexFunc(test.want, func(s string) bool {
				return strings.Contains(s, "@10") && !strings.Contains(s, "@100") && s != "ADDED a/x@10"
			})
			f.want(test.want[:began]...)
			apply(t, r,
				event(stream.Modified, slice("a", "x", 101, 2, map[string]string{"app": "new"})),
				event(stream.Deleted, slice("b", "x", 102, 5, nil)),
				event(stream.Added, slice("c", "z", 103, 1, map[string]string{"app": "x"})))
			f.want(test.want[began:]...)
			f.cancel()
		}
	}
}

func TestLeavingASelectorShowsTheObjectAsItWas(t *testing.T) {
	r := filled(t)
	s := serve(t, newHandler(t, replica.HandlerConfig{Replica: r}))
	for _, accept := range []string{asJSON, asProtobuf} {
		f := s.watch(t, slicesPath+"?watch=1&resourceVersion=100&labelSelector=app%3Dx", accept)
		if r.Position() == 100 {
			apply(t, r, event(stream.Modified, slice("a", "x", 101, 7, map[string]string{"app": "other"})))
		}
		e, err := f.Read()
		if err != nil {
			t.Fatal(err)
		}
		m, err := stream.ScanMeta(f.Type().Encoding, e.Object.Raw)
		if err != nil || e.Type != stream.Deleted || m.ResourceVersion != "101" || m.Labels["app"] != "x" || m.UID != "0b1e2a6c" {
			t.Errorf("as %s: %s %+v %v: want it as it was before, at 101", accept, e.Type, m, err)
		}
		if accept == asProtobuf {
			var got discoveryv1.EndpointSlice
			if err := got.Unmarshal(e.Object.Raw); err != nil || len(got.Endpoints) != 2 {
				t.Errorf("%d endpoints, %v: want the 2 of before", len(got.Endpoints), err)
			}
		}
	}
}

func TestWatchErrors(t *testing.T) {
	r := filled(t)
	s := serve(t, newHandler(t, replica.HandlerConfig{Replica: r}))
	s.watch(t, slicesPath+"?watch=1&resourceVersion=99", asProtobuf).wantErr(isExpired)
	s.watch(t, slicesPath+"?watch=1&resourceVersion=99", asJSON).wantErr(isExpired)
	s.watch(t, slicesPath+"?watch=1&resourceVersion=100&timeoutSeconds=1", asJSON).wantErr(isEOF)

	f := s.watch(t, slicesPath+"?watch=1&resourceVersion=100", asProtobuf)
	apply(t, r, event(stream.Modified, slice("a", "x", 101, 1, nil)))
	f.want("MODIFIED a/x@101")
	replace(t, r, snapshot(110))
	f.wantErr(isExpired)

	f = s.watch(t, slicesPath+"?watch=1&resourceVersion=110", asProtobuf)
	apply(t, r, event(stream.Added, slice("a", "x", 111, 1, nil)))
	f.want("ADDED a/x@111")
	r.Close()
	f.wantErr(isEOF)
}

func TestWatchShapes(t *testing.T) {
	r := filled(t)
	s := serve(t, newHandler(t, replica.HandlerConfig{Replica: r}))
	res := func(accept, query string) *http.Response {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+slicesPath+query, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Accept", accept)
		res, err := s.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = res.Body.Close() })
		return res
	}
	apply(t, r, event(stream.Modified, slice("a", "x", 101, 2, nil)), event(stream.Modified, slice("a", "x", 102, 2, nil)))

	tables := json.NewDecoder(res(asTable, "?watch=1&resourceVersion=100").Body)
	for i, columns := range []int{5, 0} { // heads come once
		var e struct {
			Type   string
			Object metav1.Table
		}
		if err := tables.Decode(&e); err != nil {
			t.Fatal(err)
		}
		if e.Type != "MODIFIED" || len(e.Object.Rows) != 1 || len(e.Object.ColumnDefinitions) != columns {
			t.Errorf("table %d: %+v", i, e)
		}
	}
	for _, accept := range []string{asJSON, asProtobuf} {
		body := res(accept+";as=PartialObjectMetadata;v=v1;g=meta.k8s.io", "?watch=1&resourceVersion=100").Body
		e := stream.Protobuf
		if accept == asJSON {
			e = stream.JSON
		}
		f := stream.NewFrameReader(body, e, 1<<20)
		got, err := f.Read()
		if err != nil || got.Object.Revision != 101 || f.Type().Kind != "PartialObjectMetadata" {
			t.Errorf("as %s: %v of %v, %v", accept, got.Object.Key, f.Type(), err)
		}
		if len(got.Object.Raw) > 300 {
			t.Errorf("as %s: %d bytes are more than metadata", accept, len(got.Object.Raw))
		}
	}
}

func TestWaits(t *testing.T) {
	r := newReplica(t, replica.Config{})
	s := serve(t, newHandler(t, replica.HandlerConfig{Replica: r, Wait: 20 * time.Millisecond}))
	const one = "/apis/discovery.k8s.io/v1/namespaces/a/endpointslices/x"
	for _, path := range []string{slicesPath, slicesPath + "?watch=1", one} {
		a := s.get(t, path, asJSON)
		if got := a.status(t); got.Code != http.StatusServiceUnavailable || a.Header.Get("Retry-After") != "1" {
			t.Errorf("%s before it is complete: %+v, Retry-After %q", path, got, a.Header.Get("Retry-After"))
		}
	}
	patient := serve(t, newHandler(t, replica.HandlerConfig{Replica: r}))
	done := make(chan answer)
	go func() { done <- patient.get(t, slicesPath+"?resourceVersion=7", asJSON) }()
	replace(t, r, snapshot(5, slice("a", "x", 5, 1, nil)))
	apply(t, r, event(stream.Bookmark, stream.Object{Revision: 7}))
	if a := <-done; a.StatusCode != http.StatusOK {
		t.Errorf("%s %s", a.Status, a.body)
	}
	f := patient.watch(t, slicesPath+"?watch=1&resourceVersion=20", asJSON) // ahead of the replica
	apply(t, r, event(stream.Modified, slice("a", "x", 19, 1, nil)), event(stream.Modified, slice("a", "x", 21, 1, nil)))
	f.want("MODIFIED a/x@21")
}

// restConfig is that of a client.
func (s *server) restConfig(contentType string) *rest.Config {
	c := &rest.Config{Host: s.URL, QPS: -1, UserAgent: "test"}
	c.ContentType = contentType
	if contentType == asProtobuf {
		c.AcceptContentTypes = asProtobuf + "," + asJSON
	}
	return c
}

type gates struct {
	clientfeatures.Gates
	watchList bool
}

func (g gates) Enabled(f clientfeatures.Feature) bool {
	if f == clientfeatures.WatchListClient {
		return g.watchList
	}
	return g.Gates.Enabled(f)
}

// revisions are those of all objects in an informer's store.
func revisions(t testing.TB, store cache.Store) map[string]string {
	t.Helper()
	got := map[string]string{}
	for _, o := range store.List() {
		m, err := meta.Accessor(o)
		if err != nil {
			t.Fatal(err)
		}
		got[m.GetNamespace()+"/"+m.GetName()] = m.GetResourceVersion()
	}
	return got
}

// TestInformers runs Kubernetes' own informers of all kinds against a replica that changes, loses its source, and ends
// up with another content; their stores must be equal to it in the end.
func TestInformers(t *testing.T) {
	usual := clientfeatures.FeatureGates()
	t.Cleanup(func() { clientfeatures.ReplaceFeatureGates(usual) })
	widgetsType := streamtest.Widgets
	for _, watchList := range []bool{true, false} {
		clientfeatures.ReplaceFeatureGates(gates{usual, watchList})
		for _, test := range []struct {
			name     string
			custom   bool
			informer func(t *testing.T, s *server) cache.SharedIndexInformer
		}{
			{"typed protobuf", false, typed(asProtobuf)},
			{"typed JSON", false, typed(asJSON)},
			{"metadata", false, func(t *testing.T, s *server) cache.SharedIndexInformer {
				c, err := metadata.NewForConfig(s.restConfig(""))
				if err != nil {
					t.Fatal(err)
				}
				return metadatainformer.NewSharedInformerFactory(c, 0).ForResource(slicesResource).Informer()
			}},
			{"dynamic", true, func(t *testing.T, s *server) cache.SharedIndexInformer {
				c, err := dynamic.NewForConfig(s.restConfig(""))
				if err != nil {
					t.Fatal(err)
				}
				return dynamicinformer.NewDynamicSharedInformerFactory(c, 0).ForResource(widgetsResource).Informer()
			}},
			{"dynamic, of a built-in type", false, func(t *testing.T, s *server) cache.SharedIndexInformer {
				c, err := dynamic.NewForConfig(s.restConfig(""))
				if err != nil {
					t.Fatal(err)
				}
				return dynamicinformer.NewDynamicSharedInformerFactory(c, 0).ForResource(slicesResource).Informer()
			}},
			{"metadata of a custom type", true, func(t *testing.T, s *server) cache.SharedIndexInformer {
				c, err := metadata.NewForConfig(s.restConfig(""))
				if err != nil {
					t.Fatal(err)
				}
				return metadatainformer.NewSharedInformerFactory(c, 0).ForResource(widgetsResource).Informer()
			}},
		} {
			t.Run(fmt.Sprintf("%s, WatchList %v", test.name, watchList), func(t *testing.T) {
				resource, e := slicesResource, typ
				create := func(name string, revision edge.Revision) stream.Object { return slice("a", name, revision, 3, nil) }
				if test.custom {
					resource, e = widgetsResource, widgetsType
					create = func(name string, revision edge.Revision) stream.Object {
						return streamtest.Object(e, "a", name, revision, "")
					}
				}
				r := newReplica(t, replica.Config{Resource: resource})
				replace(t, r, stream.Snapshot{Type: e, Revision: 100, Objects: []stream.Object{create("x", 10), create("y", 20)}})
				s := serve(t, newHandler(t, replica.HandlerConfig{Replica: r}))
				informer := test.informer(t, s)
				ctx, cancel := context.WithCancel(t.Context())
				var running sync.WaitGroup
				running.Go(func() { informer.Run(ctx.Done()) })
				defer running.Wait()
				defer cancel()
				changed := make(chan struct{}, 1000)
				note := func() { changed <- struct{}{} }
				_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
					AddFunc:    func(any) { note() },
					UpdateFunc: func(any, any) { note() },
					DeleteFunc: func(any) { note() },
				})
				if err != nil {
					t.Fatal(err)
				}
				until := func(want map[string]string) {
					t.Helper()
					for limit := time.After(streamtest.Patience); !maps.Equal(revisions(t, informer.GetStore()), want); {
						select {
						case <-changed:
						case <-limit:
							t.Fatalf("the store has %v, want %v", revisions(t, informer.GetStore()), want)
						}
					}
				}
				until(map[string]string{"a/x": "10", "a/y": "20"})
				apply(t, r, event(stream.Modified, create("x", 101)), event(stream.Deleted, create("y", 102)),
					event(stream.Added, create("z", 103)))
				until(map[string]string{"a/x": "101", "a/z": "103"})
				others := []stream.Object{create("y", 150), create("z", 103)}
				replace(t, r, stream.Snapshot{Type: e, Revision: 200, Objects: others})
				until(map[string]string{"a/y": "150", "a/z": "103"})
				apply(t, r, event(stream.Modified, create("z", 201)))
				until(map[string]string{"a/y": "150", "a/z": "201"})
				if got := s.asked("sendInitialEvents=true") > 0; got != watchList {
					t.Errorf("the client used WatchList: %v, want %v", got, watchList)
				}
			})
		}
	}
}

func typed(contentType string) func(t *testing.T, s *server) cache.SharedIndexInformer {
	return func(t *testing.T, s *server) cache.SharedIndexInformer {
		c, err := kubernetes.NewForConfig(s.restConfig(contentType))
		if err != nil {
			t.Fatal(err)
		}
		return informers.NewSharedInformerFactory(c, 0).Discovery().V1().EndpointSlices().Informer()
	}
}

func TestPager(t *testing.T) {
	r := newReplica(t, replica.Config{})
	var many []stream.Object
	for i := range 1234 {
		many = append(many, slice(fmt.Sprint("ns", i%3), fmt.Sprint("s", i), 1+edge.Revision(i), 1, nil))
	}
	replace(t, r, snapshot(2000, many...))
	s := serve(t, newHandler(t, replica.HandlerConfig{Replica: r}))
	c, err := kubernetes.NewForConfig(s.restConfig(asProtobuf))
	if err != nil {
		t.Fatal(err)
	}
	p := pager.New(pager.SimplePageFunc(func(o metav1.ListOptions) (runtime.Object, error) {
		apply(t, r, event(stream.Modified, slice("ns0", "s0", r.Position()+1, 1, nil))) // the world goes on
		return c.DiscoveryV1().EndpointSlices("").List(t.Context(), o)
	}))
	p.PageSize = 500
	got, paged, err := p.List(t.Context(), metav1.ListOptions{})
	if err != nil || !paged || meta.LenList(got) != 1234 {
		t.Fatalf("%d objects, paged %v, %v", meta.LenList(got), paged, err)
	}
	if n := len(s.requests); n != 3 {
		t.Errorf("%d requests, want 3 pages", n)
	}
}

func TestTypedErrors(t *testing.T) {
	s := serve(t, newHandler(t, replica.HandlerConfig{Replica: filled(t)}))
	for _, ct := range []string{asJSON, asProtobuf} {
		c, err := kubernetes.NewForConfig(s.restConfig(ct))
		if err != nil {
			t.Fatal(err)
		}
		api := c.DiscoveryV1().EndpointSlices("a")
		o, err := api.Get(t.Context(), "x", metav1.GetOptions{})
		if err != nil || len(o.Endpoints) != 2 || o.ResourceVersion != "10" {
			t.Errorf("get: %v %v", o, err)
		}
		if _, err := api.Get(t.Context(), "none", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("get: %v, want not found", err)
		}
		w, err := api.Watch(t.Context(), metav1.ListOptions{ResourceVersion: "1"})
		if err != nil {
			t.Fatal(err)
		}
		e := <-w.ResultChan()
		if e.Type != apiwatch.Error || !apierrors.IsResourceExpired(apierrors.FromObject(e.Object)) {
			t.Errorf("watch from long ago: %v", e)
		}
		w.Stop()
	}
}
