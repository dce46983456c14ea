package front

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"yurtcoordinator/internal/conns"
	"yurtcoordinator/internal/ends"
)

// TestStuckClient: a client that stops reading, or sending, does not hold its place for ever.
func TestStuckClient(t *testing.T) {
	var inside atomic.Int32
	_, u := cloud(t, func(w http.ResponseWriter, r *http.Request) {
		inside.Add(1)
		defer inside.Add(-1)
		if r.Method == http.MethodPost {
			_, _ = io.Copy(io.Discard, r.Body)
			return
		}
		chunk := make([]byte, 1<<16)
		for {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	})
	handler := newFront(Config{Cloud: u})
	handler.timeout = 300 * time.Millisecond
	address, _ := serve(t, handler)
	for _, head := range []string{
		"GET /api/v1/pods HTTP/1.1\r\nHost: hub\r\n\r\n",
		"POST /api/v1/namespaces/d/pods HTTP/1.1\r\nHost: hub\r\nContent-Length: 1000000\r\n\r\nhalf",
	} {
		conn, err := net.Dial("tcp", strings.TrimPrefix(address, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		if _, err := io.WriteString(conn, head); err != nil {
			t.Fatal(err)
		}
		eventually(t, func() error {
			if inside.Load() == 0 {
				return errors.New("the request has not arrived")
			}
			return nil
		})
		eventually(t, func() error {
			f := handler
			n := f.limits[kubelets][readOnly].now.Load() + f.limits[kubelets][mutating].now.Load()
			if n != 0 || inside.Load() != 0 {
				return fmt.Errorf("%d still in flight, %d at the server", n, inside.Load())
			}
			return nil
		})
	}
}

// TestShutdown: short requests are finished, long ones are broken off, and Run waits for all.
func TestShutdown(t *testing.T) {
	entered, release := make(chan string, 3), make(chan struct{})
	_, u := cloud(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "" {
			conn, rw, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			fmt.Fprint(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n")
			entered <- "exec"
			_, _ = io.Copy(io.Discard, rw)
			_ = conn.Close()
			return
		}
		w.(http.Flusher).Flush()
		entered <- r.URL.Path
		if r.URL.Query().Get("watch") == "" {
			<-release
			fmt.Fprint(w, "whole")
			return
		}
		<-r.Context().Done()
	})
	address, stop := hub(t, Config{Cloud: u})
	short, err := do(t, "GET", address+"/api/v1/pods", nil)
	if err != nil {
		t.Fatal(err)
	}
	<-entered
	watch, err := do(t, "GET", address+"/api/v1/nodes?watch=true", nil)
	if err != nil {
		t.Fatal(err)
	}
	<-entered
	exec, err := do(t, "POST", address+"/api/v1/namespaces/d/pods/p/exec", nil,
		"Connection", "Upgrade", "Upgrade", "SPDY/3.1")
	if err != nil {
		t.Fatal(err)
	}
	<-entered
	stopped := make(chan struct{})
	go func() { stop(); close(stopped) }()
	if _, err := io.ReadAll(watch.Body); err == nil {
		t.Error("the watch looks complete")
	}
	_, _ = io.ReadAll(exec.Body) // it ends
	close(release)
	if body, err := io.ReadAll(short.Body); string(body) != "whole" || err != nil {
		t.Errorf("the short request got %q, %v", body, err)
	}
	for _, res := range []*http.Response{short, watch, exec} {
		_ = res.Body.Close()
	}
	select {
	case <-stopped:
	case <-time.After(20 * time.Second):
		t.Fatal("Run does not end")
	}
}

func TestShutdownIsBounded(t *testing.T) {
	entered := make(chan struct{})
	server, err := Listen(ends.Net{}, "127.0.0.1:0", ServerConfig{
		Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			close(entered)
			<-r.Context().Done()
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	server.drain = 50 * time.Millisecond
	stop := background(t, server.Run)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if res, err := do(t, "GET", "http://"+server.listener.Addr().String(), nil); err == nil {
			_ = res.Body.Close()
		}
	}()
	<-entered
	stop()
	<-ended
}

func TestServerFails(t *testing.T) {
	server, err := Listen(ends.Net{}, "127.0.0.1:0", ServerConfig{Handler: http.NotFoundHandler()})
	if err != nil {
		t.Fatal(err)
	}
	_ = server.Close()
	if err := server.Run(t.Context()); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Run on a closed listener: %v", err)
	}
}

func TestListen(t *testing.T) {
	server, err := Listen(ends.Net{}, "127.0.0.1:0", ServerConfig{Handler: http.NotFoundHandler()})
	if err != nil {
		t.Fatal(err)
	}
	taken := server.listener.Addr().String()
	if _, err := Listen(ends.Net{}, taken, ServerConfig{Handler: http.NotFoundHandler()}); err == nil {
		t.Error("it listens where another does")
	}
	if err := server.Close(); err != nil {
		t.Fatal(err)
	}
	if server, err = Listen(ends.Net{}, taken, ServerConfig{Handler: http.NotFoundHandler()}); err != nil {
		t.Fatalf("what was closed listens: %v", err)
	}
	_ = server.Close()
}

// A request that comes too early waits, and is answered then.
func TestRequestsWaitUntilAfter(t *testing.T) {
	after := make(chan struct{})
	var early atomic.Bool
	server, err := Listen(ends.Net{}, "127.0.0.1:0", ServerConfig{
		After: after,
		Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			select {
			case <-after:
			default:
				early.Store(true)
			}
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	background(t, server.Run)
	time.AfterFunc(50*time.Millisecond, func() { close(after) })
	res, err := do(t, "GET", "http://"+server.listener.Addr().String(), nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if res.StatusCode != http.StatusOK || early.Load() {
		t.Errorf("%s; before its time: %v", res.Status, early.Load())
	}
}

func TestAServerThatMayNotAcceptYetEnds(t *testing.T) {
	server, err := Listen(ends.Net{}, "127.0.0.1:0", ServerConfig{After: make(chan struct{}), Handler: http.NotFoundHandler()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := server.Run(ctx); err != nil {
		t.Error(err)
	}
}

// TestConnectionsOfAnAddress are bounded, and somebody is told.
func TestConnectionsOfAnAddress(t *testing.T) {
	told := make(chan string, 1)
	server, err := Listen(ends.Net{}, "127.0.0.1:0", ServerConfig{
		Handler: http.NotFoundHandler(), PerSource: 1, TLS: &tls.Config{Certificates: []tls.Certificate{serverPair(t)}},
		Refused: func(from netip.AddrPort, why conns.Reason, _ error) { told <- from.Addr().String() + " " + string(why) },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	ask := func() (net.Conn, error) {
		raw, err := net.Dial("tcp", server.listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		conn := tls.Client(raw, &tls.Config{InsecureSkipVerify: true})
		t.Cleanup(func() { _ = conn.Close() })
		if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: hub\r\n\r\n"); err != nil {
			return conn, err
		}
		_, err = conn.Read(make([]byte, 1))
		return conn, err
	}
	if _, err := ask(); err != nil {
		t.Errorf("the first: %v", err)
	}
	if _, err := ask(); err == nil {
		t.Error("the second was served")
	}
	if got := <-told; got != "127.0.0.1 too-many" {
		t.Errorf("told %s", got)
	}
}

// serverPair is a serving certificate that nobody verifies.
func serverPair(t *testing.T) tls.Certificate {
	t.Helper()
	s := httptest.NewTLSServer(http.NotFoundHandler())
	defer s.Close()
	return s.TLS.Certificates[0]
}

// TestProtocols: with TLS a client has HTTP/2 where that is not left out, behind a bound on connections as well.
// TestBoundsOfAConnection: a server tells clients how many requests of a connection it serves at a time, and how long a header
// may be, and refuses a longer one.
func TestBoundsOfAConnection(t *testing.T) {
	address, _ := serve(t, http.NotFoundHandler())
	connect := func() net.Conn {
		t.Helper()
		conn, err := net.Dial("tcp", strings.TrimPrefix(address, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
		return conn
	}
	conn := connect()
	framer := http2.NewFramer(conn, conn)
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	if err := framer.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	frame, err := framer.ReadFrame()
	settings, ok := frame.(*http2.SettingsFrame)
	if err != nil || !ok {
		t.Fatalf("the server begins with %v, %v", frame, err)
	}
	streams, _ := settings.Value(http2.SettingMaxConcurrentStreams)
	header, said := settings.Value(http2.SettingMaxHeaderListSize)
	if streams != maxStreams || !said || header < maxHeaderBytes || header > maxHeaderBytes+1<<10 {
		t.Errorf("it takes %d streams, and headers of %d bytes", streams, header)
	}
	for size, want := range map[int]string{16 << 10: "HTTP/1.1 404", 64 << 10: "HTTP/1.1 431"} {
		conn, answer := connect(), make([]byte, 12)
		_, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: hub\r\nX: "+strings.Repeat("x", size)+"\r\n\r\n")
		if _, read := io.ReadFull(conn, answer); string(answer) != want {
			t.Errorf("a header of %d bytes: %q, %v, %v; want %s", size, answer, err, read, want)
		}
	}
	conn = connect()
	began := time.Now()
	_, err = io.ReadAll(conn)
	if took := time.Since(began); err != nil || took < readHeaderTimeout-time.Second || took > 4*readHeaderTimeout {
		t.Errorf("a client that asks nothing: closed after %s, %v", took, err)
	}
}

func TestProtocols(t *testing.T) {
	for _, tt := range []struct {
		bound int
		http1 bool
		want  int
	}{{0, false, 2}, {0, true, 1}, {5, false, 2}, {5, true, 1}} {
		server, err := Listen(ends.Net{}, "127.0.0.1:0", ServerConfig{
			Handler: http.NotFoundHandler(), TLS: &tls.Config{Certificates: []tls.Certificate{serverPair(t)}},
			PerSource: tt.bound, HTTP1: tt.http1,
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- server.Run(ctx) }()
		transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true}
		response, err := (&http.Client{Transport: transport}).Get("https://" + server.listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.ProtoMajor != tt.want {
			t.Errorf("%+v: it speaks %s", tt, response.Proto)
		}
		transport.CloseIdleConnections()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}
