package conns

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

// beside takes what asks for "beside" to a server of its own.
type beside struct {
	server tls.Certificate
	mu     sync.Mutex
	names  []string
	ended  sync.WaitGroup
}

func (b *beside) serve(ctx context.Context, name string, c net.Conn) {
	b.ended.Add(1)
	defer b.ended.Done()
	b.mu.Lock()
	b.names = append(b.names, name)
	b.mu.Unlock()
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	secure := tls.Server(c, &tls.Config{Certificates: []tls.Certificate{b.server}})
	if _, err := io.WriteString(secure, "b"); err != nil {
		return
	}
	_, _ = io.Copy(secure, secure) // until the client leaves
}

func newBeside(t *testing.T) *beside { return &beside{server: selfMade(t, "beside")} }

func (b *beside) aside() *Aside {
	return &Aside{Takes: func(name string) bool { return name == "beside" }, Serve: b.serve, PerSource: 2, All: 3}
}

// asks returns the connection of a client that asks for a name, and who answers.
func asks(t *testing.T, from, at, name string) (*tls.Conn, string, error) {
	t.Helper()
	c := tls.Client(dial(t, from, at), &tls.Config{
		ServerName: name, InsecureSkipVerify: true, Certificates: []tls.Certificate{selfMade(t, "friend")},
	})
	_ = c.SetDeadline(time.Now().Add(patient))
	one := make([]byte, 1)
	_, err := io.ReadFull(c, one)
	return c, string(one), err
}

func TestAside(t *testing.T) {
	b := newBeside(t)
	g := newGated(t, func(c *GateConfig) { c.Aside = b.aside() })
	for name, want := range map[string]string{"beside": "b", "": "h", "other": "h", "beside.other": "h"} {
		c, who, err := asks(t, "127.0.0.1", g.Addr().String(), name)
		if who != want || err != nil {
			t.Errorf("%q: %q, %v, want %q", name, who, err, want)
		}
		if shown := c.ConnectionState().PeerCertificates[0].Subject.CommonName; (shown == "beside") != (want == "b") {
			t.Errorf("%q: %q answered", name, shown)
		}
	}
	// What follows goes the same way, however much it is.
	c, _, err := asks(t, "127.0.0.1", g.Addr().String(), "beside")
	if err != nil {
		t.Fatal(err)
	}
	said := strings.Repeat("x", 100<<10)
	go func() { _, _ = io.WriteString(c, said) }()
	heard := make([]byte, len(said))
	if _, err := io.ReadFull(c, heard); err != nil || string(heard) != said {
		t.Errorf("%d bytes came back, %v", len(heard), err)
	}
	// The end of the Gate is theirs.
	if err := g.Close(); err != nil {
		t.Error(err)
	}
	if !closed(t, c.NetConn()) {
		t.Error("it outlives the Gate")
	}
	b.ended.Wait()
}

// TestAsideInPieces: a first message may come in many pieces, and must come in time, and end.
func TestAsideInPieces(t *testing.T) {
	b := newBeside(t)
	g := newGated(t, func(c *GateConfig) { c.Aside, c.Handshake = b.aside(), 2*time.Second })
	client := tls.Client(pieces{dial(t, "127.0.0.1", g.Addr().String())}, &tls.Config{
		ServerName: "beside", InsecureSkipVerify: true,
	})
	one := make([]byte, 1)
	if _, err := io.ReadFull(client, one); err != nil || one[0] != 'b' {
		t.Errorf("%q, %v", one, err)
	}

	for name, tt := range map[string]struct {
		begins string
		more   bool // and so on
		why    Reason
	}{
		"half a message":     {"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", false, Slow},
		"nothing":            {"", false, Slow},
		"a message of 64 KB": {"\x16\x03\x01\x40\x00\x01\x00\xff\xff" + strings.Repeat("x", 16<<10-4), true, Broken},
		"something else":     {"GET / HTTP/1.1\r\n\r\n", false, Broken},
	} {
		before := g.count(tt.why)
		c := dial(t, "127.0.0.1", g.Addr().String())
		_, _ = io.WriteString(c, tt.begins)
		if tt.more {
			_, _ = io.WriteString(c, "\x16\x03\x01\x40\x00"+strings.Repeat("x", 16<<10))
		}
		if !closed(t, c) { // after an alert, perhaps
			t.Errorf("%s: it was answered", name)
		}
		g.comes(tt.why, before+1)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.names) != 1 {
		t.Errorf("%q went aside", b.names)
	}
}

// pieces sends each byte by itself.
type pieces struct{ net.Conn }

func (p pieces) Write(all []byte) (int, error) {
	for i := range all {
		if _, err := p.Conn.Write(all[i : i+1]); err != nil {
			return i, err
		}
	}
	return len(all), nil
}

// TestAsidePlaces: connections that went aside have places of their own.
func TestAsidePlaces(t *testing.T) {
	b := newBeside(t)
	g := newGated(t, func(c *GateConfig) { c.Aside, c.PerSource = b.aside(), 2 })
	var first *tls.Conn
	for i, from := range []string{"127.0.0.1", "127.0.0.1", "127.0.0.1", "127.0.0.2"} {
		c, who, err := asks(t, from, g.Addr().String(), "beside")
		if want := i != 2; (err == nil && who == "b") != want {
			t.Errorf("connection %d: %q, %v", i, who, err)
		}
		if i == 0 {
			first = c
		}
	}
	g.comes(TooMany, 1)
	if _, who, err := asks(t, "127.0.0.1", g.Addr().String(), ""); who != "h" || err != nil {
		t.Errorf("who does not go aside: %q, %v", who, err)
	}
	// One more than there is room for: the oldest of who has most has to go.
	if _, who, err := asks(t, "127.0.0.3", g.Addr().String(), "beside"); who != "b" || err != nil {
		t.Errorf("a newcomer: %q, %v", who, err)
	}
	if !closed(t, first.NetConn()) {
		t.Error("the oldest has its place still")
	}
	g.comes(TooMany, 2)
}
