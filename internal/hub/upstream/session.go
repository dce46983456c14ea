package upstream

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"yurtcoordinator/internal/hub/link"
)

// By says with which credentials a session makes a request.
type By uint8

const (
	// Caller shows no client certificate, because the request has credentials of its own.
	Caller By = iota
	// Node shows the node's certificate.
	Node
	// Fresh shows the node's certificate, on a new connection that only this request uses, even while the link is down.
	Fresh
)

const (
	protocolHTTP1 = "http/1.1"
	protocolHTTP2 = "h2"

	// dialTimeout and handshakeTimeout bound the two steps of connecting. Each is long enough even if queues delay packets by 4 s
	// and one packet is lost. If the link goes down, both steps end earlier, except the dial for a request with a connection of
	// its own (Fresh).
	dialTimeout      = 10 * time.Second
	handshakeTimeout = 10 * time.Second
	// unackedTimeout is how long TCP keeps a connection whose data stays unacknowledged. It is for a single stuck connection,
	// because the hub resets all connections when the link goes down.
	unackedTimeout = 12 * time.Second
	// nearTimeout is unackedTimeout for a LAN. There an acknowledgement takes a millisecond, and the kernel sends it even if the
	// program is busy.
	nearTimeout = 3 * time.Second
	// pingAfter is how long an HTTP/2 connection may be quiet before the hub pings it; pingTimeout is how long the answer may
	// take. Pings find a single stuck connection while no request is sent over it. A connection with a watch gets a bookmark
	// each minute, so the hub pings it only when a bookmark is missing.
	pingAfter   = 75 * time.Second
	pingTimeout = 15 * time.Second
	// idleTimeout is how long an unused connection is kept: for about that time, its pings cost less than a new connection.
	idleTimeout = 90 * time.Second
)

// errReset is the error of a connection that a Reset ended while it was being opened.
var errReset = errors.New("the connection was reset while it was opened")

// session is the connections to one server, over one way. Safe for concurrent use.
type session struct {
	of *server

	transports atomic.Pointer[transports]
	http1Only  atomic.Bool // set if the server turns out to have no HTTP/2; false again after each Reset

	mu       sync.Mutex
	conns    map[*conn]struct{}
	epoch    context.Context // ends with a Reset, and all dials with it
	endEpoch context.CancelCauseFunc
	closed   bool
}

// newSession returns a session that has no connection yet. It does no I/O.
func newSession(of *server) *session {
	s := &session{of: of, conns: map[*conn]struct{}{}}
	s.epoch, s.endEpoch = context.WithCancelCause(context.Background())
	return s
}

// Renew makes later requests use new connections with these credentials. Requests under way continue on theirs. The first call of
// Renew must come before the first request.
func (s *session) Renew(with *Credentials) {
	if old := s.transports.Swap(s.newTransports(with)); old != nil {
		old.closeIdle()
	}
}

// RoundTrip makes a request over one of the lanes. If nothing of it can have been sent, NotSent is true for the error.
func (s *session) RoundTrip(by By, over lane, req *http.Request) (*http.Response, error) {
	t := s.transports.Load()
	switch by {
	case Fresh:
		return t.fresh.RoundTrip(req)
	case Node:
		return t.node.by(s, over, req)
	default:
		return t.caller.by(s, over, req)
	}
}

// Ask asks the server for a sign of life over an open HTTP/2 connection. If how is link.Knock, Ask knocks, and pings only if the
// knock gets no answer. Otherwise it pings. The result there is false if no open connection accepts requests.
func (s *session) Ask(ctx context.Context, how link.Ask) (there bool, err error) {
	c := s.transports.Load().node.any()
	if c.ClientConn == nil || s.http1Only.Load() {
		return false, nil
	}
	knocked := false
	if how == link.Knock {
		var came bool
		if came, knocked = c.knock(ctx); came {
			return true, nil
		}
	}
	start := s.of.cfg.Ends.Running()
	if err := c.Ping(ctx); err != nil {
		return true, err
	}
	c.pinged(s.of.cfg.Ends.Since(start), knocked)
	s.of.metrics.spent.pinged()
	return true, nil
}

// Reset ends all connections at once, and all requests that use one or wait for one. The kernel sends none of the bytes that it
// still holds.
func (s *session) Reset(cause error) {
	s.mu.Lock()
	s.endEpoch(cause)
	s.epoch, s.endEpoch = context.WithCancelCause(context.Background())
	s.mu.Unlock()
	s.http1Only.Store(false)
	if t := s.transports.Load(); t != nil {
		t.retire() // a connection notices its end only a moment later
	}
	s.end(func(*conn) bool { return true })
}

