// Package conns bounds the connections to a server: Gate those of one address, and those whose TLS handshake is not over;
// Local those on the loopback interface; Newcomers those there whose client has not proved who it is.
//
// Invariants: nobody waits for another address. A connection too many costs no memory of HTTP. Where a handshake or a short
// request is waited for, the slowest loses its place, and the newest does not: whoever only holds places keeps nobody out.
package conns

import (
	"net"
	"net/http"
	"net/netip"
)

// sourceOf returns the address that a connection comes from. A Unix socket has none.
func sourceOf(c net.Conn) (netip.Addr, bool) {
	tcp, ok := c.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return netip.Addr{}, false
	}
	return Source(tcp.AddrPort().Addr()), true
}

// Source returns what stands for an address where places are counted: whoever has an IPv6 address of a /64 has them all.
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
	leave func()
}

// Close implements net.Conn.
func (c *conn) Close() error {
	err := c.Conn.Close()
	c.leave()
	return err
}
