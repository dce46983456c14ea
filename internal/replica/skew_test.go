package replica_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/replica"
	"yurtcoordinator/internal/stream"
	"yurtcoordinator/internal/stream/edit"
	"yurtcoordinator/internal/stream/streamtest"
)

// newer is an object as a newer API server has it: with a field in its first endpoint that nobody here knows.
func newer(t testing.TB, o stream.Object) stream.Object {
	t.Helper()
	first := true
	raw, err := edit.Change(o.Raw, func(f edit.Field) ([]byte, error) {
		if !first {
			return f.Value, nil
		}
		first = false
		return edit.Append(slices.Clone(f.Value), 99, "of the future"), nil
	}, edit.SliceEndpoints)
	if err != nil || bytes.Equal(raw, o.Raw) {
		t.Fatal("nothing is new in it", err)
	}
	o.Raw = raw
	return o
}

// What a program reads whose JSON lacks a field, it can't write back: its revision is none that an API server takes.
func TestWhatJSONLeavesOutIsNotWrittenBack(t *testing.T) {
	r := newReplica(t, replica.Config{})
	old := slice("a", "old", 10, 2, nil)
	replace(t, r, snapshot(100, newer(t, slice("a", "new", 20, 2, nil)), old))
	s := serve(t, newHandler(t, replica.HandlerConfig{Replica: r}))

	var read discoveryv1.EndpointSlice
	answer := s.get(t, "/apis/discovery.k8s.io/v1/namespaces/a/endpointslices/new", asJSON)
	if err := json.Unmarshal(answer.body, &read); err != nil || len(read.Endpoints) != 2 {
		t.Fatal(err, string(answer.body))
	}
	wantShown(t, "get", read.ResourceVersion, 20)

	var list discoveryv1.EndpointSliceList
	if err := json.Unmarshal(s.get(t, slicesPath, asJSON).body, &list); err != nil || len(list.Items) != 2 {
		t.Fatal(err)
	}
	wantShown(t, "list", list.Items[0].ResourceVersion, 20)
	if list.Items[1].ResourceVersion != "10" || list.ResourceVersion != "100" {
		t.Errorf("what is whole is of revision %s in a list of %s", list.Items[1].ResourceVersion, list.ResourceVersion)
	}
	f := s.watch(t, slicesPath+"?watch=1&resourceVersion=100", asJSON)
	apply(t, r, event(stream.Modified, newer(t, slice("a", "old", 110, 2, nil))))
	e, err := f.Read()
	if err != nil {
		t.Fatal(err)
	}
	wantShown(t, "watch", e.Object.Revision.String(), 110)
	// Whoever goes on from there misses nothing, and is told nothing twice.
	apply(t, r, event(stream.Modified, slice("a", "old", 120, 1, nil)))
	s.watch(t, slicesPath+"?watch=1&resourceVersion="+e.Object.Revision.String(), asJSON).want("MODIFIED a/old@120")

	// As Protobuf it is whole, and is the cloud's.
	s.watch(t, slicesPath+"?watch=1&resourceVersion=100", asProtobuf).want("MODIFIED a/old@110", "MODIFIED a/old@120")
}

func wantShown(t *testing.T, verb, version string, want edge.Revision) {
	t.Helper()
	revision, err := edge.ParseRevision(version)
	if own, shown := revision.Own(); err != nil || own != want || !shown {
		t.Errorf("%s: an object that is not whole is of revision %s, of %d, want one that says so", verb, version, own)
	}
}

// Where the cloud can be asked, it has the better answer.
func TestPoorer(t *testing.T) {
	r := newReplica(t, replica.Config{})
	h := newHandler(t, replica.HandlerConfig{Replica: r})
	poorer := func(accept string) bool {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, slicesPath, nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Accept", accept)
		return h.Poorer(request, "list")
	}
	is := func(when string, want map[string]bool) {
		t.Helper()
		for accept, want := range want {
			if got := poorer(accept); got != want {
				t.Errorf("%s: as %s: %v, want %v", when, accept, got, want)
			}
		}
	}
	const partial = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
	replace(t, r, snapshot(100, slice("a", "x", 10, 2, nil)))
	is("at first", map[string]bool{asJSON: false, asProtobuf: false, asTable: true, partial: false, "text/plain": true})
	apply(t, r, event(stream.Added, newer(t, slice("a", "y", 110, 2, nil))))
	is("with a new field", map[string]bool{asJSON: true, asProtobuf: false, partial: false})
	apply(t, r, event(stream.Deleted, slice("a", "y", 120, 2, nil)), event(stream.Added, slice("a", "z", 130, 2, nil)))
	is("without it again", map[string]bool{asJSON: false})
	replace(t, r, snapshot(200, newer(t, slice("a", "x", 150, 2, nil))))
	is("after a list with it", map[string]bool{asJSON: true, asProtobuf: false})

	future := streamtest.EndpointSlices
	future.Kind = "EndpointHologram"
	r.Reset()
	replace(t, r, stream.Snapshot{Type: future, Revision: 300})
	is("of a new kind", map[string]bool{asJSON: true, asProtobuf: false, asProtobuf + "," + asJSON: false})
}

// A watch that the cloud could tell better ends before what would be left out, orderly.
func TestAWatchThatTheCloudTellsBetterEnds(t *testing.T) {
	r := newReplica(t, replica.Config{})
	replace(t, r, snapshot(100, slice("a", "x", 10, 2, nil)))
	s := serve(t, newHandler(t, replica.HandlerConfig{Replica: r}))
	s.elsewhere = true
	f := s.watch(t, slicesPath+"?watch=1&resourceVersion=100", asJSON)
	apply(t, r, event(stream.Modified, slice("a", "x", 110, 2, nil)),
		event(stream.Modified, newer(t, slice("a", "x", 120, 2, nil))))
	f.want("MODIFIED a/x@110")
	f.wantErr(isEOF)
	s.watch(t, slicesPath+"?watch=1&resourceVersion=110", asProtobuf).want("MODIFIED a/x@120")
	if a := s.get(t, slicesPath, asJSON); a.StatusCode != http.StatusOK || !strings.Contains(string(a.body), `"name":"x"`) {
		t.Errorf("a list is answered %d %s", a.StatusCode, a.body)
	}
}
