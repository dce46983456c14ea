package conns

import (
	"errors"
	"io"
	"net"
	"testing"
	"time"
)

func dial(t *testing.T, from, to string) net.Conn {
	t.Helper()
	var d net.Dialer
	if from != "" {
		d.LocalAddr = &net.TCPAddr{IP: net.ParseIP(from)}
	}
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
	if err := c.SetReadDeadline(time.Now().Add(patient)); err != nil {
		t.Fatal(err)
	}
	_, err := c.Read(make([]byte, 1))
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		t.Fatal("neither served nor closed")
	}
	return err != nil
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
