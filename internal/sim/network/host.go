package network

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"syscall"
	"time"
)

// Host is a machine's end of the network. Get one from Network.Host.
type Host struct {
	Name    string
	network *Network
	ip      string
	shut    bool // nothing leaves or arrives
	off     bool // the machine has no power, so nothing answers, not even by a reset

	processes map[*Process]struct{}
	listeners map[string]*listener // by port
	dialed    map[string]int       // connections so far, by the other host
}

// Process is a program of a host. Get one from Host.Process. After Kill it can neither dial nor listen.
type Process struct {
	host  *Host
	conns map[*conn]struct{}
	dead  bool
}

// Process returns one more program of the host, as the network sees it.
func (h *Host) Process() *Process {
	h.network.mu.Lock()
	defer h.network.mu.Unlock()
	p := &Process{host: h, conns: map[*conn]struct{}{}}
	h.processes[p] = struct{}{}
	return p
}

// Shut keeps everything from leaving or arriving, as if the machine were suspended; connections remain. Shut(false) ends this.
func (h *Host) Shut(shut bool) {
	h.network.mu.Lock()
	defer h.network.mu.Unlock()
	h.shut = shut
}

// Off takes the machine's power away: all its processes end, and nobody is told.
func (h *Host) Off() {
	h.network.mu.Lock()
	defer h.network.mu.Unlock()
	h.off = true
	for p := range h.processes {
		p.end()
	}
}

// On says that the machine has power again.
func (h *Host) On() {
	h.network.mu.Lock()
	defer h.network.mu.Unlock()
	h.off = false
}

// Kill ends the process. The kernel resets its connections, and closes its ports.
func (p *Process) Kill() {
	p.host.network.mu.Lock()
	defer p.host.network.mu.Unlock()
	if !p.host.off {
		for c := range p.conns {
			c.out.reset()
		}
	}
	p.end()
}

// end ends the process's connections and listeners. n.mu is held.
func (p *Process) end() {
	p.dead = true
	for c := range p.conns {
		c.fail(syscall.ECONNABORTED)
	}
	for _, l := range p.host.listeners {
		if l.process == p {
			l.end()
		}
	}
	delete(p.host.processes, p)
}

// Conns returns how many connections of the process are open, or closed but still sending.
func (p *Process) Conns() int {
	p.host.network.mu.Lock()
	defer p.host.network.mu.Unlock()
	return len(p.conns)
}

// Listen waits for connections at a port of the host. The address before the port does not matter.
func (p *Process) Listen(_, address string) (net.Listener, error) {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	h, n := p.host, p.host.network
	n.mu.Lock()
	defer n.mu.Unlock()
	l := &listener{
		process: p, addr: addr(net.JoinHostPort(h.ip, port)), port: port,
		waiting: make(chan *conn, 128), closed: make(chan struct{}),
	}
	switch {
	case p.dead:
		return nil, failed("listen", l.addr, syscall.ECONNABORTED)
	case h.listeners[port] != nil:
		return nil, failed("listen", l.addr, syscall.EADDRINUSE)
	}
	h.listeners[port] = l
	return l, nil
}

// Options are what a program may set for a TCP connection.
type Options struct {
	// Unacknowledged is how long bytes may remain unacknowledged before the connection is given up (TCP_USER_TIMEOUT). If
	// KeepAlive is set, a connection is also given up once nothing has arrived for that long.
	Unacknowledged time.Duration
	// KeepAlive is the time without a byte after which the other end is asked for a sign of life, again and again; 0 means never.
	KeepAlive time.Duration
}

// Dial opens a connection to an IP address and port. The address 127.0.0.1 is the host's own.
func (p *Process) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	return p.Dialer(Options{Unacknowledged: givesUp})(ctx, network, address)
}

// Dialer returns a function like Dial, whose connections have Options.
func (p *Process) Dialer(o Options) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, _, address string) (net.Conn, error) { return p.dial(ctx, address, o) }
}

