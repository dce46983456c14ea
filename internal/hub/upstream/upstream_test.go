package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"yurtcoordinator/internal/hub/link"
)

func TestIdentities(t *testing.T) {
	ca := newAuthority(t)
	s := ca.serve(t, whoami, nil)
	u := start(t, ca.files(t, "system:node:n1", s.URL))
	host := strings.TrimPrefix(s.URL, "https://")
	for _, tc := range []struct {
		name string
		rt   http.RoundTripper
		want string
	}{
		{"node", u.AsNode(), "system:node:n1 HTTP/2.0 " + host},
		{"caller", u.AsCaller(), "nobody HTTP/2.0 " + host},
	} {
		if got, err := get(t, tc.rt, "/"); got != tc.want || err != nil {
			t.Errorf("%s: %q, %v; want %q", tc.name, got, err, tc.want)
		}
	}
	await(t, u, link.Up)
}

func TestTrafficIsCounted(t *testing.T) {
	ca := newAuthority(t)
	const size = 1 << 20
	s := ca.serve(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = w.Write(make([]byte, size))
	}, nil)
	before := time.Now()
	u := start(t, ca.files(t, "system:node:n1", s.URL))
	await(t, u, link.Up)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(strings.Repeat("x", 2*size)))
	if err != nil {
		t.Fatal(err)
	}
	res, err := u.AsNode().RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	traffic := u.Traffic()
	sent, received, since := traffic.Sent, traffic.Received, traffic.Since
	if sent < 2*size || sent > 3*size || received < size || received > 2*size {
		t.Errorf("%d bytes sent, %d received; want some more than %d and %d", sent, received, 2*size, size)
	}
	if since.Before(before) || since.After(time.Now()) {
		t.Errorf("counted since %v, made after %v", since, before)
	}
}

func TestServerWithoutHTTP2(t *testing.T) {
	ca := newAuthority(t)
	s := ca.serve(t, whoami, func(s *httptest.Server) { s.EnableHTTP2 = false })
	u := start(t, ca.files(t, "system:node:n1", s.URL))
	await(t, u, link.Up)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader("body"))
	if err != nil {
		t.Fatal(err)
	}
	res, err := u.AsCaller().RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if res.ProtoMajor != 1 {
		t.Errorf("answered with %s", res.Proto)
	}
	known := u.servers[0].session
	if !known.http1Only.Load() {
		t.Error("it does not remember that the server has no HTTP/2")
	}
	before := known.epoch
	known.Reset(errors.New("new credentials"))
	if known.http1Only.Load() {
		t.Error("it does not try HTTP/2 after the reset")
	}
	if before.Err() == nil || known.epoch.Err() != nil {
		t.Error("what is being opened goes on after the reset, or nothing can be opened")
	}
}

func TestFailoverAtConnect(t *testing.T) {
	ca := newAuthority(t)
	second := ca.serve(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) }, nil)
	first := ca.serve(t, named("first"), nil)
	cfg := ca.files(t, "system:node:n1", first.URL, second.URL)
	cfg.Link.Interval = time.Hour // only traffic finds out
	cfg.Link.MinGap = time.Hour
	u := start(t, cfg)
	allUp(t, u)
	if got, err := get(t, u.AsNode(), "/"); got != "first" || err != nil {
		t.Fatalf("answered by %q, %v; want the preferred server", got, err)
	}
	first.CloseClientConnections()
	first.Close()
	// A write with a body moves to the other server: the connection was refused, nothing was sent.
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "/lease", strings.NewReader("renewed"))
	if err != nil {
		t.Fatal(err)
	}
	var body []byte
	for range 2 { // the first may be written into the connection that has just died, which is not repeated
		req.Body = io.NopCloser(strings.NewReader("renewed"))
		res, err := u.AsCaller().RoundTrip(req)
		if err != nil {
			continue
		}
		body, _ = io.ReadAll(res.Body)
		_ = res.Body.Close()
		break
	}
	if string(body) != "renewed" {
		t.Errorf("the other server was sent %q", body)
	}
}

