package upstream

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"yurtcoordinator/internal/hub/link"
)

// authority is a CA for tests.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "test CA"}, IsCA: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageCertSign, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &authority{cert, key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
}

func (a *authority) issue(t testing.TB, name string, notAfter time.Time) (certPEM, keyPEM []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: notAfter, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})
}

// api is an API server for tests.
type api struct {
	*httptest.Server
	ready atomic.Bool // what /readyz says
}

func (a *authority) serve(t testing.TB, handler http.HandlerFunc, change func(*httptest.Server)) *api {
	t.Helper()
	s := &api{}
	s.ready.Store(true)
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/readyz" {
			if !s.ready.Load() {
				http.Error(w, "not ready", http.StatusInternalServerError)
			}
			return
		}
		handler(w, r)
	}))
	certPEM, keyPEM := a.issue(t, "server", time.Now().Add(time.Hour))
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		t.Fatal(err)
	}
	clients := x509.NewCertPool()
	clients.AddCert(a.cert)
	s.TLS = &tls.Config{
		Certificates: []tls.Certificate{pair}, ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: clients,
	}
	s.EnableHTTP2 = true
	s.Config.ErrorLog = nil
	if change != nil {
		change(s.Server)
	}
	s.StartTLS()
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s
}

// files writes credentials and returns a Config that names them.
func (a *authority) files(t testing.TB, user string, servers ...string) Config {
	t.Helper()
	dir := t.TempDir()
	cfg := Config{
		Name: "cloud", CAFile: filepath.Join(dir, "ca.crt"),
		CertFile: filepath.Join(dir, "node.crt"), KeyFile: filepath.Join(dir, "node.key"),
	}
	certPEM, keyPEM := a.issue(t, user, time.Now().Add(time.Hour))
	write(t, cfg.CAFile, a.pem)
	write(t, cfg.CertFile, certPEM)
	write(t, cfg.KeyFile, keyPEM)
	for _, s := range servers {
		address, err := url.Parse(s)
		if err != nil {
			t.Fatal(err)
		}
		cfg.Servers = append(cfg.Servers, address)
	}
	// Quick judgement: these tests run in real time, over real sockets.
	cfg.Link = link.Standard()
	cfg.Link.Interval, cfg.Link.DownInterval = 100*time.Millisecond, 50*time.Millisecond
	cfg.Link.ConfirmInterval, cfg.Link.MinGap, cfg.Link.UpAfterMax = 20*time.Millisecond, 10*time.Millisecond, 2
	return cfg
}

func write(t testing.TB, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// start runs an Upstream until the test ends.
func start(t testing.TB, cfg Config) *Upstream {
	t.Helper()
	u, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- u.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return u
}

func await(t testing.TB, u *Upstream, want link.State) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if _, err := u.Link().Wait(ctx, func(s link.State) bool { return s == want }); err != nil {
		t.Fatalf("the link is %v, want %v", u.Link().Get(), want)
	}
}

func allUp(t testing.TB, u *Upstream) {
	t.Helper()
	for _, s := range u.servers {
		reaches(t, s, link.Up)
	}
}

func reaches(t testing.TB, s *server, want link.State) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if _, err := s.monitor.State().Wait(ctx, func(got link.State) bool { return got == want }); err != nil {
		t.Fatalf("the link to %s is %v, want %v", s.addr, s.state(), want)
	}
}

// get returns the body of the answer.
func get(t testing.TB, rt http.RoundTripper, path string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://anything"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := rt.RoundTrip(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	return string(body), err
}

// whoami answers with the caller's certificate and the protocol.
func whoami(w http.ResponseWriter, r *http.Request) {
	name := "nobody"
	if len(r.TLS.PeerCertificates) > 0 {
		name = r.TLS.PeerCertificates[0].Subject.CommonName
	}
	fmt.Fprintf(w, "%s %s %s", name, r.Proto, r.Host)
}

func named(name string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, name) }
}

// wires are the connections of an injected dialer; they can be cut so that nothing passes, nor ends.
type wires struct {
	mu   sync.Mutex
	open map[*wire]struct{}
	cut  chan struct{} // closed: dead
}

func newWires() *wires { return &wires{open: map[*wire]struct{}{}, cut: make(chan struct{})} }

func (ws *wires) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	cut := ws.current()
	select {
	case <-cut:
		<-ctx.Done()
		return nil, ctx.Err()
	default:
	}
	c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	w := &wire{Conn: c, cut: cut, closed: make(chan struct{}), of: ws}
	ws.mu.Lock()
	ws.open[w] = struct{}{}
	ws.mu.Unlock()
	return w, nil
}

func (ws *wires) current() chan struct{} {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return ws.cut
}

func (ws *wires) count() int {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return len(ws.open)
}

func (ws *wires) heal() {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.cut = make(chan struct{})
}

type wire struct {
	net.Conn
	of     *wires
	cut    chan struct{}
	once   sync.Once
	closed chan struct{}
}

func (w *wire) Read(p []byte) (int, error) {
	n, err := w.Conn.Read(p)
	return n, w.blackhole(err)
}

func (w *wire) Write(p []byte) (int, error) {
	if err := w.blackhole(nil); err != nil {
		return 0, err
	}
	return w.Conn.Write(p)
}

// blackhole blocks while the wire is cut, until it is closed.
func (w *wire) blackhole(err error) error {
	select {
	case <-w.cut:
		<-w.closed
		return net.ErrClosed
	default:
		return err
	}
}

func (w *wire) Close() error {
	w.once.Do(func() {
		close(w.closed)
		w.of.mu.Lock()
		delete(w.of.open, w)
		w.of.mu.Unlock()
	})
	return w.Conn.Close()
}

// waitFor waits for what another goroutine is about to do.
func waitFor(t testing.TB, done func() bool) {
	t.Helper()
	deadline := time.NewTimer(10 * time.Second)
	defer deadline.Stop()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-deadline.C:
			buf := make([]byte, 1<<16)
			t.Fatalf("never came true\n%s", buf[:runtime.Stack(buf, true)])
		}
	}
}
