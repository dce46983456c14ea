package relay

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"golang.org/x/time/rate"

	"yurtcoordinator/internal/conns"
	"yurtcoordinator/internal/ends"
)

const coordinatorName = "p1.coordinator"

// passed is a hub's port, from which connections are passed on to a coordinator, and the coordinator, which knows the hub n1.
type passed struct {
	*Passer
	t     *testing.T
	ca    *authority
	at    string
	gone  atomic.Bool // the coordinator is not known to live
	close func() error
}

func newPassed(t *testing.T) *passed {
	t.Helper()
	p := &passed{t: t, ca: newAuthority(t)}
	known := p.ca.hub(t, "openyurt:hub:coordinator")
	coordinator := conns.NewGate(listen(t), conns.GateConfig{
		TLS: known.Serving(), Handshake: 5 * time.Second, Waiting: 64, WaitingPerSource: 64, PerSource: 64,
	})
	p.Passer = NewPasser(PasserConfig{
		Named: func(name string) bool { return name == coordinatorName },
		Dial: func(ctx context.Context, name string) (net.Conn, error) {
			if p.gone.Load() || name != coordinatorName {
				return nil, errors.New("gone")
			}
			return (&net.Dialer{}).DialContext(ctx, "tcp", coordinator.Addr().String())
		},
	})
	hub := conns.NewGate(listen(t), conns.GateConfig{
		TLS: p.ca.hub(t, "openyurt:hub:n2").Serving(), Handshake: 5 * time.Second, Waiting: 64, WaitingPerSource: 64,
		PerSource: 64, Aside: p.Aside(),
	})
	p.at, p.close = hub.Addr().String(), hub.Close
	go serve(hub, "n")
	go serve(coordinator, "c")
	t.Cleanup(func() {
		_ = hub.Close()
		_ = coordinator.Close()
	})
	return p
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// serve greets each connection with a letter, and repeats what it says.
func serve(l net.Listener, letter string) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer func() { _ = c.Close() }()
			if _, err := io.WriteString(c, letter); err == nil {
				_, _ = io.Copy(c, c)
			}
		}()
	}
}

// asks connects as a hub that its pool knows, or as nobody, and returns who greets it.
func (p *passed) asks(name string, known bool) (*tls.Conn, string, error) {
	p.t.Helper()
	config := showing(p.ca.hub(p.t, "openyurt:hub:n1"))
	if !known {
		config.GetClientCertificate = nil
	}
	config.ServerName = name
	raw, err := (&net.Dialer{}).DialContext(p.t.Context(), "tcp", p.at)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = raw.Close() })
	_ = raw.SetDeadline(time.Now().Add(20 * time.Second))
	conn, letter := tls.Client(raw, config), make([]byte, 1)
	if _, err = conn.Write(nil); err == nil {
		_, err = io.ReadFull(conn, letter)
	}
	return conn, string(letter), err
}

func (p *passed) counted(result string) int {
	return int(testutil.ToFloat64(p.tried.WithLabelValues(result)))
}

func TestPassedOn(t *testing.T) {
	p := newPassed(t)
	conn, who, err := p.asks(coordinatorName, true)
	if who != "c" || err != nil {
		t.Fatalf("the coordinator's name: %q, %v", who, err)
	}
	said := strings.Repeat("x", 300<<10)
	go func() { _, _ = io.WriteString(conn, said) }()
	heard := make([]byte, len(said))
	if _, err := io.ReadFull(conn, heard); err != nil || string(heard) != said {
		t.Errorf("%d bytes came back, %v", len(heard), err)
	}
	for _, way := range []direction{upwards, downwards} {
		waitFor(t, string(way)+": all bytes are counted, which they are once they are on their way", func() bool {
			return testutil.ToFloat64(p.bytes.WithLabelValues(string(way))) >= float64(len(said))
		})
	}
	for _, name := range []string{"", "p2.coordinator", "x." + coordinatorName} {
		if _, who, err := p.asks(name, true); who != "n" || err != nil {
			t.Errorf("%q: %q, %v", name, who, err)
		}
	}
	// Who is nobody to the coordinator hears so from it.
	if _, _, err := p.asks(coordinatorName, false); err == nil || !strings.Contains(err.Error(), "certificate required") {
		t.Errorf("without a certificate: %v", err)
	}
	if p.counted("ok") != 2 {
		t.Errorf("%d were counted", p.counted("ok"))
	}
	p.gone.Store(true)
	if _, _, err := p.asks(coordinatorName, true); err == nil {
		t.Error("passed on, though no coordinator lives")
	}
	if p.counted("unreached") != 1 {
		t.Errorf("%d were counted as unreached", p.counted("unreached"))
	}
	if err := p.close(); err != nil { // it ends what is passed on, and waits for that
		t.Error(err)
	}
	if n := testutil.ToFloat64(p.open); n != 0 {
		t.Errorf("%v are passed on still", n)
	}
}

// TestPassedOnTooFast: who connects again and again gets some connections a second. Others get theirs.
func TestPassedOnTooFast(t *testing.T) {
	p := newPassed(t)
	p.allotted(address("127.0.0.1:1")).opens = rate.NewLimiter(0, 2)
	for i := range 5 {
		if _, _, err := p.asks(coordinatorName, true); (err == nil) != (i < 2) {
			t.Errorf("connection %d: %v", i, err)
		}
	}
	if p.counted("too-fast") != 3 || p.counted("ok") != 2 {
		t.Errorf("%d passed on, %d too fast", p.counted("ok"), p.counted("too-fast"))
	}
	other := p.allotted(address("127.0.0.9:1"))
	if !other.opens.Allow() || other == p.allotted(address("127.0.0.1:1")) || other != p.allotted(address("127.0.0.9:2")) {
		t.Error("another address has no connections of its own")
	}
}

type addressed struct {
	net.Conn
	from string
}

func address(from string) net.Conn { return addressed{from: from} }

func (a addressed) RemoteAddr() net.Addr {
	at, _ := net.ResolveTCPAddr("tcp", a.from)
	return at
}

// free is a toll that nobody pays.
type free struct{}

func (free) wait(context.Context, int) error { return nil }
func (free) paid(direction, int) error       { return nil }

// TestATunnelEndsWhenNothingComes: a byte is enough to keep one, either way.
func TestATunnelEndsWhenNothingComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked, asker := net.Pipe()
		other, server := net.Pipe()
		defer func() { _, _ = asker.Close(), server.Close() }()
		ended := make(chan error, 1)
		go func() { ended <- carry(t.Context(), asked, &bytes.Buffer{}, other, free{}, ends.Clock{}) }()
		last := time.Now()
		for _, way := range [][2]net.Conn{{asker, server}, {server, asker}, {asker, server}} {
			time.Sleep(idleTimeout - time.Second)
			last = time.Now()
			if _, err := way[0].Write([]byte("x")); err != nil {
				t.Fatal(err)
			}
			if _, err := way[1].Read(make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
		}
		if err := <-ended; !errors.Is(err, errIdle) || time.Since(last) != idleTimeout {
			t.Errorf("it ended after %v of silence: %v", time.Since(last), err)
		}
	})
}
