package upstream

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/hub/link"
)

func TestKindOfARequest(t *testing.T) {
	const leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
	for _, tt := range []struct {
		method, url string
		want        kind
	}{
		{"PUT", leases + "/n1", heartbeats},
		{"GET", leases + "/n1?timeout=10s", heartbeats},
		{"POST", leases, heartbeats},
		{"GET", leases, lists},
		{"GET", leases + "?watch=true", watches},
		{"PUT", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/x", writes},
		{"GET", "/api/v1/nodes", lists},
		{"GET", "/api/v1/nodes?watch=1&resourceVersion=7", watches},
		{"GET", "/api/v1/nodes?watch=false", lists},
		{"GET", "/api/v1/watch/nodes", watches},
		{"GET", "/apis/apps/v1/watch/namespaces/a/deployments", watches},
		{"GET", "/api/v1/nodes/n1", reads},
		{"GET", "/api/v1/namespaces", lists},
		{"GET", "/api/v1/namespaces/a", reads},
		{"GET", "/api/v1/namespaces/a/pods", lists},
		{"GET", "/api/v1/namespaces/a/pods/p", reads},
		{"GET", "/api/v1/namespaces/a/pods/log", reads},
		{"GET", "/api/v1/namespaces/a/pods/p/log?follow=true", streams},
		{"POST", "/api/v1/namespaces/a/pods/p/exec", streams},
		{"GET", "/api/v1/namespaces/a/services/s/proxy/x", streams},
		{"PATCH", "/api/v1/nodes/n1/status", writes},
		{"PUT", "/api/v1/namespaces/a/finalize", writes},
		{"POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", writes},
		{"GET", "/apis/discovery.k8s.io/v1/endpointslices", lists},
		{"GET", "/apis/discovery.k8s.io/v1", reads},
		{"GET", "/readyz", reads},
		{"GET", "/", reads},
	} {
		req := httptest.NewRequest(tt.method, tt.url, nil)
		if got := kindOf(req, infoOf(req)); got != tt.want {
			t.Errorf("%s %s is %v, want %v", tt.method, tt.url, got, tt.want)
		}
	}
	upgrade := httptest.NewRequest(http.MethodGet, "/api/v1/x", nil)
	upgrade.Header.Set("Upgrade", "websocket")
	if got := kindOf(upgrade, infoOf(upgrade)); got != streams {
		t.Errorf("an upgrade is %v, want %v", got, streams)
	}
}

// byKind reads the metric.
func byKind(t *testing.T, from prometheus.Gatherer) (kinds map[string]uint64, sent, received uint64) {
	t.Helper()
	families, err := from.Gather()
	if err != nil {
		t.Fatal(err)
	}
	kinds = map[string]uint64{}
	for _, f := range families {
		if f.GetName() != "yurthub_upstream_bytes_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			if labels["upstream"] == "" {
				t.Fatalf("it is of no upstream: %v", labels)
			}
			n := uint64(m.GetCounter().GetValue())
			kinds[labels["kind"]+" "+labels["direction"]] = n
			if labels["direction"] == "sent" {
				sent += n
			} else {
				received += n
			}
		}
	}
	return kinds, sent, received
}

