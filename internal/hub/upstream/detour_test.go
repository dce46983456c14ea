package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"yurtcoordinator/internal/hub/link"
	"yurtcoordinator/internal/live"
)

// line is a way to the servers that can be cut: then its connections end, and it refuses others.
type line struct {
	dials atomic.Int32

	mu   sync.Mutex
	dead bool
	open map[*lineConn]struct{}
}

type lineConn struct {
	net.Conn
	of *line
}

func newLine() *line { return &line{open: map[*lineConn]struct{}{}} }

func (l *line) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	l.dials.Add(1)
	l.mu.Lock()
	dead := l.dead
	l.mu.Unlock()
	if dead {
		return nil, errors.New("the line is cut")
	}
	raw, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	c := &lineConn{raw, l}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dead {
		_ = raw.Close()
	}
	l.open[c] = struct{}{}
	return c, nil
}

// Close implements net.Conn.
func (c *lineConn) Close() error {
	c.of.mu.Lock()
	delete(c.of.open, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}

func (l *line) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dead = true
	for c := range l.open {
		_ = c.Conn.Close()
	}
}

func (l *line) heal() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dead = false
}

func (l *line) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.open)
}

// detoured starts an Upstream with a line of its own and a detour.
func detoured(t *testing.T, use Use, handler http.HandlerFunc) (u *Upstream, own, by *line, cfg Config) {
	t.Helper()
	ca := newAuthority(t)
	s := ca.serve(t, handler, nil)
	cfg = ca.files(t, "system:node:n1", s.URL)
	own, by = newLine(), newLine()
	cfg.DialContext = own.dial
	cfg.Detour = &Detour{DialContext: by.dial, Use: live.NewValue(use)}
	cfg.Metrics = prometheus.NewRegistry()
	return start(t, cfg), own, by, cfg
}

func isRelayed(t *testing.T, u *Upstream, want float64) {
	t.Helper()
	if got := gauge(t, u, "yurthub_upstream_relayed"); got != want {
		t.Errorf("yurthub_upstream_relayed is %v, want %v", got, want)
	}
}

func gauge(t *testing.T, u *Upstream, name string) float64 {
	t.Helper()
	families, err := u.cfg.Metrics.(*prometheus.Registry).Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	t.Fatalf("there is no %s", name)
	return 0
}

// TestDetour: while the own line is down, requests go by the detour as the node, and the own line is taken as soon as it heals.
func TestDetour(t *testing.T) {
	u, own, by, _ := detoured(t, ForAll, whoami)
	await(t, u, link.Up)
	if by.dials.Load() != 0 {
		t.Error("the detour was dialled though the own line is up")
	}
	before := u.Traffic()
	own.cut()
	await(t, u, link.Relayed)
	isRelayed(t, u, 1)
	got, err := get(t, u.AsNode(), "/")
	if want := "system:node:n1 HTTP/2.0 " + u.cfg.Servers[0].Host; got != want || err != nil {
		t.Errorf("%q, %v, want %q", got, err, want)
	}
	if got, err := get(t, u.AsCaller(), "/"); err != nil || got[:6] != "nobody" {
		t.Errorf("as a caller: %q, %v", got, err)
	}
	if reaches(t, u.servers[0], link.Down); u.AnywayLink().Get() != link.Relayed {
		t.Errorf("anyway the link is %v", u.AnywayLink().Get())
	}
	if after := u.Traffic(); after.Received != before.Received {
		t.Errorf("%d bytes were received over a line that is cut", after.Received-before.Received)
	}
	own.heal()
	await(t, u, link.Up)
	isRelayed(t, u, 0)
	if got, err := get(t, u.AsNode(), "/"); err != nil || got[:14] != "system:node:n1" {
		t.Errorf("healed: %q, %v", got, err)
	}
	waitFor(t, func() bool { return by.count() == 0 }) // what went by the detour has had its time
}

// TestDetourFails: the link is down where there is no neighbour, and once the one that there was has gone.
func TestDetourFails(t *testing.T) {
	u, own, by, _ := detoured(t, ForAll, whoami)
	await(t, u, link.Up)
	by.cut()
	own.cut()
	await(t, u, link.Down)
	waitFor(t, func() bool { return by.dials.Load() > 2 })
	if _, err := get(t, u.AsNode(), "/"); !errors.Is(err, ErrDown) {
		t.Errorf("%v, want a DownError", err)
	}
	by.heal()
	await(t, u, link.Relayed)
	by.cut()
	await(t, u, link.Down)
	if _, err := get(t, u.AsNode(), "/"); !errors.Is(err, ErrDown) {
		t.Errorf("%v, want a DownError", err)
	}
	by.heal()
	await(t, u, link.Relayed)
}

