package conns

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"
)

func dial(t *testing.T, from, to string) net.Conn {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	c, err := d.DialContext(t.Context(), "tcp", to)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// closed reports whether the other side has closed a connection.
func closed(t *testing.T, c net.Conn) bool {
	t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
		t.Fatal(err)
	}
	_, err := c.Read(make([]byte, 1))
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		t.Fatal("neither served nor closed")
	}
	return err != nil
}

func TestPerSource(t *testing.T) {
	inner, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	told := make(chan netip.Addr, 10)
	const most = 3
	l := PerSource(inner, most, func(a netip.Addr) { told <- a })
	accepted := make(chan net.Conn, 100)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				close(accepted)
				return
			}
			_, _ = io.WriteString(c, "hello")
			accepted <- c
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		for c := range accepted {
			_ = c.Close()
		}
	})
	at := inner.Addr().String()
	for i := range most {
		if closed(t, dial(t, "127.0.0.1", at)) {
			t.Fatalf("connection %d of an address was closed", i)
		}
	}
	if !closed(t, dial(t, "127.0.0.1", at)) {
		t.Error("one more was served")
	}
	if got := <-told; got != netip.MustParseAddr("127.0.0.1") || l.Refused() != 1 {
		t.Errorf("told %s, counted %d", got, l.Refused())
	}
	if closed(t, dial(t, "127.0.0.2", at)) {
		t.Error("another address was refused")
	}
	c := <-accepted
	for range 2 { // closing twice gives one place back
		_ = c.Close()
	}
	if closed(t, dial(t, "127.0.0.1", at)) {
		t.Error("a place that was given back was not taken")
	}
	if !closed(t, dial(t, "127.0.0.1", at)) {
		t.Error("two places were given back for one")
	}
}

func TestSourceOf(t *testing.T) {
	for text, want := range map[string]string{
		"10.0.0.1:5": "10.0.0.1", "[::ffff:10.0.0.1]:5": "10.0.0.1", "[fd00:1:2:3:4::5]:6": "fd00:1:2:3::",
		"[fe80::1%eth0]:7": "fe80::",
	} {
		address, err := net.ResolveTCPAddr("tcp", text)
		if err != nil {
			t.Fatal(err)
		}
		if got, ok := sourceOf(fakeConn{address}); !ok || got.String() != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
	if _, ok := sourceOf(fakeConn{&net.UnixAddr{}}); ok {
		t.Error("a Unix socket has an address")
	}
}

type fakeConn struct{ from net.Addr }

func (c fakeConn) RemoteAddr() net.Addr { return c.from }

func (fakeConn) Read([]byte) (int, error)         { return 0, io.EOF }
func (fakeConn) Write([]byte) (int, error)        { return 0, io.EOF }
func (fakeConn) Close() error                     { return nil }
func (fakeConn) LocalAddr() net.Addr              { return nil }
func (fakeConn) SetDeadline(time.Time) error      { return nil }
func (fakeConn) SetReadDeadline(time.Time) error  { return nil }
func (fakeConn) SetWriteDeadline(time.Time) error { return nil }
