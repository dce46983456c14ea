package upstream

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"yurtcoordinator/internal/hub/link"
)

// handled are Sessions with an http.Handler, over a line that can be cut.
type handled struct {
	handler http.Handler
	chain   tls.Certificate // the server's

	mu  sync.Mutex
	cut bool // nothing arrives
	// hung: the server's kernel answers, and nothing else does.
	hung bool
}

func (h *handled) set(cut, hung bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.cut, h.hung = cut, hung
}

func (h *handled) is() (cut, hung bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.cut, h.hung
}

// Open implements Sessions.
func (h *handled) Open(to To) Session {
	s := &handledSession{of: h, to: to}
	s.life, s.end = context.WithCancelCause(context.Background())
	return s
}

type handledSession struct {
	of *handled
	to To

	mu   sync.Mutex
	with *Credentials
	life context.Context // until the next Reset
	end  context.CancelCauseFunc
}

func (s *handledSession) Renew(with *Credentials) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.with = with
}

func (s *handledSession) RoundTrip(by By, _ lane, req *http.Request) (*http.Response, error) {
	s.mu.Lock()
	with, life := s.with, s.life
	s.mu.Unlock()
	if by != Fresh && s.to.Down() {
		return nil, &ConnectError{Server: s.to.Server, Err: errors.New("the link is down")}
	}
	ctx, stop := context.WithCancelCause(req.Context())
	defer stop(nil)
	if by != Fresh {
		defer context.AfterFunc(life, func() { stop(context.Cause(life)) })()
	}
	cut, hung := s.of.is()
	if cut {
		<-ctx.Done()
		return nil, &ConnectError{Server: s.to.Server, Err: context.Cause(ctx)}
	}
	opts := x509.VerifyOptions{Roots: with.Roots, DNSName: s.to.Name, CurrentTime: time.Now()}
	if _, err := s.of.chain.Leaf.Verify(opts); err != nil {
		return nil, &ConnectError{Server: s.to.Server, Err: err}
	}
	s.to.Heard()
	if hung {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	asked := req.Clone(ctx)
	asked.TLS = &tls.ConnectionState{}
	if by != Caller {
		asked.TLS.PeerCertificates = []*x509.Certificate{with.Client.Leaf}
	}
	recorder := httptest.NewRecorder()
	s.of.handler.ServeHTTP(recorder, asked)
	return recorder.Result(), nil
}

func (s *handledSession) Ask(ctx context.Context, _ link.Ask) (bool, error) {
	if cut, _ := s.of.is(); cut {
		<-ctx.Done()
		return true, context.Cause(ctx)
	}
	s.to.Heard()
	return true, nil
}

func (s *handledSession) Reset(cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end(cause)
	s.life, s.end = context.WithCancelCause(context.Background())
}

func (s *handledSession) Remotes() []netip.Addr { return nil }
func (s *handledSession) Leave(netip.Addr)      {}
func (s *handledSession) Close()                { s.Reset(ErrNotRunning) }

// TestSessions: an upstream judges any Session as it judges real connections. It notices a cut, a heal and a silent server as
// soon as link.Standard says, and checks both ends' certificates.
func TestSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca := newAuthority(t)
		certPEM, keyPEM := ca.issue(t, "server", time.Now().Add(time.Hour))
		pair, err := tls.X509KeyPair(certPEM, keyPEM)
		if err != nil {
			t.Fatal(err)
		}
		cloud := &handled{handler: http.HandlerFunc(whoami), chain: pair}
		cfg := ca.files(t, "system:node:n1", "https://127.0.0.1:6443")
		cfg.Link, cfg.sessions = link.Standard(), cloud
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
			u.AsNode(): "system:node:n1 HTTP/1.1 127.0.0.1:6443", u.AsCaller(): "nobody HTTP/1.1 127.0.0.1:6443",
		} {
			if got, err := get(t, rt, "/"); got != want || err != nil {
				t.Errorf("the server says %q, %v; want %q", got, err, want)
			}
		}

		cloud.set(true, false)
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
		cloud.set(false, false)
		becomes(link.Up, 12*time.Second)

		cloud.set(false, true)
		becomes(link.Down, link.Standard().DeepAfter+link.Standard().Trust)
		cloud.set(false, false)
		becomes(link.Up, 12*time.Second)

		cfg = newAuthority(t).files(t, "system:node:n1", "https://127.0.0.1:6443")
		cfg.sessions = cloud
		stranger := start(t, cfg)
		time.Sleep(time.Minute)
		wrong := (*CertificateError)(nil)
		if _, err := get(t, stranger.AsNode(), "/"); stranger.Link().Get() != link.Down || !errors.As(err, &wrong) {
			t.Errorf("a server that another authority has signed: %v, %v", stranger.Link().Get(), err)
		}
	})
}
