package front

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"yurtcoordinator/internal/ends"
	"yurtcoordinator/internal/hub/link"
	"yurtcoordinator/internal/hub/upstream"
)

// cloud starts an API server and returns it and an Upstream that reaches it, both running until the test ends.
func cloud(t testing.TB, handler http.HandlerFunc) (*httptest.Server, *upstream.Upstream) {
	t.Helper()
	return cloudSpeaking(t, true, handler)
}

func cloudSpeaking(t testing.TB, h2 bool, handler http.HandlerFunc) (*httptest.Server, *upstream.Upstream) {
	t.Helper()
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/readyz" {
			handler(w, r)
		}
	}))
	s.EnableHTTP2 = h2
	s.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	s.StartTLS()
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	dir := t.TempDir()
	pair := s.TLS.Certificates[0]
	key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: pair.Certificate[0]})
	both := append(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}), cert...)
	ca, node := filepath.Join(dir, "ca.crt"), filepath.Join(dir, "node.pem")
	for path, data := range map[string][]byte{ca: cert, node: both} {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	address, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	judged := link.Standard()
	judged.Interval, judged.MinPatience, judged.DownInterval = 100*time.Millisecond, 20*time.Second, 50*time.Millisecond
	judged.MaxPatience, judged.Trust = 30*time.Second, 30*time.Second
	u, err := upstream.New(upstream.Config{
		Name: "cloud", Servers: []*url.URL{address}, CAFile: ca, CertFile: node, KeyFile: node,
		Link: judged,
	})
	if err != nil {
		t.Fatal(err)
	}
	background(t, u.Run)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if _, err := u.Link().Wait(ctx, func(s link.State) bool { return s == link.Up }); err != nil {
		t.Fatal("the link does not come up")
	}
	return s, u
}

// background runs a function until the test ends, or until the function that it returns is called.
func background(t testing.TB, run func(context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// hub serves cfg on a loopback address and returns its URL.
func hub(t testing.TB, cfg Config) (address string, stop func()) {
	t.Helper()
	return serve(t, newFront(cfg))
}

// newFront returns a Front in which what a test does not name is absent, or has room.
func newFront(cfg Config) *Front {
	if cfg.Replicas == nil {
		cfg.Replicas = nothing{}
	}
	if cfg.Keeper == nil {
		cfg.Keeper = nothing{}
	}
	if cfg.Callers == nil {
		cfg.Callers = nothing{}
	}
	if cfg.Proof == nil {
		cfg.Proof = trusting{}
	}
	unknown := func() link.State { return link.Unknown }
	if cfg.CloudLink == nil {
		cfg.CloudLink = unknown
	}
	if cfg.CoordinatorLink == nil {
		cfg.CoordinatorLink = unknown
	}
	cfg.MaxReadOnly, cfg.MaxMutating = cmp.Or(cfg.MaxReadOnly, 400), cmp.Or(cfg.MaxMutating, 200)
	cfg.MaxLongRunning = cmp.Or(cfg.MaxLongRunning, 1000)
	return New(cfg)
}

// trusting takes what brings no credentials for kubelet's: most tests are about something else.
type trusting struct{}

func (trusting) Judge(r *http.Request) Verdict {
	verdict := (&Proof{}).Credentials(r)
	if verdict == Stranger {
		return Kubelet
	}
	return verdict
}
func (trusting) Credentials(r *http.Request) Verdict { return (&Proof{}).Credentials(r) }

// nothing is followed and kept, and nobody is known.
type nothing struct{ http.Handler }

func (nothing) Has(schema.GroupVersionResource) bool                   { return false }
func (nothing) Match(*http.Request) bool                               { return false }
func (nothing) Answer(http.ResponseWriter, *http.Request, string) bool { return false }
func (nothing) Recall(http.ResponseWriter, *http.Request, string) bool { return false }
func (nothing) Remember(w http.ResponseWriter, r *http.Request, _ string, p http.Handler) {
	p.ServeHTTP(w, r)
}
func (nothing) Written(w http.ResponseWriter, r *http.Request, _ string, p http.Handler) {
	p.ServeHTTP(w, r)
}
func (nothing) Admit(*http.Request, bool) (string, bool) { return "", false }

func serve(t testing.TB, handler http.Handler) (address string, stop func()) {
	t.Helper()
	server, err := Listen(ends.Net{}, "127.0.0.1:0", ServerConfig{Handler: handler})
	if err != nil {
		t.Fatal(err)
	}
	stop = background(t, server.Run)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	return "http://" + server.listener.Addr().String(), stop
}

func do(t testing.TB, method, address string, body io.Reader, header ...string) (*http.Response, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, method, address, body)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Add(header[i], header[i+1])
	}
	return http.DefaultClient.Do(req)
}

// ask returns an answer with its body.
func ask(t testing.TB, method, address string, header ...string) (*http.Response, string) {
	t.Helper()
	res, err := do(t, method, address, nil, header...)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res, string(body)
}

func statusOf(t testing.TB, body string) metav1.Status {
	t.Helper()
	var s metav1.Status
	if err := json.Unmarshal([]byte(body), &s); err != nil || s.Kind != "Status" || s.APIVersion != "v1" {
		t.Fatalf("not a Status: %q (%v)", body, err)
	}
	return s
}

// eventually waits for what a handler does after its client has got everything.
func eventually(t testing.TB, check func() error) {
	t.Helper()
	deadline := time.NewTimer(10 * time.Second)
	defer deadline.Stop()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatal(err)
		}
	}
}

// leases is where the heartbeats of nodes are.
const leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/"

const protobuf = "application/vnd.kubernetes.protobuf"