// TestDetourForSome: where it is used for some requests only, the link is down for all others. A use that changes counts at once.
func TestDetourForSome(t *testing.T) {
	u, own, _, cfg := detoured(t, ForSome, whoami)
	await(t, u, link.Up)
	own.cut()
	anyway := func(want link.State) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		if _, err := u.AnywayLink().Wait(ctx, func(s link.State) bool { return s == want }); err != nil {
			t.Fatalf("anyway the link is %v, want %v", u.AnywayLink().Get(), want)
		}
	}
	anyway(link.Relayed)
	if state := u.Link().Get(); state != link.Down {
		t.Errorf("the link is %v", state)
	}
	if _, err := get(t, u.AsNode(), "/"); !errors.Is(err, ErrDown) {
		t.Errorf("%v, want a DownError", err)
	}
	if got, err := get(t, Anyways(u.AsNode()), "/"); err != nil || got[:14] != "system:node:n1" {
		t.Errorf("anyway: %q, %v", got, err)
	}
	cfg.Detour.Use.Set(ForAll)
	await(t, u, link.Relayed)
	cfg.Detour.Use.Set(ForNothing)
	anyway(link.Down)
	if _, err := get(t, Anyways(u.AsNode()), "/"); !errors.Is(err, ErrDown) {
		t.Errorf("%v, want a DownError", err)
	}
}

// TestHealingLetsRequestsEnd: a request that goes by the detour when the own line heals ends well, if it ends soon.
func TestHealingLetsRequestsEnd(t *testing.T) {
	release := make(chan struct{})
	u, own, _, _ := detoured(t, ForAll, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "begun, ")
		_ = http.NewResponseController(w).Flush()
		select {
		case <-release:
		case <-r.Context().Done():
		}
		fmt.Fprint(w, "ended")
	})
	await(t, u, link.Up)
	own.cut()
	await(t, u, link.Relayed)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := u.AsNode().RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	own.heal()
	await(t, u, link.Up)
	close(release)
	if text, err := io.ReadAll(res.Body); string(text) != "begun, ended" || err != nil {
		t.Errorf("%q, %v", text, err)
	}
}

// TestFailingByDetour: servers that fail are no help, whichever line leads there.
func TestFailingByDetour(t *testing.T) {
	var fails atomic.Bool
	ca := newAuthority(t)
	s := ca.serve(t, func(w http.ResponseWriter, _ *http.Request) {
		if fails.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}, nil)
	cfg := ca.files(t, "system:node:n1", s.URL)
	own, by := newLine(), newLine()
	cfg.DialContext, cfg.CoreRead = own.dial, "/api/v1/nodes/n1"
	cfg.Link.CheckInterval = 20 * time.Millisecond
	cfg.Detour = &Detour{DialContext: by.dial, Use: live.NewValue(ForAll)}
	u := start(t, cfg)
	await(t, u, link.Up)
	own.cut()
	await(t, u, link.Relayed)
	fails.Store(true)
	if _, err := get(t, u.AsNode(), "/api/v1/nodes/n1"); err != nil {
		t.Fatal(err)
	}
	await(t, u, link.Down)
	fails.Store(false)
	await(t, u, link.Relayed)
	if testutil.ToFloat64(u.metrics.inFlight) != 0 {
		t.Error("requests by the detour count as the own line's")
	}
}

// TestRetimedWhileADetourBegins: a change of the timing at that moment holds for the detour, too.
func TestRetimedWhileADetourBegins(t *testing.T) {
	cfg := newAuthority(t).files(t, "system:node:n1", "https://127.0.0.1:1")
	cfg.Link = link.Standard()
	cfg.Detour = &Detour{DialContext: newLine().dial, Use: live.NewValue(ForAll)}
	var u *Upstream
	var begins atomic.Bool
	var retiming, detouring sync.WaitGroup
	cfg.Ends.Ran = func() time.Time {
		if begins.CompareAndSwap(true, false) { // the detour is made now
			if u.mu.TryLock() {
				u.mu.Unlock()
				u.Retime(link.Satellite())
			} else {
				retiming.Go(func() { u.Retime(link.Satellite()) })
			}
		}
		return time.Now()
	}
	u, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	u.servers = nil // none answers, so the own line is down
	u.setState()
	begins.Store(true)
	ctx, cancel := context.WithCancel(t.Context())
	detouring.Go(func() { u.takeDetour(ctx) })
	waitFor(t, func() bool { return u.detour.Load() != nil })
	retiming.Wait()
	d := u.detour.Load()
	d.mu.Lock()
	if d.timing != link.Satellite() {
		t.Error("the detour is judged by the timing of before")
	}
	d.mu.Unlock()
	cancel()
	detouring.Wait()
}