// What connections have carried is told by what it was for: bodies by their requests, handshakes, probes, and the rest.
func TestBytesByTheirKind(t *testing.T) {
	const written, watched, streamed = 10_000, 20_000, 5_000
	ca := newAuthority(t)
	s := ca.serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Header.Get("Upgrade") != "":
			conn, in, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			fmt.Fprint(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
			_, _ = io.CopyN(conn, in, streamed)
		case r.Method == http.MethodPost:
			_, _ = io.Copy(io.Discard, r.Body)
		default:
			_, _ = io.WriteString(w, strings.Repeat("x", watched))
		}
	}, nil)
	cfg := ca.files(t, "system:node:n1", s.URL)
	registry := prometheus.NewRegistry()
	cfg.Metrics = registry
	u := start(t, cfg)
	await(t, u, link.Up)
	ask := func(method, path string, body io.Reader, upgrade string) *http.Response {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, path, body)
		if err != nil {
			t.Fatal(err)
		}
		if upgrade != "" {
			req.Header.Set("Upgrade", upgrade)
			req.Header.Set("Connection", "Upgrade")
		}
		response, err := u.AsNode().RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		return response
	}
	drain := func(r *http.Response) {
		t.Helper()
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			t.Fatal(err)
		}
		_ = r.Body.Close()
	}
	drain(ask(http.MethodPost, "/api/v1/nodes", strings.NewReader(strings.Repeat("x", written)), ""))
	drain(ask(http.MethodGet, "/api/v1/nodes?watch=true", nil, ""))
	upgraded := ask(http.MethodGet, "/api/v1/namespaces/a/pods/p/exec", nil, "echo")
	stream, ok := upgraded.Body.(io.ReadWriteCloser)
	if !ok {
		t.Fatal("the answer to an upgrade is no stream")
	}
	if _, err := io.WriteString(stream, strings.Repeat("x", streamed)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(bufio.NewReader(stream), make([]byte, streamed)); err != nil {
		t.Fatal(err)
	}
	_ = stream.Close()
	if err := u.servers[0].probe(t.Context(), link.Fresh); err != nil {
		t.Fatal(err)
	}

	traffic := u.Traffic()
	got, sent, received := byKind(t, registry)
	for what, want := range map[string]uint64{
		"write sent": written, "write received": 0, "watch sent": 0, "watch received": watched, "stream sent": streamed,
		"stream received": streamed, "list sent": 0, "heartbeat sent": 0,
	} {
		if got[what] != want {
			t.Errorf("%s: %d, want %d", what, got[what], want)
		}
	}
	for _, what := range []string{
		"connect sent", "connect received", "probe sent", "probe received", "framing sent", "framing received",
	} {
		if got[what] == 0 || got[what] > 9000 {
			t.Errorf("%s: %d, want some, and no content of requests", what, got[what])
		}
	}
	// Probes go on meanwhile.
	if sent < traffic.Sent || sent > traffic.Sent+5000 || received < traffic.Received || received > traffic.Received+5000 {
		t.Errorf("sent %d and received %d in all kinds, but connections carried %d and %d", sent, received, traffic.Sent,
			traffic.Received)
	}
}

// A counter does not go back: what has been received is framing until its reader has it.
func TestFramingDoesNotGoBack(t *testing.T) {
	s := &spent{}
	m := &metrics{}
	check := func(what string, wantFraming, wantWatch uint64) {
		t.Helper()
		got := s.shown(1, &m.received)
		if got[framing] != wantFraming || got[watches] != wantWatch {
			t.Errorf("%s: framing %d, watch %d, want %d, %d", what, got[framing], got[watches], wantFraming, wantWatch)
		}
	}
	m.received.Store(1000)
	check("received, not read", 1000, 0)
	s.received[watches].Store(900)
	check("read", 1000, 900)
	m.received.Store(2500)
	s.received[watches].Store(1400)
	check("more", 1100, 1400)
	if got := s.shown(0, &m.sent); got[framing] != 0 {
		t.Errorf("%d sent as framing, want none", got[framing])
	}
}

// What the pool is told has the kinds that it knows.
func TestKindsOfThePool(t *testing.T) {
	var names []string
	u := &Upstream{metrics: &metrics{}}
	for k := range kinds {
		names = append(names, k.String())
		u.metrics.spent.sent[k].Store(uint64(k))
	}
	u.metrics.sent.Store(100)
	if !slices.Equal(names, edge.CarriedKinds) {
		t.Errorf("kinds are %q, the pool knows %q", names, edge.CarriedKinds)
	}
	if got := u.Carried(); got["stream"] != (edge.Bytes{uint64(streams), 0}) || len(got) != len(names) {
		t.Errorf("it has carried %v", got)
	}
}

// The wrapper costs a request nothing that it could feel.
func BenchmarkKindOf(b *testing.B) {
	req := httptest.NewRequest(http.MethodGet, "/api/v1/namespaces/a/pods/p?resourceVersion=0", nil)
	for b.Loop() {
		kindOf(req, infoOf(req))
	}
}
