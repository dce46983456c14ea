package upstream

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/test/bufconn"

	"yurtcoordinator/internal/hub/link"
)

// tubes are connections to a server without a network. They are the server's http.Handler, too.
type tubes struct {
	*bufconn.Listener
	cut  atomic.Bool // nothing arrives
	hung atomic.Bool // pings are answered, and requests are not
}

func (ts *tubes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	if ts.cut.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	c, err := ts.DialContext(ctx)
	return &tube{Conn: c, of: ts, closed: make(chan struct{})}, err
}

func (ts *tubes) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if ts.hung.Load() {
		<-r.Context().Done()
		return
	}
	whoami(w, r)
}

// tube is the client's end of one of them.
type tube struct {
	net.Conn
	of     *tubes
	once   sync.Once
	closed chan struct{}
}

func (t *tube) Read(p []byte) (int, error) {
	n, err := t.Conn.Read(p)
	if t.of.cut.Load() {
		<-t.closed
		return 0, net.ErrClosed
	}
	return n, err
}

func (t *tube) Write(p []byte) (int, error) {
	if t.of.cut.Load() {
		return len(p), nil
	}
	return t.Conn.Write(p)
}

func (t *tube) Close() error {
	t.once.Do(func() { close(t.closed) })
	return t.Conn.Close()
}

// TestSessions: an upstream notices a cut, a heal and a silent server as soon as link.Standard says, and checks both ends'
// certificates.
func TestSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca := newAuthority(t)
		certPEM, keyPEM := ca.issue(t, "server", time.Now().Add(time.Hour))
		pair, err := tls.X509KeyPair(certPEM, keyPEM)
		if err != nil {
			t.Fatal(err)
		}
		cloud := &tubes{Listener: bufconn.Listen(64 << 10)}
		clients := x509.NewCertPool()
		clients.AddCert(ca.cert)
		server := &http.Server{Handler: cloud, TLSConfig: &tls.Config{
			Certificates: []tls.Certificate{pair}, ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: clients,
		}, ErrorLog: log.New(io.Discard, "", 0)}
		served := make(chan error, 1)
		go func() { served <- server.ServeTLS(cloud, "", "") }()
		t.Cleanup(func() {
			if err := errors.Join(server.Close(), <-served); !errors.Is(err, http.ErrServerClosed) {
				t.Error(err)
			}
		})
		cfg := ca.files(t, "system:node:n1", "https://127.0.0.1:6443")
		cfg.Link, cfg.DialContext = link.Standard(), cloud.dial
		u := start(t, cfg)
		becomes := func(want link.State, atMost time.Duration) {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), atMost)
			defer cancel()
			if _, err := u.Link().Wait(ctx, func(s link.State) bool { return s == want }); err != nil {
				t.Fatalf("after %v the link is %v, want %v", atMost, u.Link().Get(), want)
			}
		}
		becomes(link.Up, time.Second)
		for rt, want := range map[http.RoundTripper]string{
			u.AsNode(): "system:node:n1 HTTP/2.0 127.0.0.1:6443", u.AsCaller(): "nobody HTTP/2.0 127.0.0.1:6443",
		} {
			if got, err := get(t, rt, "/"); got != want || err != nil {
				t.Errorf("the server says %q, %v; want %q", got, err, want)
			}
		}

		cloud.cut.Store(true)
		sent := make(chan error, 1)
		go func() {
			_, err := get(t, u.AsNode(), "/")
			sent <- err
		}()
		becomes(link.Down, 8*time.Second)
		if err := <-sent; !errors.Is(err, ErrDown) {
			t.Errorf("what was under way ended with %v", err)
		}
		if _, err := get(t, u.AsNode(), "/"); !errors.Is(err, ErrDown) || !NotSent(err) {
			t.Errorf("while it is down, a request fails with %v", err)
		}
		time.Sleep(time.Minute)
		cloud.cut.Store(false)
		becomes(link.Up, 12*time.Second)

		cloud.hung.Store(true)
		becomes(link.Down, link.Standard().DeepAfter+link.Standard().Trust)
		cloud.hung.Store(false)
		becomes(link.Up, 12*time.Second)

		cfg = newAuthority(t).files(t, "system:node:n1", "https://127.0.0.1:6443")
		cfg.DialContext = cloud.dial
		stranger := start(t, cfg)
		time.Sleep(time.Minute)
		wrong := (*CertificateError)(nil)
		if _, err := get(t, stranger.AsNode(), "/"); stranger.Link().Get() != link.Down || !errors.As(err, &wrong) {
			t.Errorf("a server that another authority has signed: %v, %v", stranger.Link().Get(), err)
		}
	})
}
