package replica_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/replica"
	"yurtcoordinator/internal/stream"
)

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
	all := serve(t, newHandler(t, replica.HandlerConfig{Replica: filled(t)}))
	// Two of the four, none of which comes after what was given, or before.
	viewed := serve(t, newHandler(t, replica.HandlerConfig{Replica: filled(t), View: newTeam("x")}))
	selected := serve(t, newHandler(t, replica.HandlerConfig{Replica: filled(t)}))
	selected.selected = true
	for _, c := range []struct {
		from *server
		path string
		want int64
		goes bool // on
	}{
		{all, "?limit=1", 3, true}, {all, "?limit=3", 1, true}, {all, "?limit=4", -1, false},
		{all, "?limit=1&labelSelector=app", -1, true},
		{viewed, "?limit=1", 1, true}, {viewed, "?limit=2", -1, false}, {viewed, "?limit=1&labelSelector=app", -1, true},
		{selected, "?limit=1", -1, true}, {selected, "?limit=4", -1, false},
	} {
		var list metav1.PartialObjectMetadataList
		if err := json.Unmarshal(c.from.get(t, slicesPath+c.path, asJSON).body, &list); err != nil {
			t.Fatal(err)
		}
		got := int64(-1)
		if list.RemainingItemCount != nil {
			got = *list.RemainingItemCount
		}
		if got != c.want || (list.Continue != "") != c.goes {
			t.Errorf("%s: %d remain, continue %q, want %d, %v", c.path, got, list.Continue, c.want, c.goes)
		}
	}
}

// An API server says of v1 Endpoints, in every answer, that they are deprecated.
func TestWarning(t *testing.T) {
	resource := corev1.SchemeGroupVersion.WithResource("endpoints")
	r := newReplica(t, replica.Config{Resource: resource})
	s := serve(t, newHandler(t, replica.HandlerConfig{Replica: r}))
	early := make(chan answer, 1)
	go func() { early <- s.get(t, "/api/v1/endpoints", asJSON) }() // it waits, if it is the first
	replace(t, r, stream.Snapshot{Revision: 100, Type: stream.Type{
		GroupVersionKind: corev1.SchemeGroupVersion.WithKind("Endpoints"), Encoding: stream.JSON,
	}})
	const want = `299 - "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"`
	answers := []answer{<-early}
	for _, path := range []string{
		"/api/v1/endpoints", "/api/v1/namespaces/a/endpoints/none", "/api/v1/endpoints?watch=1&timeoutSeconds=1",
		"/api/v1/endpoints?labelSelector=a%20b",
	} {
		answers = append(answers, s.get(t, path, asJSON))
	}
	for _, a := range answers {
		if got := a.Header.Values("Warning"); !slices.Equal(got, []string{want}) {
			t.Errorf("%s: Warning %q, want %q", a.Request.URL, got, want)
		}
	}
	fine := serve(t, newHandler(t, replica.HandlerConfig{Replica: filled(t)}))
	if got := fine.get(t, slicesPath, asJSON).Header.Values("Warning"); len(got) != 0 {
		t.Errorf("EndpointSlices come with a warning: %q", got)
	}
}

// TestInsteadOfATable: kubectl asks for a table, and gets the objects, which it accepts, too.
func TestInsteadOfATable(t *testing.T) {
	s := serve(t, newHandler(t, replica.HandlerConfig{Replica: filled(t)}))
	for _, path := range []string{slicesPath, "/apis/discovery.k8s.io/v1/namespaces/a/endpointslices/x"} {
		if as, plain := s.get(t, path, asTable), s.get(t, path, asJSON); string(as.body) != string(plain.body) {
			t.Errorf("%s as a table: %s", path, as.body)
		}
	}
}
