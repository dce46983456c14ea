package conns

import (
	"context"
	"crypto/tls"
	"errors"
	"math"
	"net"
	"net/netip"
	"sync/atomic"
)

// Newcomers is a listener on a loopback address, where all of the host's programs share one source address. A connection is a
// newcomer until the server says that its client has authenticated. A newcomer beyond the bound closes the oldest newcomer of the
// user who has the most. So a client that authenticates with its first request is served, even if others hold connections open,
// during the handshake or after it.
type Newcomers struct {
	net.Listener
	all     *tally[string]
	refused func(from netip.AddrPort, why Reason, err error)
	owner   func(net.Conn) string
}

// NewNewcomers returns a listener that keeps at most the given number of newcomers. It calls refused for each one that it closes.
// A nil refused means that nothing is called. refused must not block.
func NewNewcomers(l net.Listener, most int, refused func(from netip.AddrPort, why Reason, err error)) *Newcomers {
	if refused == nil {
		refused = func(netip.AddrPort, Reason, error) {}
	}
	return &Newcomers{Listener: l, all: newTally[string](math.MaxInt, most), refused: refused, owner: ownerOf}
}

// ownerOf returns the user whose process has made a connection; empty if that can't be found out.
func ownerOf(c net.Conn) string {
	owner, err := OwnerOf(c.LocalAddr(), c.RemoteAddr())
	if err != nil {
		return ""
	}
	return owner
}

var errNotProved = errors.New("too many clients had not said who they are, and of all users this one's had the most")

// Accept implements net.Listener.
func (n *Newcomers) Accept() (net.Conn, error) {
	c, err := n.Listener.Accept()
	if err != nil {
		return nil, err
	}
	made := &Newcomer{conn: conn{Conn: c}, Owner: n.owner(c)}
	leave, crowded, _ := n.all.enter(made.Owner, c) // one user may have all
	made.onClose(leave)
	if crowded != nil {
		_ = crowded.Close()
		n.refused(addrPort(crowded), TooMany, errNotProved)
	}
	return made, nil
}

// Newcomer is a connection that Newcomers has accepted, or a Gate with a bound for those.
type Newcomer struct {
	conn
	// Owner is the UID of the process that has made the connection; empty if unknown, or if a Gate has accepted it.
	Owner  string
	proved atomic.Bool
	letIn  func() bool // takes a place among the authenticated, or closes the connection; nil means that these are not counted
}

// Prove records that the client has authenticated. The connection no longer counts as a newcomer. A Gate counts it as its
// client's from now on, and closes it if that client has too many.
func (c *Newcomer) Prove() {
	if !c.proved.CompareAndSwap(false, true) {
		return
	}
	if c.letIn != nil {
		c.letIn()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.leave != nil {
		c.leave()
	}
}

// Proved reports whether the client has authenticated.
func (c *Newcomer) Proved() bool { return c.proved.Load() }

type newcomerKey struct{}

// WithNewcomer is for http.Server.ConnContext. NewcomerOf then finds the Newcomer of a request's connection.
func WithNewcomer(ctx context.Context, c net.Conn) context.Context {
	if secure, ok := c.(*tls.Conn); ok {
		c = secure.NetConn()
	}
	if first, ok := c.(*hello); ok {
		c = first.Conn
	}
	if made, ok := c.(*Newcomer); ok {
		return context.WithValue(ctx, newcomerKey{}, made)
	}
	return ctx
}

// NewcomerOf returns the connection of a request; nil if it has never been a newcomer.
func NewcomerOf(ctx context.Context) *Newcomer {
	made, _ := ctx.Value(newcomerKey{}).(*Newcomer)
	return made
}