func (p *Process) dial(ctx context.Context, address string, o Options) (net.Conn, error) {
	to := addr(address)
	ip, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	h, n := p.host, p.host.network
	n.mu.Lock()
	far := n.routes[ip]
	if ip == "127.0.0.1" {
		far = h
	}
	if p.dead || far == nil {
		n.mu.Unlock()
		return nil, failed("dial", to, syscall.ENETUNREACH)
	}
	h.dialed[far.Name]++
	i := h.dialed[far.Name]
	key := fmt.Sprintf("%s>%s#%06d", h.Name, far.Name, i)
	own, other := pair(n, p, far, key, addr(net.JoinHostPort(h.ip, strconv.Itoa(30000+i%30000))), to)
	d := &attempt{own: own, other: other, port: port, done: make(chan error, 1)}
	d.send(connectAgain, time.Now())
	n.mu.Unlock()

	select {
	case err = <-d.done:
	case <-ctx.Done():
		err = ctx.Err()
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if d.over = true; err != nil {
		own.fail(syscall.ECONNABORTED)
		other.fail(syscall.ECONNABORTED)
		return nil, failed("dial", to, err)
	}
	if own.options = o; o.KeepAlive > 0 {
		own.keepAlive()
	}
	return own, nil
}

// attempt is a connection that is being opened.
type attempt struct {
	own, other *conn
	port       string
	done       chan error
	over       bool
}

// send sends the first segment of a connection, and sends it again if it is lost. n.mu is held.
func (a *attempt) send(again time.Duration, began time.Time) {
	n, from, to := a.own.network, a.own.host, a.other.host
	if a.over {
		return
	}
	if time.Since(began) >= connectGivesUp {
		a.answer(syscall.ETIMEDOUT)
		return
	}
	lost := func() { n.after(again, a.own.key, func() { a.send(2*again, began) }) }
	out := n.path(from.Name, to.Name)
	travels, ok := out.passes(n.chance, 60)
	if !ok || from.shut || from.off {
		lost()
		return
	}
	n.after(travels, a.own.key, func() {
		if out.Silent || to.shut || to.off {
			lost()
			return
		}
		var refused error = syscall.ECONNREFUSED
		l := to.listeners[a.port]
		if l != nil && !out.Refuses && len(l.waiting) < cap(l.waiting) {
			refused = nil
		}
		back, ok := n.path(to.Name, from.Name).passes(n.chance, 60)
		if !ok {
			lost()
			return
		}
		n.after(back, a.own.key, func() {
			if n.path(to.Name, from.Name).Silent || from.shut || from.off {
				lost()
				return
			}
			if a.over {
				return
			}
			if refused == nil {
				a.other.process = l.process
				select {
				case l.waiting <- a.other:
				default:
					refused = syscall.ECONNREFUSED
				}
			}
			a.answer(refused)
		})
	})
}

func (a *attempt) answer(err error) {
	if a.over = true; err == nil {
		a.own.process.conns[a.own] = struct{}{}
		a.other.process.conns[a.other] = struct{}{}
	}
	a.done <- err
}

// listener is a port that is open.
type listener struct {
	process *Process
	addr    addr
	port    string
	waiting chan *conn
	closed  chan struct{} // closed
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	select {
	case <-l.closed:
		return nil, failed("accept", l.addr, net.ErrClosed)
	default:
	}
	select {
	case c := <-l.waiting:
		return c, nil
	case <-l.closed:
		return nil, failed("accept", l.addr, net.ErrClosed)
	}
}

// Close implements net.Listener.
func (l *listener) Close() error {
	l.process.host.network.mu.Lock()
	defer l.process.host.network.mu.Unlock()
	l.end()
	return nil
}

// end closes the listener, and resets the connections that nobody has accepted. n.mu is held.
func (l *listener) end() {
	if l.process.host.listeners[l.port] != l {
		return
	}
	delete(l.process.host.listeners, l.port)
	close(l.closed)
	for {
		select {
		case c := <-l.waiting:
			c.out.reset()
			c.fail(net.ErrClosed)
		default:
			return
		}
	}
}

// Addr implements net.Listener.
func (l *listener) Addr() net.Addr { return l.addr }

// addr is an IP address and a port.
type addr string

// Network implements net.Addr.
func (addr) Network() string { return "tcp" }

// String implements net.Addr.
func (a addr) String() string { return string(a) }
