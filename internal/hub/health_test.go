package hub

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/ends"
	"yurtcoordinator/internal/hub/front"
	"yurtcoordinator/internal/hub/link"
	"yurtcoordinator/internal/sim/pki"
	"yurtcoordinator/internal/version"
)

// cloud is an API server that is ready and knows nothing else.
func cloud(t *testing.T, ca *pki.Authority) (address string) {
	t.Helper()
	pair, err := ca.Issue(pki.Request{Name: "server", Server: true, IPs: []net.IP{net.IPv4(127, 0, 0, 1)}})
	if err != nil {
		t.Fatal(err)
	}
	cert, err := tls.LoadX509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/readyz" {
			http.NotFound(w, r)
		}
	}))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{cert}}
	server.StartTLS()
	t.Cleanup(server.Close)
	return server.URL
}

func newHub(t *testing.T, address func(*pki.Authority) string, more ...string) *Hub {
	t.Helper()
	ca, err := pki.Create(t.TempDir(), "ca", nil)
	if err != nil {
		t.Fatal(err)
	}
	node, err := ca.Issue(pki.Request{Name: "n1", CommonName: "system:node:n1", Client: true})
	if err != nil {
		t.Fatal(err)
	}
	h, err := New(flags(t, append([]string{
		"--node-name=n1", "--server-addr=" + address(ca), "--ca-file=" + ca.Files().Cert, "--cert-file=" + node.Cert,
		"--key-file=" + node.Key, "--disk-cache-path=", "--cert-dir=" + filepath.Join(t.TempDir(), "pki"),
	}, more...)...), ends.Ends{})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func (h *Hub) ask(t *testing.T, path string) (int, string) {
	t.Helper()
	rec := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
	h.health(func(*http.Request) bool { return true }).ServeHTTP(rec, r)
	return rec.Code, rec.Body.String()
}

// A hub is ready when it knows whether it reaches the cloud. The link need not be up: the hub also serves without it.
func TestReadyOnceTheCloudWasTried(t *testing.T) {
	for name, tt := range map[string]struct {
		address func(*testing.T, *pki.Authority) string
		want    link.State
	}{
		"that is there": {cloud, link.Up},
		"that is not": {func(t *testing.T, _ *pki.Authority) string {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			return "https://" + l.Addr().String()
		}, link.Down},
	} {
		t.Run("a cloud "+name, func(t *testing.T) {
			h := newHub(t, func(ca *pki.Authority) string { return tt.address(t, ca) })
			code, body := h.ask(t, "/readyz")
			if code != http.StatusServiceUnavailable || !strings.Contains(body, "tried") {
				t.Errorf("before: %d %s", code, body)
			}
			if code, _ := h.ask(t, "/healthz"); code != http.StatusOK {
				t.Errorf("alive before: %d", code)
			}
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- h.cloud.Run(ctx) }()
			state, err := h.cloud.Link().Wait(ctx, func(s link.State) bool { return s != link.Unknown })
			if err != nil || state != tt.want {
				t.Errorf("the link is %v, %v; want %v", state, err, tt.want)
			}
			if code, body := h.ask(t, "/readyz"); code != http.StatusOK || body != "ok\n" {
				t.Errorf("after: %d %s", code, body)
			}
			if _, body := h.ask(t, "/status"); !strings.Contains(body, `"cloud":"`+tt.want.String()+`"`) {
				t.Errorf("status: %s", body)
			}
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
}

func TestStatus(t *testing.T) {
	nowhere := func(*pki.Authority) string { return "https://127.0.0.1:6443" }
	for _, tt := range []struct {
		name string
		more []string
		want front.HubStatus
	}{
		{"a plain proxy", nil, front.HubStatus{Node: "n1", Role: "pending", Cloud: "unknown", Coordinator: "none"}},
		{"in a pool",
			[]string{"--enable-coordinator", "--nodepool-name=p1", "--coordinator-server-addr=https://127.0.0.1:10270"},
			front.HubStatus{Node: "n1", Pool: "p1", Role: "pending", Cloud: "unknown", Coordinator: "unknown",
				CoordinatorAddress: "https://127.0.0.1:10270"}},
		{"in a pool with a standby",
			[]string{"--enable-coordinator", "--nodepool-name=p1",
				"--coordinator-server-addr=https://127.0.0.1:10270,https://127.0.0.1:1"},
			front.HubStatus{Node: "n1", Pool: "p1", Role: "pending", Cloud: "unknown", Coordinator: "unknown",
				CoordinatorAddress: "https://127.0.0.1:10270", Coordinators: []edge.CoordinatorStatus{
					{Address: "https://127.0.0.1:10270", Link: "unknown", Home: true},
					{Slot: 1, Address: "https://127.0.0.1:1", Link: "unknown"},
				}}},
		{"in a pool whose coordinator nobody has told of", []string{"--enable-coordinator", "--nodepool-name=p1"},
			front.HubStatus{Node: "n1", Pool: "p1", Role: "pending", Cloud: "unknown", Coordinator: "unknown"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			code, body := newHub(t, nowhere, tt.more...).ask(t, "/status")
			var got front.HubStatus
			tt.want.Version, tt.want.LinkProfile = version.Get().Version, "normal"
			if err := json.Unmarshal([]byte(body), &got); err != nil || code != http.StatusOK ||
				!reflect.DeepEqual(got, tt.want) {
				t.Errorf("%d %s: %v; want %+v", code, body, err, tt.want)
			}
		})
	}
}

// TestMetricsOfCoordinators: whatever a pool has, each metric is there once, about home.
func TestMetricsOfCoordinators(t *testing.T) {
	nowhere := func(*pki.Authority) string { return "https://127.0.0.1:6443" }
	for name, coordinators := range map[string]string{
		"one": "https://127.0.0.1:10270", "three": "https://127.0.0.1:10270,https://127.0.0.1:1,https://127.0.0.1:2",
	} {
		h := newHub(t, nowhere, "--enable-coordinator", "--nodepool-name=p1", "--coordinator-server-addr="+coordinators)
		code, body := h.ask(t, "/metrics")
		if code != http.StatusOK || strings.Count(body, "\nyurthub_identity_clash 0\n") != 1 ||
			!strings.Contains(body, "yurthub_coordinator_home{slot=\"0\"} 1\n") {
			t.Errorf("%s: %d %s", name, code, body)
		}
	}
}

func TestHealthPort(t *testing.T) {
	h := newHub(t, func(*pki.Authority) string { return "https://127.0.0.1:6443" })
	for _, path := range []string{"/debug/pprof/goroutine?debug=1", "/metrics"} {
		if code, body := h.ask(t, path); code != http.StatusOK || !strings.Contains(body, "goroutine") {
			t.Errorf("%s: %d", path, code)
		}
	}
}

// TestVersion: a hub says of which release it is, in its status and in its metrics.
func TestVersion(t *testing.T) {
	h := newHub(t, func(ca *pki.Authority) string { return cloud(t, ca) })
	t.Cleanup(func() {
		if err := h.disk.Close(); err != nil {
			t.Error(err)
		}
	})
	var said front.HubStatus
	if _, body := h.ask(t, "/status"); json.Unmarshal([]byte(body), &said) != nil || said.Version != version.Get().Version {
		t.Errorf("its status: %s", body)
	}
	_, body := h.ask(t, "/metrics")
	if want := `,version="` + version.Get().Version + `"} 1`; !strings.Contains(body, "yurthub_build_info{") ||
		!strings.Contains(body, want) {
		t.Error("its metrics do not say it")
	}
}
