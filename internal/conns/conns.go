// Package conns bounds the connections that one address may have to a server.
//
// Invariants: nobody waits for another address. A connection too many is closed before a byte of it is read, so it costs no
// memory of TLS or HTTP.
package conns

import (
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
)

// Listener is a net.Listener that bounds the connections of each address.
type Listener struct {
	net.Listener
	most    int
	refused func(source netip.Addr)
	count   atomic.Int64

	mu   sync.Mutex
	open map[netip.Addr]int // without zeros
}

// PerSource returns a listener that closes a connection of an address which has most already. It calls refused, which
// must not block, for each that it closes; nil means that nobody is told.
func PerSource(l net.Listener, most int, refused func(source netip.Addr)) *Listener {
	if refused == nil {
		refused = func(netip.Addr) {}
	}
	return &Listener{Listener: l, most: most, refused: refused, open: map[netip.Addr]int{}}
}

// Refused returns how many connections were closed because their address had too many.
func (l *Listener) Refused() int64 { return l.count.Load() }

// Accept implements net.Listener.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		source, known := sourceOf(c)
		if !known {
			return c, nil
		}
		if l.enter(source) {
			return &conn{Conn: c, leave: sync.OnceFunc(func() { l.leave(source) })}, nil
		}
		_ = c.Close()
		l.count.Add(1)
		l.refused(source)
	}
}

// sourceOf returns the address that a connection comes from. A Unix socket has none.
func sourceOf(c net.Conn) (netip.Addr, bool) {
	tcp, ok := c.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return netip.Addr{}, false
	}
	address := tcp.AddrPort().Addr().Unmap().WithZone("")
	if address.Is6() { // whoever has an address of a /64 has them all
		prefix, err := address.Prefix(64)
		if err != nil {
			return netip.Addr{}, false
		}
		address = prefix.Addr()
	}
	return address, true
}

func (l *Listener) enter(source netip.Addr) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open[source] >= l.most {
		return false
	}
	l.open[source]++
	return true
}

func (l *Listener) leave(source netip.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open[source]--; l.open[source] == 0 {
		delete(l.open, source)
	}
}

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