func TestMayTryAgain(t *testing.T) {
	refused := &ConnectError{Server: "cloud:6443", Err: errors.New("refused")}
	cut := &DownError{Name: "cloud", Sent: true, Err: errors.New("reset")}
	again := func() (io.ReadCloser, error) { return http.NoBody, nil }
	once := io.NopCloser(strings.NewReader("x"))
	get := http.Request{Method: http.MethodGet}
	remove := http.Request{Method: http.MethodDelete}
	for what, tt := range map[string]struct {
		req  http.Request
		err  error
		want bool
	}{
		"a write without a body, not sent":    {remove, refused, true},
		"a body to be read again, not sent":   {http.Request{Method: http.MethodPut, Body: once, GetBody: again}, refused, true},
		"a body to be read once, not sent":    {http.Request{Method: http.MethodPut, Body: once}, refused, false},
		"a read that was cut off":             {get, cut, true},
		"a write that was cut off":            {remove, cut, false},
		"a read with a body that was cut off": {http.Request{Method: http.MethodGet, Body: once, GetBody: again}, cut, false},
		"a server's own error":                {get, errors.New("protocol"), false},
		"a program that ends":                 {get, ErrNotRunning, false},
	} {
		if got := mayTryAgain(&tt.req, tt.err, tt.err); got != tt.want {
			t.Errorf("%s: %v", what, got)
		}
	}
}

func TestFailoverWhenNotReady(t *testing.T) {
	ca := newAuthority(t)
	first, second := ca.serve(t, named("first"), nil), ca.serve(t, named("second"), nil)
	u := start(t, ca.files(t, "system:node:n1", first.URL, second.URL))
	allUp(t, u)
	first.ready.Store(false)
	waitFor(t, func() bool { return !u.servers[0].serves() })
	if got, err := get(t, u.AsNode(), "/"); got != "second" || err != nil {
		t.Errorf("answered by %q, %v; want the one that is ready", got, err)
	}
	if u.Link().Get() != link.Up || u.servers[0].state() != link.Up {
		t.Error("a link is not up, though both servers answer")
	}
	first.ready.Store(true)
	waitFor(t, u.servers[0].serves)
	if got, err := get(t, u.AsNode(), "/"); got != "second" || err != nil {
		t.Errorf("answered by %q, %v; want the one it went to before", got, err)
	}
}

// TestNotReadyAlone: a server that answers is there, whatever it says of itself. No connection is reset.
func TestNotReadyAlone(t *testing.T) {
	ca := newAuthority(t)
	block := make(chan struct{})
	s := ca.serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/watch" {
			fmt.Fprintln(w, "first event")
			w.(http.Flusher).Flush()
			<-block
			fmt.Fprint(w, "second event")
			return
		}
		fmt.Fprint(w, "served")
	}, nil)
	s.ready.Store(false)
	cfg := ca.files(t, "system:node:n1", s.URL)
	cfg.Link.DeepAfter = time.Nanosecond // each probe asks the API
	u := start(t, cfg)
	await(t, u, link.Up)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "/watch", nil)
	if err != nil {
		t.Fatal(err)
	}
	watch, err := u.AsNode().RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = watch.Body.Close() }()
	waitFor(t, u.servers[0].unready.Load)
	if got, err := get(t, u.AsNode(), "/"); got != "served" || err != nil {
		t.Errorf("%q, %v; want an answer", got, err)
	}
	close(block)
	if events, err := io.ReadAll(watch.Body); err != nil || !strings.Contains(string(events), "second") {
		t.Errorf("the watch brought %q, %v", events, err)
	}
	if ups, downs := u.servers[0].monitor.Transitions(); ups != 1 || downs != 0 {
		t.Errorf("%d ups, %d downs", ups, downs)
	}
}

