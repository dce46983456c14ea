package conns

import (
	"container/list"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"
)

// Reason is why a Gate refused a connection.
type Reason string

// The reasons.
const (
	NoCertificate Reason = "no-certificate" // the client shows none
	Unknown       Reason = "unknown"        // the client shows one that TLS.VerifyConnection refuses
	Slow          Reason = "slow"           // its handshake took too long, or had to give way to newer ones
	Broken        Reason = "broken"         // the client went away, or speaks something else
	TooMany       Reason = "too-many"       // its client has too many connections, or its address too many that are unproved
)

// Reasons are all of them.
var Reasons = []Reason{NoCertificate, Unknown, Slow, Broken, TooMany}

// GateConfig is the bounds of a Gate. All fields but Refused are required.
type GateConfig struct {
	// TLS is how connections are secured.
	TLS *tls.Config
	// Handshake is how long a client may take for its part of the handshake.
	Handshake time.Duration
	// Waiting bounds the handshakes under way, and WaitingPerSource those from one address. A new handshake beyond a bound closes
	// the oldest one, so slow clients never keep out a quick one.
	Waiting, WaitingPerSource int
	// PerSource bounds the accepted connections of one client: from one address, or, if Named, with one name in the certificate.
	// If Unproved is set, PerSource and All bound those whose client has authenticated.
	PerSource int
	// All bounds the accepted connections of all clients. A new connection beyond the bound closes the oldest connection of the
	// client that has the most. 0 means that only PerSource bounds them.
	All int
	// Named means that a client is known by the common name in its certificate, not by its address. TLS must require and verify
	// the certificate. Addresses do not tell a LAN's nodes apart: they share a /64, of which each node can have every address.
	Named bool
	// Unproved bounds the accepted connections from one address whose client has not authenticated. Each is a Newcomer until its
	// Prove is called. One more closes the oldest of them. 0 means no bound, and no Newcomers. Each address of a /64 counts by
	// itself here, because the nodes of a LAN share a /64 and all connect at once when a server has restarted.
	Unproved int
	// AllUnproved bounds the accepted connections from all addresses whose client has not authenticated. One more closes the
	// oldest from the address that has the most of them. So clients that do not authenticate push out each other. 0 means no
	// bound.
	AllUnproved int
	// Refused is called for each refused connection. It must not block. nil means that nothing is called.
	Refused func(from netip.AddrPort, why Reason, err error)
	// Aside, if not nil, takes over connections by the server name that they ask for, before anything is answered.
	Aside *Aside
}

// Gate is a net.Listener of TLS connections whose handshake is over.
type Gate struct {
	net.Listener
	cfg      GateConfig
	let      *tally[string] // by the client
	aside    *tally[netip.Addr]
	unproved *tally[netip.Addr]
	hear     time.Duration // is hearFor but in tests
	accepted chan accepted
	start    sync.Once
	closed   context.Context //nolint:containedctx // ends with the Gate, not with a call
	end      context.CancelFunc
	running  sync.WaitGroup

	mu      sync.Mutex
	waiting *list.List // of *handshake, the oldest first
}

type accepted struct {
	conn net.Conn
	err  error
}

// handshake is one that is under way.
type handshake struct {
	conn     net.Conn
	source   netip.Addr
	gaveWay  bool // guarded by the Gate's mu
	position *list.Element
}

// NewGate returns a Gate. The first Accept starts it. Close ends it, and waits for its goroutines.
func NewGate(l net.Listener, c GateConfig) *Gate {
	if c.Refused == nil {
		c.Refused = func(netip.AddrPort, Reason, error) {}
	}
	closed, end := context.WithCancel(context.Background())
	g := &Gate{
		Listener: l, cfg: c, let: newTally[string](c.PerSource, c.All), hear: hearFor,
		accepted: make(chan accepted), closed: closed, end: end, waiting: list.New(),
	}
	if c.Unproved > 0 {
		g.unproved = newTally[netip.Addr](c.Unproved, c.AllUnproved)
		g.unproved.yields = true
	}
	if c.Aside != nil {
		g.cfg.TLS, g.aside = c.Aside.heeding(c.TLS), newTally[netip.Addr](c.Aside.PerSource, c.Aside.All)
	}
	return g
}

