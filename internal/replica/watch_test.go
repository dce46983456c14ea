package replica_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"

	"yurtcoordinator/internal/replica"
	"yurtcoordinator/internal/stream"
)

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

	// Whoever would rather have tables is told of objects.
	plain := stream.NewFrameReader(res(asTable, "?watch=1&resourceVersion=100").Body, stream.JSON, 1<<20)
	if got, err := plain.Read(); err != nil || got.Object.Revision != 101 || plain.Type().Kind != "EndpointSlice" {
		t.Errorf("as a table: %v of %v, %v", got.Object.Key, plain.Type(), err)
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
