package upstream

import (
	"context"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"yurtcoordinator/internal/hub/link"
)

// slowly is a connection whose bytes towards us come at a rate, behind a queue that all its data share.
type slowly struct {
	net.Conn
	rate int // bytes in a second
}

func (s *slowly) Read(p []byte) (int, error) {
	n, err := s.Conn.Read(p[:min(len(p), s.rate/20)])
	if n > 0 {
		<-time.After(time.Duration(n) * time.Second / time.Duration(s.rate))
	}
	return n, err
}

// TestBusyLink: a list fills the line for longer than the link's patience, and probes wait behind it. Bytes arrive all the
// time, so the link stays up, and the list ends.
func TestBusyLink(t *testing.T) {
	ca := newAuthority(t)
	const size, rate = 1 << 20, 96 << 10 // 11 s
	s := ca.serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, size)) }, nil)
	cfg := ca.files(t, "system:node:n1", s.URL)
	cfg.Link = link.Standard()
	cfg.Link.MinPatience, cfg.Link.MaxPatience = 2*time.Second, 2*time.Second
	cfg.Link.Interval, cfg.Link.Quiet = 300*time.Millisecond, time.Second
	var thin atomic.Bool
	cfg.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		if err != nil || !thin.Swap(true) {
			return c, err
		}
		return &slowly{c, rate}, nil
	}
	u := start(t, cfg)
	await(t, u, link.Up)
	for i := range 2 { // the second connection, too, if the first was not the slow one
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		if err != nil {
			t.Fatal(err)
		}
		via := u.AsCaller()
		if i == 0 {
			via = u.AsNode()
		}
		res, err := via.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		if n, err := io.Copy(io.Discard, res.Body); n != size || err != nil {
			t.Errorf("%d bytes came, then %v", n, err)
		}
		_ = res.Body.Close()
	}
	if _, downs := u.servers[0].monitor.Transitions(); downs != 0 {
		t.Errorf("the link went down %d times while bytes arrived", downs)
	}
}

// TestProbesOfAQuietLinkArePings: a probe is no request.
func TestProbesOfAQuietLinkArePings(t *testing.T) {
	ca := newAuthority(t)
	s := ca.serve(t, named("it"), nil)
	cfg := ca.files(t, "system:node:n1", s.URL)
	var sent, writes atomic.Int64
	cfg.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		return counted{c, &sent, &writes}, err
	}
	u := start(t, cfg)
	await(t, u, link.Up)
	if body, err := get(t, u.AsNode(), "/"); body != "it" || err != nil {
		t.Fatalf("%q, %v", body, err)
	}
	before, already := sent.Load(), writes.Load()
	waitFor(t, func() bool { return writes.Load() >= already+5 })
	if each := float64(sent.Load()-before) / float64(writes.Load()-already); each > 60 {
		t.Errorf("a probe sends %.0f bytes, want a ping: 17 of HTTP/2 and 22 of TLS", each)
	}
}

type counted struct {
	net.Conn
	sent, writes *atomic.Int64
}

func (c counted) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.sent.Add(int64(n))
	c.writes.Add(1)
	return n, err
}