// TestSilentServer is a server that accepts and says nothing.
func TestSilentServer(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	ca := newAuthority(t)
	second := ca.serve(t, named("second"), nil)
	cfg := ca.files(t, "system:node:n1", "https://"+listener.Addr().String())
	u := start(t, cfg)
	began := time.Now()
	await(t, u, link.Down)
	if took := time.Since(began); took > 8*time.Second {
		t.Errorf("down after %v", took)
	}
	if _, err := get(t, u.AsNode(), "/"); !errors.Is(err, ErrDown) || !NotSent(err) {
		t.Errorf("%v, want a DownError of a request that was not sent", err)
	}

	cfg = ca.files(t, "system:node:n1", "https://"+listener.Addr().String(), second.URL)
	cfg.Name = "cloud2"
	u = start(t, cfg)
	await(t, u, link.Up)
	if got, err := get(t, u.AsNode(), "/"); got != "second" || err != nil {
		t.Errorf("answered by %q, %v; want the server that speaks", got, err)
	}
}

// TestCut cuts the wires silently under a watch, a read and a write in flight, and an upgraded stream.
func TestCut(t *testing.T) {
	ca := newAuthority(t)
	block := make(chan struct{})
	defer close(block)
	var arrived atomic.Int32
	s := ca.serve(t, func(w http.ResponseWriter, r *http.Request) {
		arrived.Add(1)
		switch r.URL.Path {
		case "/watch":
			fmt.Fprintln(w, "first event")
			w.(http.Flusher).Flush()
		case "/upgrade":
			echo(t, w)
			return
		}
		select {
		case <-block:
		case <-r.Context().Done():
		}
	}, nil)
	ws := newWires()
	cfg := ca.files(t, "system:node:n1", s.URL)
	cfg.DialContext = ws.dial
	registry := prometheus.NewRegistry()
	cfg.Metrics = registry
	u := start(t, cfg)
	await(t, u, link.Up)

	request := func(method, path, body string) *http.Request {
		req, err := http.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		if path == "/upgrade" {
			req.Header.Set("Connection", "Upgrade")
			req.Header.Set("Upgrade", "SPDY/3.1")
		}
		return req
	}
	type outcome struct {
		what string
		err  error
	}
	outcomes := make(chan outcome, 4)
	watch, err := u.AsNode().RoundTrip(request("GET", "/watch", ""))
	if err != nil {
		t.Fatal(err)
	}
	stream, err := u.AsNode().RoundTrip(request("POST", "/upgrade", ""))
	if err != nil {
		t.Fatal(err)
	}
	var sending sync.WaitGroup
	for _, res := range []*http.Response{watch, stream} {
		what := res.Request.URL.Path
		sending.Go(func() {
			_, err := io.Copy(io.Discard, res.Body)
			outcomes <- outcome{what, err}
		})
	}
	for _, method := range []string{"GET", "PUT"} {
		sending.Go(func() {
			res, err := u.AsCaller().RoundTrip(request(method, "/hang", ""))
			if err == nil {
				_ = res.Body.Close()
			}
			outcomes <- outcome{method, err}
		})
	}
	waitFor(t, func() bool { return arrived.Load() == 4 && testutil.ToFloat64(u.metrics.inFlight) == 4 })
	close(ws.current())
	began := time.Now()
	for range 4 {
		o := <-outcomes
		if !errors.Is(o.err, ErrDown) || NotSent(o.err) {
			t.Errorf("%s ended with %v, want a DownError of a request that was sent", o.what, o.err)
		}
	}
	if took := time.Since(began); took > 8*time.Second {
		t.Errorf("all ended after %v", took)
	}
	sending.Wait()
	_ = watch.Body.Close()
	_ = stream.Body.Close()
	began = time.Now()
	if _, err := get(t, u.AsNode(), "/"); !errors.Is(err, ErrDown) || !strings.Contains(err.Error(), "cloud") {
		t.Errorf("%v, want a DownError that names the link", err)
	}
	if took := time.Since(began); took > 200*time.Millisecond {
		t.Errorf("refused after %v", took)
	}
	waitFor(t, func() bool { return testutil.ToFloat64(u.metrics.inFlight) == 0 })
	waitFor(t, func() bool { return ws.count() == 0 })

	ws.heal()
	await(t, u, link.Up)
	again, err := u.AsNode().RoundTrip(request("GET", "/watch", ""))
	if err != nil {
		t.Fatalf("after healing: %v", err)
	}
	_ = again.Body.Close()
	expected := `
# HELP yurthub_upstream_link_transitions_total How often the link came up or went down.
# TYPE yurthub_upstream_link_transitions_total counter
yurthub_upstream_link_transitions_total{server="ADDR",to="down",upstream="cloud"} 1
yurthub_upstream_link_transitions_total{server="ADDR",to="up",upstream="cloud"} 2
# HELP yurthub_upstream_link_up 1: the link is up; 0: it is down; -1: not known yet.
# TYPE yurthub_upstream_link_up gauge
yurthub_upstream_link_up{server="ADDR",upstream="cloud"} 1
`
	expected = strings.ReplaceAll(expected, "ADDR", strings.TrimPrefix(s.URL, "https://"))
	if err := testutil.GatherAndCompare(registry, strings.NewReader(expected),
		"yurthub_upstream_link_transitions_total", "yurthub_upstream_link_up"); err != nil {
		t.Error(err)
	}
}

