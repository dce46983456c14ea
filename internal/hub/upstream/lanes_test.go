package upstream

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"yurtcoordinator/internal/hub/link"
)

func TestLaneOf(t *testing.T) {
	for target, want := range map[string]lane{
		"PUT " + ownLease: urgent,
		"GET " + ownLease: urgent,
		"POST /apis/coordination.k8s.io/v1/namespaces/a/leases":                        urgent,
		"PATCH /api/v1/nodes/n1/status":                                                urgent,
		"GET /api/v1/nodes/n1":                                                         urgent,
		"GET /api/v1/nodes?fieldSelector=metadata.name%3Dn1":                           urgent,
		"GET /api/v1/namespaces/a":                                                     urgent,
		"GET /api/v1/namespaces/a/status":                                              urgent,
		"PUT /api/v1/namespaces/a/finalize":                                            urgent,
		"GET /api/v1/namespaces/a/pods/p":                                              urgent,
		"POST /api/v1/namespaces/a/serviceaccounts/s/token":                            urgent,
		"POST /api/v1/namespaces/a/events":                                             urgent,
		"DELETE /api/v1/namespaces/a/pods/p":                                           urgent,
		"POST /apis/authorization.k8s.io/v1/subjectaccessreviews":                      urgent,
		"GET /api/v1/services?limit=1":                                                 urgent,
		"GET /readyz":                                                                  urgent,
		"GET /livez/etcd":                                                              urgent,
		"GET /version":                                                                 urgent,
		"GET /api/v1/pods?watch=1&resourceVersion=5":                                   watching,
		"GET /api/v1/namespaces/a/pods?watch=true&resourceVersion=5":                   watching,
		"GET /api/v1/nodes?watch=true&fieldSelector=metadata.name%3Dn1":                watching,
		"GET /api/v1/nodes/n1?watch=true&resourceVersion=5":                            urgent, // no watch
		"GET /api/v1/watch/services?resourceVersion=5":                                 watching,
		"GET /api/v1/watch/services":                                                   bulk,
		"GET /api/v1/watch":                                                            bulk,
		"GET /api/v1/pods?watch=1":                                                     bulk,
		"GET /api/v1/pods?watch=1&resourceVersion=0":                                   bulk,
		"GET /api/v1/pods?watch=1&resourceVersion=5&sendInitialEvents=true":            bulk,
		"GET /api/v1/pods?watch=1&sendInitialEvents=1&fieldSelector=metadata.name%3Dp": bulk,
		"GET /api/v1/pods?watch=perhaps&resourceVersion=5":                             watching, // for an API server, too
		"GET /api/v1/pods?watch=false&resourceVersion=5":                               bulk,
		"GET /api/v1/pods":                                                             bulk,
		"GET /api/v1/pods?fieldSelector=spec.nodeName%3Dn1":                            bulk,
		"GET /api/v1/namespaces":                                                       bulk,
		"GET /api/v1/namespaces/a/pods?limit=500":                                      bulk,
		"GET /apis/discovery.k8s.io/v1/endpointslices":                                 bulk,
		"DELETE /api/v1/namespaces/a/pods":                                             bulk,
		"GET /api/v1/namespaces/a/pods/p/log?follow=true":                              bulk,
		"GET /api/v1/namespaces/a/services/s/proxy/leases":                             bulk,
		"POST /api/v1/nodes/n1/proxy/run":                                              bulk,
		"GET /api":                                                                     bulk,
		"GET /apis":                                                                    bulk,
		"GET /api/v1":                                                                  bulk,
		"GET /apis/apps/v1":                                                            bulk,
		"GET /state/v1":                                                                watching,
		"GET /state/v1?presence=nodes":                                                 watching,
		"GET /state/v1?presence=pods":                                                  bulk,
		"GET /openapi/v3":                                                              bulk, "GET /": bulk,
	} {
		method, path, _ := strings.Cut(target, " ")
		req, err := http.NewRequestWithContext(t.Context(), method, "https://cloud"+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := laneOf(req, infoOf(req)); got != want {
			t.Errorf("%s: %v, want %v", target, got, want)
		}
	}
	for path, want := range map[string]lane{"/api/v1/namespaces/a/configmaps": bulk, ownLease: urgent} {
		large := bytes.NewReader(make([]byte, smallBody+1))
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "https://cloud"+path, large)
		if err != nil {
			t.Fatal(err)
		}
		if got := laneOf(req, infoOf(req)); got != want {
			t.Errorf("%s with a large body: %v, want %v", path, got, want)
		}
	}
}

// TestLanesAreApart: each lane has one connection of its own, which is dialled when it is first needed.
func TestLanesAreApart(t *testing.T) {
	ca := newAuthority(t)
	watched, end := make(chan string, 1), make(chan struct{})
	s := ca.serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("watch") == "" {
			_, _ = io.WriteString(w, r.RemoteAddr)
			return
		}
		w.(http.Flusher).Flush()
		watched <- r.RemoteAddr
		<-end
	}, nil)
	defer close(end)
	cfg := ca.files(t, "system:node:n1", s.URL)
	ws := newWires()
	cfg.DialContext = ws.dial
	u := start(t, cfg)
	await(t, u, link.Up)
	node := u.AsNode()
	from := func(path string) string {
		t.Helper()
		at, err := get(t, node, path)
		if err != nil {
			t.Fatal(err)
		}
		return at
	}
	first := from(ownLease)
	if second := from("/api/v1/nodes/n1"); second != first {
		t.Errorf("two urgent requests came from %s and %s, want one connection", first, second)
	}
	if n := ws.count(); n != 1 {
		t.Errorf("%d connections though there were urgent requests only", n)
	}
	list := from("/api/v1/pods")
	if again := from("/api/v1/services"); again != list {
		t.Errorf("two lists came from %s and %s, want one connection", list, again)
	}
	const changes = "https://cloud/api/v1/pods?watch=1&resourceVersion=5"
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, changes, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := node.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	watch := <-watched
	if list == first || watch == first || watch == list {
		t.Errorf("lease %s, list %s, watch %s: want three connections", first, list, watch)
	}
	if n := ws.count(); n != 3 {
		t.Errorf("%d connections, want 3", n)
	}
}

// TestBulkDoesNotHoldUpTheLease: while nobody reads a list and its connection is full, the node's Lease is renewed.
func TestBulkDoesNotHoldUpTheLease(t *testing.T) {
	ca := newAuthority(t)
	var written atomic.Int64
	s := ca.serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut {
			return
		}
		for r.Context().Err() == nil {
			n, err := w.Write(make([]byte, 64<<10))
			if written.Add(int64(n)); err != nil {
				return
			}
		}
	}, nil)
	u := start(t, ca.files(t, "system:node:n1", s.URL))
	await(t, u, link.Up)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	list, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://cloud/api/v1/pods", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := u.AsNode().RoundTrip(list)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	waitFor(t, func() bool { return written.Load() >= 4<<20 }) // what HTTP/2 lets a stream have on its way
	for range 10 {
		lease, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "https://cloud"+ownLease, strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		answer, err := u.AsNode().RoundTrip(lease)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
	}
}
