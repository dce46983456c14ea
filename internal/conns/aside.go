package conns

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"time"
)

// Aside takes over connections that ask for certain server names. To find the name, a Gate reads a client's first TLS message
// before it answers anything. Serve reads that message again from its connection. All fields are required.
type Aside struct {
	// Takes reports whether connections that ask for a server name go aside. It must not block.
	Takes func(serverName string) bool
	// Serve serves one connection until ctx ends, or a moment longer. It need not close the connection.
	Serve func(ctx context.Context, serverName string, c net.Conn)
	// PerSource bounds the connections from one address that are taken over, All those from all addresses, as in GateConfig.
	PerSource, All int
}

// maxHello bounds a client's first message, in bytes. A message with post-quantum keys is 2 KB.
const maxHello = 16 << 10

var (
	errAside   = errors.New("it goes aside")
	errTooLong = errors.New("its first message is too long")
)

// hello is a connection that keeps its client's first message until the message has been read.
type hello struct {
	net.Conn
	kept  bytes.Buffer
	heard bool // nothing is kept from now on
	taken bool // nothing is answered from now on
	name  string
}

// Read implements net.Conn.
func (h *hello) Read(p []byte) (int, error) {
	n, err := h.Conn.Read(p)
	if h.heard {
		return n, err
	}
	if h.kept.Len()+n > maxHello {
		return 0, errTooLong
	}
	h.kept.Write(p[:n])
	return n, err
}

// Write implements net.Conn.
func (h *hello) Write(p []byte) (int, error) {
	if h.taken {
		return len(p), nil // an alert that says that the handshake is broken off
	}
	return h.Conn.Write(p)
}

// heeding returns a TLS configuration that stops the handshake of a connection that goes aside. Its connections must be hellos.
func (a *Aside) heeding(c *tls.Config) *tls.Config {
	heeding, own := c.Clone(), c.GetConfigForClient
	heeding.GetConfigForClient = func(info *tls.ClientHelloInfo) (*tls.Config, error) {
		first, ok := info.Conn.(*hello)
		switch {
		case ok && a.Takes(info.ServerName):
			first.name, first.taken = info.ServerName, true
			return nil, errAside
		case ok:
			first.heard, first.kept = true, bytes.Buffer{}
		}
		if own == nil {
			return nil, nil //nolint:nilnil // as crypto/tls has it: the configuration stays
		}
		return own(info)
	}
	return heeding
}

// putAside has a connection served that goes aside.
func (g *Gate) putAside(h *handshake, first *hello) {
	defer func() { _ = h.conn.Close() }()
	if g.leave(h) {
		g.reportRefusal(h.conn, Slow, errGaveWay)
		return
	}
	leave, ok := place(g, g.aside, h.source, h.conn, errCrowded)
	if !ok {
		return
	}
	defer leave()
	_ = h.conn.SetDeadline(time.Time{})
	g.cfg.Aside.Serve(g.closed, first.name, &again{Conn: h.conn, first: &first.kept})
}

// again is a connection whose beginning is read a second time.
type again struct {
	net.Conn
	first *bytes.Buffer
}

// Read implements net.Conn.
func (a *again) Read(p []byte) (int, error) {
	if a.first.Len() > 0 {
		return a.first.Read(p)
	}
	return a.Conn.Read(p)
}

// CloseWrite says that nothing follows.
func (a *again) CloseWrite() error {
	if c, ok := a.Conn.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return errors.ErrUnsupported
}

const (
	// hearFor and hearBytes bound what is read from the other side before a connection is closed.
	hearFor   = 500 * time.Millisecond
	hearBytes = 16 << 10
)

// HearOut closes the sending side, and for a moment reads what the other side still sends. If the connection were closed at once,
// the other side's kernel would drop the last bytes that were sent to it.
func HearOut(c net.Conn) { hearOut(c, hearFor) }

func hearOut(c net.Conn, atMost time.Duration) {
	tcp, ok := c.(interface{ CloseWrite() error })
	if !ok || tcp.CloseWrite() != nil {
		return
	}
	_ = c.SetReadDeadline(time.Now().Add(atMost))
	_, _ = io.CopyN(io.Discard, c, hearBytes)
}