// TestReadMovesWhenItsLinkGoesDown: a read that was cut off goes to the other server; a write does not.
func TestReadMovesWhenItsLinkGoesDown(t *testing.T) {
	ca := newAuthority(t)
	var hanging atomic.Int32
	first := ca.serve(t, func(_ http.ResponseWriter, r *http.Request) { hanging.Add(1); <-r.Context().Done() }, nil)
	second := ca.serve(t, named("second"), nil)
	cfg := ca.files(t, "system:node:n1", first.URL, second.URL)
	ws := newWires()
	cfg.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if addr == first.Listener.Addr().String() {
			return ws.dial(ctx, network, addr)
		}
		return Dial(ctx, network, addr)
	}
	u := start(t, cfg)
	allUp(t, u)
	type outcome struct {
		body string
		err  error
	}
	read, written := make(chan outcome, 1), make(chan error, 1)
	var sending sync.WaitGroup
	sending.Go(func() {
		body, err := get(t, u.AsNode(), "/")
		read <- outcome{body, err}
	})
	sending.Go(func() {
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodDelete, "/pod", nil)
		res, err := u.AsNode().RoundTrip(req)
		if err == nil {
			_ = res.Body.Close()
		}
		written <- err
	})
	waitFor(t, func() bool { return hanging.Load() == 2 })
	close(ws.current())
	if o := <-read; o.body != "second" || o.err != nil {
		t.Errorf("the read got %q, %v; want the other server's answer", o.body, o.err)
	}
	if err := <-written; !errors.Is(err, ErrDown) || NotSent(err) {
		t.Errorf("the write got %v, want a DownError of a request that was sent", err)
	}
	sending.Wait()
}

// TestBrokenUploadIsNoFailure: a caller whose body breaks off says nothing about the link; a reset by the server does.
func TestBrokenUploadIsNoFailure(t *testing.T) {
	ca := newAuthority(t)
	s := ca.serve(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		panic(http.ErrAbortHandler)
	}, func(s *httptest.Server) { s.EnableHTTP2 = false })
	u := start(t, ca.files(t, "system:node:n1", s.URL))
	await(t, u, link.Up)
	failures := func() float64 { return testutil.ToFloat64(u.metrics.failures.WithLabelValues(u.servers[0].addr)) }
	broken := errors.New("the caller went away")
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodPut, "/", io.NopCloser(io.MultiReader(
		strings.NewReader("half"), &failing{broken})))
	res, err := u.AsNode().RoundTrip(req)
	if err == nil {
		_ = res.Body.Close()
	}
	if !errors.Is(err, broken) || failures() != 0 {
		t.Errorf("%v, %v failures of the link; want the caller's error and none", err, failures())
	}
	req, _ = http.NewRequestWithContext(t.Context(), http.MethodPut, "/", strings.NewReader("whole"))
	if res, err = u.AsNode().RoundTrip(req); err == nil {
		_ = res.Body.Close()
	}
	if err == nil || NotSent(err) || failures() != 1 {
		t.Errorf("%v, %v failures of the link; want a request that was sent and one failure", err, failures())
	}
}

