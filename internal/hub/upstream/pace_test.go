package upstream

import (
	"io"
	"net"
	"net/http"
	"runtime"
	"testing"
	"time"

	"k8s.io/utils/clock"

	"yurtcoordinator/internal/hub/link"
)

func TestLeastTrip(t *testing.T) {
	at := time.Unix(0, 0)
	var l leastTrip
	for i, step := range []struct {
		after, trip, want time.Duration
	}{
		{0, 0, 0}, // none was measured
		{0, 40 * time.Millisecond, 40 * time.Millisecond},
		{time.Second, 4 * time.Second, 40 * time.Millisecond}, // behind a full queue
		{time.Second, 0, 40 * time.Millisecond},
		{time.Second, 30 * time.Millisecond, 30 * time.Millisecond},
		{tripMemory, 600 * time.Millisecond, 30 * time.Millisecond},
		{time.Second, 600 * time.Millisecond, 600 * time.Millisecond}, // another route
	} {
		at = at.Add(step.after)
		if got := l.note(at, step.trip); got != step.want || l.get() != got {
			t.Errorf("step %d: %v, want %v", i, got, step.want)
		}
	}
	if l.forget(); l.get() != 0 {
		t.Errorf("%v after all was forgotten", l.get())
	}
}

// bounds is a kernel that does nothing.
type bounds struct {
	least time.Duration
	set   []int
}

func (b *bounds) trip() (time.Duration, int) { return b.least, 1448 }
func (b *bounds) clamp(n int) error          { b.set = append(b.set, n); return nil }

// passive is a clock that is set.
type passive struct {
	clock.RealClock
	at time.Time
}

func (p *passive) Now() time.Time { return p.at }

func TestPacer(t *testing.T) {
	k, now := &bounds{least: 100 * time.Millisecond}, &passive{at: time.Unix(0, 0)}
	p := &pacer{kernel: k, clock: now, trips: &leastTrip{}, window: newWindow(0)}
	p.received(0)
	p.received(100)
	for range 5 {
		now.at = now.at.Add(200 * time.Millisecond)
		p.received(16 << 10)
	}
	// 80 KB/s with 600 ms on the way: 48 KB. It is set again though it is the same, because kernels forget.
	if len(k.set) != 2 || k.set[0] < 48<<10 || k.set[0] > 52<<10 {
		t.Errorf("set to %v", k.set)
	}
	var none *pacer
	none.received(100)
}

// TestWhatIsPaced: watches and bulk answers from a server behind a thin line, and nothing else. The kernel does what it is asked
// for.
func TestWhatIsPaced(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Log("other kernels have no such bound")
		return
	}
	for name, bounded := range map[string]bool{"cloud": true, "coordinator": false} {
		t.Run(name, func(t *testing.T) {
			ca := newAuthority(t)
			const size = 8 << 20
			s := ca.serve(t, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != ownLease {
					_, _ = io.CopyN(w, zeroes{}, size)
				}
			}, nil)
			cfg := ca.files(t, "system:node:n1", s.URL)
			cfg.Bounded = bounded
			u := start(t, cfg)
			await(t, u, link.Up)
			for _, path := range []string{ownLease, "/api/v1/pods"} {
				if _, err := get(t, u.AsNode(), path); err != nil {
					t.Fatal(err)
				}
			}
			paced, grown := 0, 0
			srv := u.servers[0]
			srv.mu.Lock()
			defer srv.mu.Unlock()
			for c := range srv.conns {
				if c.pace != nil {
					paced++
					grown = max(grown, c.pace.window.size)
				}
			}
			if want := map[bool]int{true: 1}[bounded]; paced != want {
				t.Errorf("%d connections are paced, want %d", paced, want)
			}
			if bounded && grown <= firstWindow {
				t.Errorf("the window is %d after %d bytes", grown, size)
			}
		})
	}
}

type zeroes struct{}

func (zeroes) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// through is a connection inside another one.
type through struct{ net.Conn }

func (t through) NetConn() net.Conn { return t.Conn }

func TestPacerOf(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	raw, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = raw.Close() }()
	inside, outside := net.Pipe()
	defer func() { _, _ = inside.Close(), outside.Close() }()
	for name, test := range map[string]struct {
		conn net.Conn
		want bool
	}{
		"TCP":              {raw, runtime.GOOS == "linux"},
		"TLS with a proxy": {through{raw}, runtime.GOOS == "linux"},
		"no TCP":           {inside, false},
	} {
		if got := newPacer(test.conn, clock.RealClock{}, &leastTrip{}) != nil; got != test.want {
			t.Errorf("%s: paced %v, want %v", name, got, test.want)
		}
	}
}
