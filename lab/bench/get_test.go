package bench

import (
	"crypto/tls"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"k8s.io/utils/clock"

	"yurtcoordinator/internal/sim/pki"
)

// serveBoth serves handler as an API server, which asks for a client certificate, as a hub, and as a plain proxy.
func serveBoth(t *testing.T, handler http.HandlerFunc) Spec {
	t.Helper()
	ca, err := pki.Create(t.TempDir(), "ca", clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	pair, err := ca.Issue(pki.Request{Name: "n", CommonName: "system:node:n", Client: true})
	if err != nil {
		t.Fatal(err)
	}
	read := func(path string) []byte {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return content
	}
	server := httptest.NewUnstartedServer(handler)
	server.EnableHTTP2 = true
	server.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert}
	server.StartTLS()
	t.Cleanup(server.Close)
	hub := httptest.NewTLSServer(handler)
	t.Cleanup(hub.Close)
	authority := func(s *httptest.Server) []byte {
		return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	}
	plain := httptest.NewTLSServer(handler)
	t.Cleanup(plain.Close)
	return Spec{
		Node:      "n",
		AsNode:    Access{Server: server.URL, Cert: read(pair.Cert), Key: read(pair.Key), CA: authority(server)},
		AsKubelet: Access{Server: hub.URL, Token: "abc", CA: authority(hub)},
		asProxy:   Access{Server: plain.URL, CA: authority(plain)},
	}
}

// TestWays holds that each way is what it is called, and that each connection is one.
func TestWays(t *testing.T) {
	var mu sync.Mutex
	seen := map[string]map[string]bool{} // addresses of clients, by how they came
	spec := serveBoth(t, func(w http.ResponseWriter, r *http.Request) {
		how := r.Proto
		if r.TLS != nil && len(r.TLS.PeerCertificates) == 1 {
			how += " as " + r.TLS.PeerCertificates[0].Subject.CommonName
		}
		if token := r.Header.Get("Authorization"); token != "" {
			how += " with " + token
		}
		mu.Lock()
		defer mu.Unlock()
		if seen[how] == nil {
			seen[how] = map[string]bool{}
		}
		seen[how][r.RemoteAddr] = true
		w.Header().Set("Content-Type", r.Header.Get("Accept"))
		_, _ = w.Write(make([]byte, 1000))
	})
	for way, how := range map[Way]string{
		HTTP2: "HTTP/2.0 as system:node:n", HTTP1: "HTTP/1.1 as system:node:n", Hub: "HTTP/1.1 with Bearer abc",
		Proxy: "HTTP/1.1",
	} {
		on, err := spec.connect(way, 3)
		if err != nil {
			t.Fatal(err)
		}
		for range 4 {
			r, err := hammer(t.Context(), on, "/x", Protobuf, 0)
			if err != nil {
				t.Fatalf("%s: %v", way, err)
			}
			if r.Requests != 3 || r.Bytes != 3000 || r.Elapsed <= 0 ||
				r.Latency.P50 <= 0 || r.Latency.P99 < r.Latency.P50 {
				t.Errorf("%s: %+v, want 3 requests of 1000 bytes", way, r)
			}
		}
		if len(seen[how]) != 3 {
			t.Errorf("%s: connections by kind %v, want 3 of %s", way, seen, how)
		}
	}
	if len(seen) != 4 {
		t.Errorf("kinds of connections: %v, want 4", seen)
	}
}

// TestWrongAnswersFail: a refusal is answered faster than an object, and must not count as one.
func TestWrongAnswersFail(t *testing.T) {
	for name, handler := range map[string]http.HandlerFunc{
		"429": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusTooManyRequests)
		},
		"asked for application/json": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/plain")
			_, _ = w.Write([]byte("ok"))
		},
		"unexpected EOF": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Length", "10")
			_, _ = w.Write([]byte("ok"))
		},
	} {
		spec := serveBoth(t, handler)
		on, err := spec.connect(Hub, 1)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := hammer(t.Context(), on, "/x", JSON, 0); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%v, want an error that says %q", err, name)
		}
	}
}

func TestAlternate(t *testing.T) {
	var order []Way
	trial, err := alternate(t.Context(), 4, []Way{HTTP2, HTTP1, Hub}, func(w Way) (Round, error) {
		order = append(order, w)
		return Round{Requests: len(order)}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []Way{HTTP2, HTTP1, Hub, HTTP1, Hub, HTTP2, Hub, HTTP2, HTTP1, HTTP2, HTTP1, Hub}
	if !slices.Equal(order, want) {
		t.Errorf("order %v, want %v", order, want)
	}
	// What stands at the same place belongs to the same round.
	for w, rounds := range trial {
		for i, r := range rounds {
			if (r.Requests-1)/3 != i {
				t.Errorf("%s: %d is not of round %d", w, r.Requests, i)
			}
		}
	}
	failure := errors.New("broken")
	_, err = alternate(t.Context(), 2, []Way{Hub}, func(Way) (Round, error) { return Round{}, failure })
	if !errors.Is(err, failure) {
		t.Errorf("%v, want the failure of a round", err)
	}
}