type failing struct{ err error }

func (f *failing) Read([]byte) (int, error) { return 0, f.err }

// TestNothingArrivesLate: what was written into a dead link is not delivered when the link heals.
func TestNothingArrivesLate(t *testing.T) {
	var lingers atomic.Int32
	c := &conn{Conn: &lingering{set: func(sec int) {
		if sec == 0 {
			lingers.Add(1)
		}
	}}, session: &session{conns: map[*conn]struct{}{}}}
	if err := c.reset(); err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
	if lingers.Load() != 1 {
		t.Error("a reset connection was not told to forget what it holds")
	}
	c = &conn{Conn: &lingering{set: func(int) { t.Error("an upgraded stream that ends in order was reset") }},
		session: &session{conns: map[*conn]struct{}{}}}
	_ = c.Close()
}

type lingering struct {
	net.Conn
	set func(int)
}

func (l *lingering) SetLinger(sec int) error { l.set(sec); return nil }
func (l *lingering) Close() error            { return nil }

func TestCancelledCallerIsNoFailure(t *testing.T) {
	ca := newAuthority(t)
	s := ca.serve(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, nil)
	cfg := ca.files(t, "system:node:n1", s.URL)
	u := start(t, cfg)
	await(t, u, link.Up)
	ctx, cancel := context.WithCancel(t.Context())
	req, _ := http.NewRequestWithContext(ctx, http.MethodGet, "/", nil)
	ended := make(chan error, 1)
	go func() {
		res, err := u.AsNode().RoundTrip(req)
		if err == nil {
			_ = res.Body.Close()
		}
		ended <- err
	}()
	waitFor(t, func() bool { return testutil.ToFloat64(u.metrics.inFlight) == 1 })
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want the caller's cancellation", err)
	}
	if n := testutil.ToFloat64(u.metrics.failures.WithLabelValues(u.servers[0].addr)); n != 0 {
		t.Error("a cancelled caller was taken for a failure of the link")
	}
}

func TestCertificateReload(t *testing.T) {
	ca := newAuthority(t)
	s := ca.serve(t, whoami, nil)
	cfg := ca.files(t, "system:node:n1", s.URL)
	u := start(t, cfg)
	if got, err := get(t, u.AsNode(), "/"); !strings.HasPrefix(got, "system:node:n1 ") || err != nil {
		t.Fatalf("%q, %v", got, err)
	}
	certPEM, keyPEM := ca.issue(t, "system:node:renewed", time.Now().Add(time.Hour))
	write(t, cfg.CertFile, certPEM) // half of a change: the key does not match
	if u.reload(t.Context(), "") == "" {
		t.Error("a half written pair was loaded")
	}
	if got, err := get(t, u.AsNode(), "/"); !strings.HasPrefix(got, "system:node:n1 ") || err != nil {
		t.Errorf("with a half written pair: %q, %v", got, err)
	}
	write(t, cfg.KeyFile, keyPEM)
	waitFor(t, func() bool {
		got, err := get(t, u.AsNode(), "/")
		return err == nil && strings.HasPrefix(got, "system:node:renewed ")
	})
}