// Close is a last Reset: all later calls fail with ErrNotRunning.
func (s *session) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.Reset(ErrNotRunning)
	if t := s.transports.Load(); t != nil {
		t.closeIdle()
	}
}

// Remotes returns the addresses to which connections are open.
func (s *session) Remotes() (all []netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen := map[netip.Addr]bool{}
	for c := range s.conns {
		if at := remote(c); at.IsValid() && !seen[at] {
			seen[at] = true
			all = append(all, at)
		}
	}
	return all
}

// Leave resets the connections to one address.
func (s *session) Leave(address netip.Addr) {
	s.end(func(c *conn) bool { return remote(c) == address })
}

// remote returns the address to which a connection leads; the zero Addr if it is none.
func remote(c *conn) netip.Addr {
	if tcp, ok := c.RemoteAddr().(*net.TCPAddr); ok {
		return tcp.AddrPort().Addr().Unmap()
	}
	return netip.Addr{}
}

// end resets connections.
func (s *session) end(which func(*conn) bool) {
	var open []*conn
	s.mu.Lock()
	for c := range s.conns {
		if which(c) {
			open = append(open, c)
		}
	}
	s.mu.Unlock()
	for _, c := range open {
		_ = c.reset() // it fails only if the connection is closed already
	}
}

// dial opens a TLS connection. Its errors are ConnectErrors.
func (s *session) dial(ctx context.Context, config *tls.Config, multiplexed, fresh bool) (*tls.Conn, error) {
	c, err := s.connect(ctx, config, multiplexed, fresh)
	if err == nil {
		return c, nil
	}
	err = &ConnectError{Server: s.of.addr, Err: err}
	if !fresh && !errors.Is(err, errReset) && !errors.Is(err, ErrNotRunning) && !errors.Is(err, context.Canceled) {
		s.of.suspect(err)
	}
	return nil, err
}

func (s *session) connect(ctx context.Context, config *tls.Config, multiplexed, fresh bool) (*tls.Conn, error) {
	s.mu.Lock()
	epoch := s.epoch
	s.mu.Unlock()
	dialing, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	if !fresh {
		defer context.AfterFunc(epoch, cancel)()
	}
	address, err := s.of.address()
	var raw net.Conn
	if err == nil {
		raw, err = s.of.cfg.DialContext(dialing, "tcp", address)
	}
	if err != nil {
		if epoch.Err() != nil && !fresh {
			return nil, fmt.Errorf("%w: %w", errReset, err)
		}
		return nil, err
	}
	c := newConn(raw, s, multiplexed, fresh)
	if err := s.keep(c, fresh); err != nil {
		return nil, errors.Join(err, c.reset())
	}
	shaking, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	secured := tls.Client(c, config)
	if err := secured.HandshakeContext(shaking); err != nil {
		_ = c.reset() // the handshake's error says it all
		if ctx.Err() == nil && shaking.Err() != nil {
			err = fmt.Errorf("no TLS handshake within %v: %w", handshakeTimeout, err)
		}
		return nil, err
	}
	c.connected()
	c.verified.Store(true)
	s.of.hears()
	return secured, nil
}

// keep adds a connection to conns. It refuses the connection if the session is closed or the link is down.
func (s *session) keep(c *conn, fresh bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrNotRunning
	}
	if !fresh && s.of.state() == link.Down {
		return fmt.Errorf("%w: the link went down", errReset)
	}
	s.conns[c] = struct{}{}
	return nil
}

func (s *session) forget(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
}

// transports are the connections to one server with one set of credentials.
type transports struct {
	node, caller *lanes
	fresh        *http.Transport // a new connection for each request, as the node
}

// retire makes all connections of HTTP/2 take no more requests.
func (t *transports) retire() {
	for _, l := range []*lanes{t.node, t.caller} {
		for _, s := range l.conns {
			s.retire()
		}
	}
}

func (s *session) newTransports(c *Credentials) *transports {
	t := &transports{node: s.newLanes(c, true), caller: s.newLanes(c, false)}
	t.fresh = s.newHTTP1(c.tls(s.of.name, true, protocolHTTP1), true)
	return t
}

func (s *session) newHTTP1(config *tls.Config, fresh bool) *http.Transport {
	t := &http.Transport{
		DialTLSContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return s.dial(ctx, config, false, fresh)
		},
		DisableCompression:  true,
		DisableKeepAlives:   fresh,
		MaxIdleConnsPerHost: 64,
		IdleConnTimeout:     idleTimeout,
		Protocols:           new(http.Protocols),
	}
	t.Protocols.SetHTTP1(true)
	return t
}

func (t *transports) closeIdle() {
	t.node.closeIdle()
	t.caller.closeIdle()
	t.fresh.CloseIdleConnections()
}
