package front

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yurtcoordinator/internal/ends"
)

// kept returns a proof for an address and port, its token, and a client of that port.
func kept(t testing.TB, port int) (p *Proof, token string, client *http.Client) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "pki")
	p, err := KeepProof(ProofConfig{Dir: dir, Node: "n1", Address: net.IPv4(127, 0, 0, 1), Port: port})
	if err != nil {
		t.Fatal(err)
	}
	secret, err := os.ReadFile(filepath.Join(dir, FileToken))
	if err != nil {
		t.Fatal(err)
	}
	authority, err := os.ReadFile(filepath.Join(dir, FileCertificate))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)
	transport := &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true, MaxIdleConnsPerHost: 64, DisableCompression: true,
	}
	t.Cleanup(transport.CloseIdleConnections)
	return p, string(secret), &http.Client{Transport: transport}
}

// local serves a Front as hubs serve kubelet. The proof needs the port, and the server what needs the proof.
func local(t testing.TB, cfg Config, http1 bool) (address, token string, f *Front, client *http.Client) {
	t.Helper()
	server, err := Listen(ends.Net{}, "127.0.0.1:0", ServerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	address = server.listener.Addr().String()
	_, number, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(number)
	if err != nil {
		t.Fatal(err)
	}
	p, token, client := kept(t, port)
	cfg.Proof = p
	f = newFront(cfg)
	server.cfg.Handler, server.cfg.TLS, server.cfg.HTTP1 = f, p.TLS(), http1
	background(t, server.Run)
	return "https://" + address, token, f, client
}

// TestOnlyKubeletIsTheNode: with real requests of each kind that a thief would make.
func TestOnlyKubeletIsTheNode(t *testing.T) {
	var mu sync.Mutex
	var reached []string // what the cloud was asked, by whom
	_, u := cloud(t, func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		reached = append(reached, fmt.Sprintf("%s %s %q as the node: %t", r.Method, r.URL.Path, r.Header["Authorization"],
			len(r.TLS.PeerCertificates) > 0))
	})
	registry := prometheus.NewRegistry()
	var leases atomic.Int32
	address, token, f, client := local(t, Config{
		Cloud: u, Metrics: registry, Situation: Situation{Node: "n1"},
		OwnLease: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			leases.Add(1)
			if len(r.Header["Authorization"]) > 0 {
				t.Error("the token goes on to the heartbeat")
			}
		}),
	}, true)
	send := func(method, path, host string, header ...string) (int, string) {
		req, err := http.NewRequestWithContext(t.Context(), method, address+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = host
		for i := 0; i < len(header); i += 2 {
			req.Header.Add(header[i], header[i+1])
		}
		res, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return res.StatusCode, string(body)
	}
	const lease = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n1"
	wanted := []struct{ method, path string }{
		{"GET", "/api/v1/namespaces/kube-system/secrets/yurt-coordinator-p1-certs"},
		{"POST", "/api/v1/namespaces/kube-system/serviceaccounts/default/token"},
		{"POST", "/apis/certificates.k8s.io/v1/certificatesigningrequests"},
		{"GET", lease}, {"PUT", lease}, {"PATCH", "/api/v1/nodes/n1/status"}, {"GET", "/api/v1/services"},
		{"GET", "/api"}, {"GET", "/version"}, {"GET", "/healthz"}, {"GET", "/readyz"}, {"GET", "/metrics"},
		{"OPTIONS", "/api/v1/pods"},
	}
	for _, thief := range []struct {
		what, host string
		code       int
		header     []string
	}{
		{"without anything", "", http.StatusUnauthorized, nil},
		{"with a blank", "", http.StatusUnauthorized, []string{"Authorization", " "}},
		{"as somebody else", "", http.StatusUnauthorized, []string{"Impersonate-User", "system:admin"}},
		{"by a page's name", "kiosk.example.com:80", http.StatusMisdirectedRequest, []string{"Authorization", "Bearer " + token}},
		{"with the token in the wrong place", "", http.StatusUnauthorized,
			[]string{"Authorization", "Bearer x", "Authorization", "Bearer " + token}},
	} {
		for _, w := range wanted {
			code, body := send(w.method, w.path, thief.host, thief.header...)
			if code != thief.code || statusOf(t, body).Status != metav1.StatusFailure {
				t.Errorf("%s %s %s: %d %s", thief.what, w.method, w.path, code, body)
			}
		}
	}
	if reached != nil || leases.Load() != 0 {
		t.Errorf("a thief reached %q and the Lease %d times", reached, leases.Load())
	}
	for v, want := range map[Verdict]int{Stranger: 3, Misdirected: 1, Misplaced: 1} {
		if got := testutil.ToFloat64(f.door.refusals.WithLabelValues(v.String())); got != float64(want*len(wanted)) {
			t.Errorf("%v refusals of %v are counted, want %d", got, v, want*len(wanted))
		}
	}
	for _, w := range wanted {
		if code, body := send(w.method, w.path, "", "Authorization", "Bearer "+token); code != http.StatusOK {
			t.Errorf("kubelet's %s %s: %d %s", w.method, w.path, code, body)
		}
		if code, _ := send(w.method, w.path, "", "Authorization", "Bearer own"); code != http.StatusOK {
			t.Errorf("a program's own %s %s: %d", w.method, w.path, code)
		}
	}
	if leases.Load() != 2 {
		t.Errorf("kubelet reached its Lease %d times, want twice", leases.Load())
	}
	for _, line := range reached {
		asNode := strings.HasSuffix(line, "[] as the node: true")
		own := strings.HasSuffix(line, `["Bearer own"] as the node: false`)
		if !asNode && !own {
			t.Errorf("the cloud was asked %s", line)
		}
	}
	// Pods' port lends nothing to kubelet's token either, and does not send it on.
	before := len(reached)
	guests, _ := serve(t, f.Guests())
	res, body := ask(t, "GET", guests+"/api/v1/pods", "Authorization", "Bearer "+token)
	if res.StatusCode != http.StatusUnauthorized {
		t.Errorf("kubelet's token at the port of Pods: %s %s", res.Status, body)
	}
	if len(reached) != before {
		t.Errorf("it went on: %s", reached[before:])
	}
}

// TestRefusalsAreLogged: with who it was, and not more often than somebody can read.
func TestRefusalsAreLogged(t *testing.T) {
	_, u := cloud(t, func(http.ResponseWriter, *http.Request) {})
	address, token, f, client := local(t, Config{Cloud: u}, true)
	var mu sync.Mutex
	var lines []string
	f.log = funcr.New(func(_, args string) {
		mu.Lock()
		defer mu.Unlock()
		lines = append(lines, args)
	}, funcr.Options{})
	began := time.Now()
	for range 50 {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address+"/api/v1/secrets", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("User-Agent", "thief"+strings.Repeat("x", 1000))
		req.Header["Authorization"] = []string{"Bearer " + token, "Bearer x"}
		res, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
	}
	mu.Lock()
	defer mu.Unlock()
	if most := refusalBurst + int(time.Since(began).Seconds()*refusalsPerSecond); len(lines) < refusalBurst || len(lines) > most {
		t.Errorf("%d lines for 50 refusals, of %d", len(lines), most)
	}
	for _, line := range lines {
		if !strings.Contains(line, fmt.Sprintf(`"uid"="%d"`, os.Getuid())) || !strings.Contains(line, `"agent"="thief`) ||
			!strings.Contains(line, "/api/v1/secrets") || len(line) > 600 || strings.Contains(line, token) {
			t.Errorf("%s", line)
		}
	}
}