func TestUntrusted(t *testing.T) {
	ca, other := newAuthority(t), newAuthority(t)
	t.Run("the server's CA is another", func(t *testing.T) {
		s := other.serve(t, whoami, nil)
		cfg := ca.files(t, "system:node:n1", s.URL)
		u := start(t, cfg)
		await(t, u, link.Down)
		_, err := get(t, u.AsNode(), "/")
		wrong := (*CertificateError)(nil)
		if !errors.Is(err, ErrDown) || !errors.As(err, &wrong) || !strings.Contains(err.Error(), cfg.CAFile) {
			t.Errorf("%v, want a DownError that names the CA file", err)
		}
	})
	t.Run("the client's CA is another", func(t *testing.T) {
		s := ca.serve(t, whoami, nil)
		cfg := ca.files(t, "system:node:n1", s.URL)
		certPEM, keyPEM := other.issue(t, "system:node:n1", time.Now().Add(time.Hour))
		write(t, cfg.CertFile, certPEM)
		write(t, cfg.KeyFile, keyPEM)
		u := start(t, cfg)
		await(t, u, link.Down)
		_, err := get(t, u.AsNode(), "/")
		if !errors.Is(err, ErrDown) || !strings.Contains(err.Error(), cfg.CertFile) {
			t.Errorf("%v, want a DownError that names the client certificate", err)
		}
	})
}

func TestUpgrade(t *testing.T) {
	ca := newAuthority(t)
	s := ca.serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 1 {
			http.Error(w, r.Proto, http.StatusHTTPVersionNotSupported)
			return
		}
		echo(t, w)
	}, nil)
	u := start(t, ca.files(t, "system:node:n1", s.URL))
	for _, protocol := range []string{"SPDY/3.1", "websocket"} {
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, "/exec", nil)
		req.Header.Set("Connection", "Upgrade")
		req.Header.Set("Upgrade", protocol)
		res, err := u.AsNode().RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		stream, ok := res.Body.(io.ReadWriteCloser)
		if res.StatusCode != http.StatusSwitchingProtocols || !ok {
			t.Fatalf("%s, body %T", res.Status, res.Body)
		}
		if _, err := io.WriteString(stream, "ping"); err != nil {
			t.Fatal(err)
		}
		if err := stream.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(stream); string(got) != "ping" || err != nil {
			t.Errorf("%s: echoed %q, %v", protocol, got, err)
		}
		_ = stream.Close()
	}
}

// echo answers an upgrade and returns what it is sent.
func echo(t testing.TB, w http.ResponseWriter) {
	c, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		t.Error(err)
		return
	}
	defer func() { _ = c.Close() }()
	fmt.Fprint(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n")
	_, _ = io.Copy(c, rw)
}

