// Package conns bounds the connections to a server:
//   - Gate bounds the connections of each client, known by its address or by the name in its certificate, and those of all
//     clients. It also bounds the connections whose TLS handshake is not over, and those whose client has not authenticated.
//   - Local bounds the connections on the loopback interface.
//   - Newcomers bounds those connections on the loopback interface whose client has not authenticated.
//
// Invariants: no client waits because of another address. A surplus connection uses no memory of the HTTP server. Where the
// server waits for a handshake or a short request, a surplus connection takes the place of an old one. So a client that only
// holds places keeps nobody out.
package conns

import (
	"net"
	"net/http"
	"net/netip"
	"sync"
)

// sourceOf returns the address that a connection comes from. A Unix socket has none.
func sourceOf(c net.Conn) (netip.Addr, bool) {
	tcp, ok := c.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return netip.Addr{}, false
	}
	return Source(tcp.AddrPort().Addr()), true
}

// addressOf returns the very address that a connection comes from; the zero Addr if it has none.
func addressOf(c net.Conn) netip.Addr {
	at, err := netip.ParseAddrPort(c.RemoteAddr().String())
	if err != nil {
		return netip.Addr{}
	}
	return at.Addr().Unmap()
}

// Source returns the key under which an address's connections are counted. All IPv6 addresses of a /64 share one key, because a
// client that has one of them has them all.
func Source(address netip.Addr) netip.Addr {
	address = address.Unmap().WithZone("")
	if prefix, err := address.Prefix(64); err == nil && address.Is6() {
		return prefix.Addr()
	}
	return address
}

// SourceOf returns the Source of a request's client; the zero Addr if it has none.
func SourceOf(r *http.Request) netip.Addr {
	at, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	return Source(at.Addr())
}

// conn tells when it is closed.
type conn struct {
	net.Conn

	mu     sync.Mutex
	leave  func() // nil means that nothing is told
	closed bool
}

// onClose sets what Close calls, and calls it at once if the connection is closed already.
func (c *conn) onClose(leave func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.leave = leave; c.closed {
		leave()
	}
}

// Close implements net.Conn.
func (c *conn) Close() error {
	err := c.Conn.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed = true; c.leave != nil {
		c.leave()
	}
	return err
}