// Accept implements net.Listener. What it returns is a *tls.Conn.
func (g *Gate) Accept() (net.Conn, error) {
	g.start.Do(func() { g.running.Go(g.run) })
	select {
	case a := <-g.accepted:
		return a.conn, a.err
	case <-g.closed.Done():
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener. Accepted connections stay open; those that went aside are ended.
func (g *Gate) Close() error {
	g.start.Do(func() {}) // from now on it does not start
	err := g.Listener.Close()
	g.end()
	g.mu.Lock()
	for e := g.waiting.Front(); e != nil; e = e.Next() {
		_ = of(e).conn.Close()
	}
	g.mu.Unlock()
	g.running.Wait()
	return err
}

// run accepts connections until the listener is closed. After an error, run waits until the Gate's Accept has returned that
// error, so that a lasting error does not make run spin.
func (g *Gate) run() {
	for {
		c, err := g.Listener.Accept()
		if err != nil {
			select {
			case g.accepted <- accepted{err: err}:
			case <-g.closed.Done():
			}
			if errors.Is(err, net.ErrClosed) {
				return
			}
			continue
		}
		h := &handshake{conn: c}
		h.source, _ = sourceOf(c)
		if g.enter(h) {
			g.running.Go(func() { g.admit(h) })
		}
	}
}

// admit accepts a connection once its handshake is over.
func (g *Gate) admit(h *handshake) {
	raw := &conn{Conn: h.conn}
	var over net.Conn = raw
	var newcomer *Newcomer
	if g.unproved != nil {
		newcomer = &Newcomer{conn: conn{Conn: raw}}
		over = newcomer
	}
	var first *hello
	if g.cfg.Aside != nil {
		first = &hello{Conn: over}
		over = first
	}
	secure := tls.Server(over, g.cfg.TLS)
	_ = h.conn.SetDeadline(time.Now().Add(g.cfg.Handshake))
	err := secure.HandshakeContext(g.closed)
	if first != nil && first.taken {
		g.putAside(h, first)
		return
	}
	if err != nil {
		why := reasonOf(err)
		if why == NoCertificate || why == Unknown {
			hearOut(h.conn, g.hear)
		}
		_ = h.conn.Close()
		g.refused(h, why, err)
		return
	}
	_ = h.conn.SetDeadline(time.Time{})
	if g.leave(h) {
		g.reportRefusal(h.conn, Slow, errGaveWay) // it was closed when it had just succeeded
		return
	}
	client := h.source.String()
	if g.cfg.Named {
		client = secure.ConnectionState().PeerCertificates[0].Subject.CommonName
	}
	letIn := func() bool {
		leave, ok := place(g, g.let, client, h.conn, errCrowded)
		if ok {
			raw.onClose(leave)
		}
		return ok
	}
	if newcomer != nil {
		newcomer.letIn = letIn
		leave, _ := place(g, g.unproved, addressOf(h.conn), raw, errUnproved) // it yields
		newcomer.onClose(leave)
	} else if !letIn() {
		return
	}
	select {
	case g.accepted <- accepted{conn: secure}:
	case <-g.closed.Done():
		_ = over.Close()
	}
}

// place takes a place for a connection, or closes it. crowd is why another one gives way to it.
func place[S comparable](g *Gate, among *tally[S], of S, c net.Conn, crowd error) (leave func(), ok bool) {
	leave, crowded, ok := among.enter(of, c)
	if !ok {
		_ = c.Close()
		g.reportRefusal(c, TooMany, errTooMany)
		return nil, false
	}
	if crowded != nil {
		_ = crowded.Close()
		g.reportRefusal(crowded, TooMany, crowd)
	}
	return leave, true
}

// refused notes a handshake that has failed.
func (g *Gate) refused(h *handshake, why Reason, err error) {
	if g.leave(h) {
		why, err = Slow, errGaveWay
	}
	g.reportRefusal(h.conn, why, err)
}

func (g *Gate) reportRefusal(c net.Conn, why Reason, err error) {
	if g.closed.Err() == nil {
		g.cfg.Refused(addrPort(c), why, err)
	}
}

var (
	errGaveWay = errors.New("too many handshakes were under way, of which this was the oldest")
	errTooMany = errors.New("its address, or whoever its certificate names, has too many connections")
	errCrowded = errors.New("too many connections were open, and of all clients this one had the most")
	// errUnproved is the reason of a connection that has made no request that was allowed.
	errUnproved = errors.New("too many connections, of its address or of all, had made no request that a member may make")
)

func reasonOf(err error) Reason {
	var timeout net.Error
	var refused *tls.CertificateVerificationError
	switch {
	case errors.As(err, &timeout) && timeout.Timeout():
		return Slow
	case errors.As(err, &refused):
		return Unknown
	case strings.Contains(err.Error(), "didn't provide a certificate"): // crypto/tls has no type for it
		return NoCertificate
	default:
		return Broken
	}
}

// enter counts a handshake as waiting, and closes the oldest if too many wait. It returns false if the Gate is closed.
func (g *Gate) enter(h *handshake) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed.Err() != nil {
		_ = h.conn.Close()
		return false
	}
	var oldest *list.Element
	same := 0
	for e := g.waiting.Front(); e != nil; e = e.Next() {
		if of(e).source == h.source {
			if same++; same == 1 {
				oldest = e
			}
		}
	}
	if same < g.cfg.WaitingPerSource {
		oldest = nil
		if g.waiting.Len() >= g.cfg.Waiting {
			oldest = g.waiting.Front()
		}
	}
	if oldest != nil {
		of(oldest).gaveWay = true
		_ = of(oldest).conn.Close()
		g.waiting.Remove(oldest)
	}
	h.position = g.waiting.PushBack(h)
	return true
}

// leave removes a waiting handshake, and reports whether it was closed to make room.
func (g *Gate) leave(h *handshake) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.waiting.Remove(h.position) // nothing, if it had to give way
	return h.gaveWay
}

func of(e *list.Element) *handshake {
	return e.Value.(*handshake) //nolint:forcetypeassert // nothing else is put there
}

func addrPort(c net.Conn) netip.AddrPort {
	tcp, ok := c.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	at := tcp.AddrPort()
	return netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
}