func TestWhatTheHubAsksForItself(t *testing.T) {
	ca := newAuthority(t)
	var agent, accept atomic.Value
	s := ca.serve(t, func(w http.ResponseWriter, r *http.Request) {
		agent.Store(r.UserAgent())
		accept.Store(r.Header.Get("Accept") + " as " + r.Header.Get("Impersonate-User"))
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p"}}`)
	}, nil)
	u := start(t, ca.files(t, "system:node:n1", s.URL))
	cfg := u.RESTConfig()
	cfg.Impersonate.UserName = "forwarder"
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	pod, err := client.CoreV1().Pods("default").Get(t.Context(), "p", metav1.GetOptions{})
	if err != nil || pod.Name != "p" {
		t.Fatalf("%v, %v", pod, err)
	}
	if agent.Load() != "yurthub" ||
		accept.Load() != "application/vnd.kubernetes.protobuf,application/json as forwarder" {
		t.Errorf("agent %v, accept %v", agent.Load(), accept.Load())
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	agent.Store("")
	response, err := u.AsHub().RoundTrip(r)
	if err != nil || agent.Load() != "yurthub" {
		t.Fatalf("as the hub: agent %v, %v", agent.Load(), err)
	}
	_ = response.Body.Close()
}

func TestNew(t *testing.T) {
	ca := newAuthority(t)
	for _, tc := range []struct {
		name   string
		change func(*Config)
		want   string
	}{
		{"no name", func(c *Config) { c.Name = "" }, "Name"},
		{"no server", func(c *Config) { c.Servers = nil }, "0 server addresses"},
		{"http", func(c *Config) { c.Servers[0].Scheme = "http" }, "https://"},
		{"query", func(c *Config) { c.Servers[0].RawQuery = "x" }, "https://"},
		{"twice", func(c *Config) { c.Servers = append(c.Servers, c.Servers[0]) }, "twice"},
		{"no CA", func(c *Config) { c.CAFile = "" }, "CA file"},
		{"no key", func(c *Config) { c.KeyFile = "" }, "client key"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cfg := ca.files(t, "n", "https://127.0.0.1:1")
			tc.change(&cfg)
			if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%v, want an error about %q", err, tc.want)
			}
		})
	}
	t.Run("no such file", func(t *testing.T) {
		cfg := ca.files(t, "n", "https://127.0.0.1:1")
		cfg.CertFile += ".missing"
		u, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if err := u.Run(t.Context()); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("Run: %v, want the missing file", err)
		}
		if _, err := get(t, u.AsNode(), "/"); !errors.Is(err, ErrNotRunning) || !NotSent(err) {
			t.Errorf("a request after Run: %v", err)
		}
		if err := u.Run(t.Context()); err == nil {
			t.Error("Run ran twice")
		}
	})
}

// TestNoLeaks: when Run has returned, no goroutine of it is left.
func TestNoLeaks(t *testing.T) {
	ca := newAuthority(t)
	s := ca.serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}, nil)
	before := runtime.NumGoroutine()
	ws := newWires()
	cfg := ca.files(t, "n", s.URL, "https://127.0.0.1:1")
	cfg.DialContext = ws.dial
	u, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- u.Run(ctx) }()
	var bodies []io.Closer
	for _, rt := range []http.RoundTripper{u.AsNode(), u.AsCaller()} {
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "/watch", nil)
		res, err := rt.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		bodies = append(bodies, res.Body)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("Run: %v", err)
	}
	for _, b := range bodies {
		_ = b.Close()
	}
	waitFor(t, func() bool { return ws.count() == 0 })
	s.CloseClientConnections()
	waitFor(t, func() bool { return runtime.NumGoroutine() <= before })
}

// TestServersKnowHowLongAWriteIsWaitedFor: reads need nothing, and who waits for ever says nothing.
func TestServersKnowHowLongAWriteIsWaitedFor(t *testing.T) {
	var got string
	sees := timed{roundTripper(func(r *http.Request) (*http.Response, error) {
		got = r.URL.RequestURI()
		return &http.Response{Body: http.NoBody}, nil
	})}
	for _, c := range []struct {
		method, path string
		within       time.Duration
		want         string
	}{
		{"PUT", "/a", 3500 * time.Millisecond, "/a?timeout=3.5s"},
		{"PATCH", "/a?force=true", 9 * time.Second, "/a?force=true&timeout=9s"},
		{"POST", "/a", 9100 * time.Millisecond, "/a?timeout=9.5s"},
		{"DELETE", "/a", 10 * time.Millisecond, "/a?timeout=500ms"},
		{"PUT", "/a", 0, "/a"},
		{"GET", "/a?watch=true", 3 * time.Second, "/a?watch=true"},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx := t.Context()
			if c.within > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, c.within)
				defer cancel()
			}
			req, err := http.NewRequestWithContext(ctx, c.method, c.path, nil)
			if err != nil {
				t.Fatal(err)
			}
			res, err := sees.RoundTrip(req)
			if err != nil || got != c.want || req.URL.RequestURI() != c.path {
				t.Errorf("%s %s: %q, want %q; the request itself is %q now; %v", c.method, c.path, got, c.want, req.URL, err)
				return
			}
			_ = res.Body.Close()
		})
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
