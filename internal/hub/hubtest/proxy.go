package hubtest

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// ProxyUser and ProxyPassword are those that a Proxy takes. They occur nowhere else, so that a test can look for them.
const (
	ProxyUser     = "edge-of-the-test"
	ProxyPassword = "s3cret-of-the-test"
)

// ForbiddenHost is a host that a Proxy refuses.
const ForbiddenHost = "forbidden.example"

// Proxy is an HTTP proxy for CONNECT.
type Proxy struct {
	*httptest.Server
	t testing.TB

	mu      sync.Mutex
	asked   []string
	tunnels []net.Conn
}

// NewProxy returns a Proxy that is to be started: Start or StartTLS.
func NewProxy(t testing.TB) *Proxy {
	p := &Proxy{t: t}
	p.Server = httptest.NewUnstartedServer(http.HandlerFunc(p.serve))
	p.Config.ErrorLog = nil
	t.Cleanup(p.Close)
	return p
}

// StartProxy returns a Proxy that serves.
func StartProxy(t testing.TB) *Proxy {
	p := NewProxy(t)
	p.Start()
	return p
}

// Address is its URL with a user and a password.
func (p *Proxy) Address(password string) string {
	scheme, host, _ := strings.Cut(p.URL, "://")
	return scheme + "://" + ProxyUser + ":" + password + "@" + host
}

// File writes its URL, with the right password, to a file, and returns its path.
func (p *Proxy) File() string { return ProxyFile(p.t, p.Address(ProxyPassword)) }

// ProxyFile writes a proxy's URL to a file that only its owner can read, and returns its path.
func ProxyFile(t testing.TB, address string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "proxy")
	if err := os.WriteFile(path, []byte(address+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Kill ends it, with all that goes through it.
func (p *Proxy) Kill() {
	p.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.tunnels {
		_ = c.Close()
	}
}

// Asked returns the servers, HOST:PORT, that it was asked for.
func (p *Proxy) Asked() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.asked...)
}

func (p *Proxy) serve(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	p.asked = append(p.asked, r.Host)
	p.mu.Unlock()
	user, password, _ := credentials(r)
	switch {
	case r.Method != http.MethodConnect:
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	case user != ProxyUser || password != ProxyPassword:
		w.WriteHeader(http.StatusProxyAuthRequired)
		return
	case strings.HasPrefix(r.Host, ForbiddenHost+":"):
		w.WriteHeader(http.StatusForbidden)
		return
	}
	far, err := (&net.Dialer{}).DialContext(r.Context(), "tcp", r.Host)
	if err != nil {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	near, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		p.t.Error(err)
		return
	}
	defer near.Close()
	p.mu.Lock()
	p.tunnels = append(p.tunnels, near, far)
	p.mu.Unlock()
	_, _ = near.Write([]byte("HTTP/1.1 200 Connection established\r\n\r\n"))
	go func() {
		_, _ = io.Copy(far, buffered)
		_ = far.Close()
	}()
	_, _ = io.Copy(near, far)
}

func credentials(r *http.Request) (user, password string, ok bool) {
	as := http.Request{Header: http.Header{"Authorization": r.Header["Proxy-Authorization"]}}
	return as.BasicAuth()
}
