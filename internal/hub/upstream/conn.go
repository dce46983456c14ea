package upstream

import (
	"net"
	"sync"
	"sync/atomic"
)

// conn is a connection that its session keeps track of, so that it can be reset.
type conn struct {
	net.Conn
	session *session
	// multiplexed says that the connection is for HTTP/2, which closes it only when it is idle or dead. Close therefore resets
	// it, so that the kernel sends none of its remaining bytes late.
	multiplexed bool
	verified    atomic.Bool // the TLS handshake is over, so what arrives is from the server
	// kind is the kind of the bytes that the connection carries now: connecting, probing, or framing, which here includes bodies.
	kind atomic.Uint32
	once sync.Once
	err  error
}

// newConn returns a connection whose TLS handshake is about to begin.
func newConn(raw net.Conn, s *session, multiplexed, probe bool) *conn {
	c := &conn{Conn: raw, session: s, multiplexed: multiplexed}
	c.is(connecting)
	if probe {
		c.is(probing)
	}
	return c
}

func (c *conn) is(k kind) { c.kind.Store(uint32(k)) }

// connected records that the TLS handshake is over: later bytes belong to requests, unless the connection is a probe's.
func (c *conn) connected() { c.kind.CompareAndSwap(uint32(connecting), uint32(framing)) }

// Read implements net.Conn.
func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.session.of.metrics.received.Add(uint64(n))
	if k := c.kind.Load(); k != uint32(framing) {
		c.session.of.metrics.spent.received[k].Add(uint64(n))
	}
	if n > 0 && c.verified.Load() {
		c.session.of.hears()
	}
	return n, err
}

// Write implements net.Conn.
func (c *conn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.session.of.metrics.sent.Add(uint64(n))
	if k := c.kind.Load(); k != uint32(framing) {
		c.session.of.metrics.spent.sent[k].Add(uint64(n))
	}
	return n, err
}

// Close closes the connection: a multiplexed one by a reset, any other in an orderly way.
func (c *conn) Close() error { return c.close(c.multiplexed) }

// reset closes the connection and makes the kernel drop the bytes that it still holds for it.
func (c *conn) reset() error { return c.close(true) }

func (c *conn) close(reset bool) error {
	c.once.Do(func() {
		c.session.forget(c)
		if reset {
			if tcp, ok := c.Conn.(interface{ SetLinger(sec int) error }); ok {
				_ = tcp.SetLinger(0) // fails only on a connection that is gone already
			}
		}
		c.err = c.Conn.Close()
	})
	return c.err
}
