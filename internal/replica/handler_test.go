package replica_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/replica"
	"yurtcoordinator/internal/stream"
	"yurtcoordinator/internal/stream/streamtest"
)

// cloudsToken is how an API server goes on after ns/web-1 at revision 5, climbingToken one that it refuses.
const (
	cloudsToken   = "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6NSwic3RhcnQiOiJucy93ZWItMVx1MDAwMCJ9"
	climbingToken = "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MSwic3RhcnQiOiIuLi8ifQ"
)

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
		{built, slicesPath, "application/json;as=Table;v=v1;g=meta.k8s.io", 406, metav1.StatusReasonNotAcceptable, ""},
		{custom, "/apis/example.org/v1/widgets", asProtobuf, 406, metav1.StatusReasonNotAcceptable, "application/json"},
		{custom, "/apis/example.org/v1/widgets?watch=1", asProtobuf, 406, metav1.StatusReasonNotAcceptable, "application/json"},
		{built, slicesPath + "?fieldSelector=spec.x%3D1", asJSON, 400, metav1.StatusReasonBadRequest,
			`"spec.x" is not a known field selector: only "metadata.name", "metadata.namespace"`},
		{built, slicesPath + "?labelSelector=a%20b", asJSON, 400, metav1.StatusReasonBadRequest, "unable to parse"},
		{built, slicesPath + "?resourceVersion=abc", asJSON, 400, metav1.StatusReasonBadRequest, "resourceVersion"},
		{built, slicesPath + "?watch=1&resourceVersion=abc", asJSON, 422, metav1.StatusReasonInvalid, "resourceVersion"},
		{built, slicesPath + "?resourceVersionMatch=Exact", asJSON, 422, metav1.StatusReasonInvalid, "resourceVersionMatch"},
		{built, slicesPath + "?resourceVersion=99&resourceVersionMatch=Exact", asJSON, 410, metav1.StatusReasonExpired, "99"},
		{built, slicesPath + "?resourceVersion=99&limit=1", asJSON, 410, metav1.StatusReasonExpired, "99"},
		{built, slicesPath + "?sendInitialEvents=true", asJSON, 422, metav1.StatusReasonInvalid, "sendInitialEvents"},
		{built, slicesPath + "?watch=1&sendInitialEvents=true", asJSON, 422, metav1.StatusReasonInvalid, "resourceVersionMatch"},
		{built, slicesPath + "?continue=nonsense", asJSON, 400, metav1.StatusReasonBadRequest, "continue"},
		{built, slicesPath + "?continue=" + cloudsToken, asJSON, 410, metav1.StatusReasonExpired, "list again"},
		{built, slicesPath + "?continue=" + climbingToken, asJSON, 400, metav1.StatusReasonBadRequest, "continue"},
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

// An API server has empty details if it knows none of the media types, but not of custom resources.
func TestNotAcceptable(t *testing.T) {
	widgets := newReplica(t, replica.Config{Resource: widgetsResource})
	replace(t, widgets, stream.Snapshot{Type: streamtest.Widgets, Revision: 100})
	built := serve(t, newHandler(t, replica.HandlerConfig{Replica: filled(t)}))
	custom := serve(t, newHandler(t, replica.HandlerConfig{Replica: widgets}))
	const noTable = "application/json;as=Table;v=v1;g=meta.k8s.io"
	for _, test := range []struct {
		s            *server
		path, accept string
		details      bool
	}{
		{built, slicesPath, "text/plain", true}, {built, slicesPath, noTable, false},
		{built, slicesPath, "text/plain," + noTable, false},
		{custom, "/apis/example.org/v1/widgets", "text/plain", false}, {custom, "/apis/example.org/v1/widgets", noTable, false},
	} {
		s := test.s.get(t, test.path, test.accept).status(t)
		if s.Code != http.StatusNotAcceptable || (s.Details != nil) != test.details {
			t.Errorf("%s as %s: %+v, want details %v", test.path, test.accept, s, test.details)
		}
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
		path, accept string
		want         string
	}{
		{slicesPath, "gzip", "gzip"},
		{slicesPath, "deflate, gzip;q=0.5", "gzip"},
		{slicesPath, "gzip;q=0", ""},
		{slicesPath, "gzip;q=0.0", ""},
		{slicesPath, "identity", ""},
		{slicesPath + "?limit=3", "gzip", ""}, // small
	} {
		s := serve(t, newHandler(t, replica.HandlerConfig{Replica: r}))
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
