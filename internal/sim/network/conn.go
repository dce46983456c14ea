package network

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"time"
)

// conn is one end of a connection. The network's mutex guards everything in it.
type conn struct {
	network     *Network
	host        *Host
	process     *Process // nil until a process has the connection
	key         string
	local, far  addr
	in, out     *half
	options     Options
	err         error // it is over for whoever has it
	drops       bool  // Close drops what has not arrived
	read, write deadline
}

// half is one direction of a connection.
type half struct {
	from, to *conn
	// sent has the bytes that have not arrived, and onWay is how many of these are under way. The field in has the bytes that
	// have arrived and were not read.
	sent, in []byte
	onWay    int
	fin      bool // no more bytes will be sent
	ended    bool // … and all have arrived
	// draft changes when the segments that are under way no longer count, so that their arrival is ignored.
	draft int
	again time.Duration // after which a lost segment is sent again
	since time.Time     // since when nothing has arrived
	used  time.Time     // when something arrived last, either way
	// dead means that nothing leaves any more. forgotten means that nothing that leaves arrives any more.
	dead, forgotten bool
	due             time.Time // when the last segment that is under way arrives
	// waits means that a segment is lost, and is sent again later.
	waits   bool
	changed chan struct{} // closed when anything changes
}

// pair returns the two ends of a connection. n.mu is held.
func pair(n *Network, own *Process, far *Host, key string, local, remote addr) (a, b *conn) {
	usual := Options{Unacknowledged: givesUp}
	a = &conn{network: n, host: own.host, process: own, key: key + "a", local: local, far: remote, options: usual}
	b = &conn{network: n, host: far, key: key + "b", local: remote, far: local, options: usual}
	now := time.Now()
	there := &half{from: a, to: b, again: firstAgain, used: now, changed: make(chan struct{})}
	back := &half{from: b, to: a, again: firstAgain, used: now, changed: make(chan struct{})}
	a.out, a.in, b.out, b.in = there, back, back, there
	return a, b
}

// Read implements net.Conn.
func (c *conn) Read(p []byte) (int, error) {
	n := c.network
	for {
		n.mu.Lock()
		over, changed := c.read.state()
		switch {
		case over:
			n.mu.Unlock()
			return 0, failed("read", c.far, os.ErrDeadlineExceeded)
		case len(c.in.in) > 0:
			size := copy(p, c.in.in)
			if c.in.in = c.in.in[size:]; len(c.in.in) == 0 {
				c.in.in = nil
			}
			c.in.wake()
			n.mu.Unlock()
			return size, nil
		case c.err != nil:
			err := c.err
			n.mu.Unlock()
			return 0, failed("read", c.far, err)
		case c.in.ended:
			n.mu.Unlock()
			return 0, io.EOF
		}
		arrived := c.in.changed
		n.mu.Unlock()
		select {
		case <-arrived:
		case <-changed:
		}
	}
}

// Write implements net.Conn.
func (c *conn) Write(p []byte) (size int, err error) {
	n := c.network
	for {
		n.mu.Lock()
		over, changed := c.write.state()
		room := unread - len(c.out.sent) - len(c.out.in)
		switch {
		case over:
			n.mu.Unlock()
			return size, failed("write", c.far, os.ErrDeadlineExceeded)
		case c.err != nil:
			err := c.err
			n.mu.Unlock()
			return size, failed("write", c.far, err)
		case c.out.fin:
			n.mu.Unlock()
			return size, failed("write", c.far, syscall.EPIPE)
		case room > 0 || len(p) == 0:
			some := p[:min(room, len(p))]
			c.out.sent = append(c.out.sent, some...)
			c.out.send()
			size, p = size+len(some), p[len(some):]
			if len(p) == 0 {
				n.mu.Unlock()
				return size, nil
			}
		}
		went := c.out.changed
		n.mu.Unlock()
		select {
		case <-went:
		case <-changed:
		}
	}
}

// send sends the bytes that were not sent yet. n.mu is held.
func (h *half) send() {
	n, c := h.from.network, h.from
	size := len(h.sent) - h.onWay
	if h.dead || h.waits || size == 0 && (!h.fin || h.ended) {
		return
	}
	if h.since.IsZero() {
		h.since = time.Now()
	}
	out, draft := n.path(c.host.Name, h.to.host.Name), h.draft
	travels, ok := out.passes(n.chance, size+40)
	if !ok || c.host.shut || c.host.off {
		h.lost()
		return
	}
	h.onWay += size
	fin := h.fin
	h.due = later(h.due, time.Now().Add(travels)) // segments keep their order
	n.after(time.Until(h.due), c.key, func() {
		if h.draft == draft {
			h.arrive(out, size, fin)
		}
	})
}

// arrive takes in a segment at the other end. n.mu is held.
func (h *half) arrive(out *direction, size int, fin bool) {
	to := h.to
	switch {
	case out.Silent || to.host.shut || to.host.off || h.forgets(out):
		h.lost()
		return
	case size == 0 && fin && errors.Is(to.err, net.ErrClosed):
	case out.Refuses || to.err != nil:
		h.from.network.refuse(h)
		return
	}
	h.in = append(h.in, h.sent[:size]...)
	h.sent, h.onWay = h.sent[size:], h.onWay-size
	h.again, h.since, h.used = firstAgain, time.Time{}, time.Now()
	to.out.used = h.used
	if len(h.sent) == 0 {
		h.sent = nil
	} else {
		h.since = h.used
	}
	if fin && len(h.sent) == 0 {
		h.ended = true
		if h.from.err != nil {
			delete(h.from.process.conns, h.from)
		}
	}
	h.wake()
}

// forgets reports whether a device between the two hosts has forgotten the connection. n.mu is held.
func (h *half) forgets(out *direction) bool {
	if out.Forgets > 0 && time.Since(h.used) > out.Forgets {
		h.forgotten, h.to.out.forgotten = true, true
	}
	return h.forgotten
}

// keepAlive asks the other end for a sign of life whenever nothing has arrived for a while. n.mu is held.
func (c *conn) keepAlive() {
	n := c.network
	time.AfterFunc(c.options.KeepAlive, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		there, back, far := n.path(c.host.Name, c.out.to.host.Name), n.path(c.out.to.host.Name, c.host.Name), c.out.to.host
		quiet := time.Since(c.out.used)
		switch {
		case c.out.dead || c.err != nil:
			return
		case quiet < c.options.KeepAlive || len(c.out.sent) > 0: // what is sent asks for itself
		case !there.Silent && !back.Silent && !far.shut && !far.off && !c.out.forgets(there) && !c.in.forgets(back):
			if far := c.out.to; far.err != nil && far.process != nil && far.process.dead {
				c.fail(syscall.ECONNRESET) // the far machine has started again since, and has no such connection
				return
			}
			c.out.used, c.in.used = time.Now(), time.Now()
		case quiet >= c.options.Unacknowledged:
			c.fail(syscall.ETIMEDOUT)
			return
		}
		c.keepAlive()
	})
}

// refuse answers a segment with a reset, which travels back over its own path. n.mu is held.
func (n *Network) refuse(h *half) {
	h.draft++
	h.onWay, h.waits = 0, true
	back, ok := n.path(h.to.host.Name, h.from.host.Name).passes(n.chance, 40)
	if !ok {
		h.lost()
		return
	}
	n.after(back, h.from.key, func() { h.from.fail(syscall.ECONNRESET) })
}

// lost sends all bytes that have not arrived again, after a time. n.mu is held.
func (h *half) lost() {
	h.draft++
	h.onWay, h.waits = 0, true
	draft, again := h.draft, h.again
	h.again = min(2*again, longestAgain)
	if most := h.from.options.Unacknowledged; !h.since.IsZero() {
		left := time.Until(h.since.Add(most))
		if left <= 0 {
			h.from.fail(syscall.ETIMEDOUT)
			return
		}
		again = min(again, left)
	}
	h.from.network.after(again, h.from.key, func() {
		if h.draft == draft && !h.dead {
			h.waits = false
			h.send()
		}
	})
}

// reset tells the other end that the connection is over, if the path lets the message through. If both ends are on the same host,
// the message arrives even while that host is suspended. The caller must hold the network's lock.
func (h *half) reset() {
	n, c := h.from.network, h.from
	if h.dead {
		return
	}
	out := n.path(c.host.Name, h.to.host.Name)
	if travels, ok := out.passes(n.chance, 40); ok {
		n.after(travels, c.key, func() {
			own := h.to.host == c.host
			if !out.Silent && (own || !h.to.host.shut) && !h.to.host.off {
				h.to.fail(syscall.ECONNRESET)
			}
		})
	}
}

func (h *half) wake() {
	close(h.changed)
	h.changed = make(chan struct{})
}

// fail ends the connection at this end. n.mu is held.
func (c *conn) fail(err error) {
	if c.out.dead {
		return
	}
	if c.err == nil {
		c.err = err
	}
	c.out.dead = true
	c.out.draft++
	if c.process != nil {
		delete(c.process.conns, c)
	}
	c.in.wake()
	c.out.wake()
}

// CloseWrite ends this direction: no more bytes will be sent.
func (c *conn) CloseWrite() error {
	c.network.mu.Lock()
	defer c.network.mu.Unlock()
	if c.err == nil && !c.out.fin {
		c.out.fin = true
		c.out.send()
	}
	return nil
}

// Close implements net.Conn. Bytes that were written still arrive, if they can. The other end reads up to the last of them.
func (c *conn) Close() error {
	c.network.mu.Lock()
	defer c.network.mu.Unlock()
	if c.err != nil {
		return nil
	}
	if len(c.in.in) > 0 || c.drops {
		c.out.reset() // as Linux does where bytes were not read, too
		c.fail(net.ErrClosed)
		return nil
	}
	c.err, c.out.fin = net.ErrClosed, true
	c.out.send() // it goes on without its owner
	c.in.wake()
	c.out.wake()
	return nil
}

// SetLinger is as the method of *net.TCPConn: with 0 seconds, Close drops what has not arrived, and resets the connection.
func (c *conn) SetLinger(sec int) error {
	c.network.mu.Lock()
	defer c.network.mu.Unlock()
	c.drops = sec == 0
	return nil
}

// LocalAddr implements net.Conn.
func (c *conn) LocalAddr() net.Addr { return c.local }

// RemoteAddr implements net.Conn.
func (c *conn) RemoteAddr() net.Addr { return c.far }

// SetDeadline implements net.Conn.
func (c *conn) SetDeadline(t time.Time) error {
	c.network.mu.Lock()
	defer c.network.mu.Unlock()
	c.read.set(c.network, t)
	c.write.set(c.network, t)
	return nil
}

// SetReadDeadline implements net.Conn.
func (c *conn) SetReadDeadline(t time.Time) error {
	c.network.mu.Lock()
	defer c.network.mu.Unlock()
	c.read.set(c.network, t)
	return nil
}

// SetWriteDeadline implements net.Conn.
func (c *conn) SetWriteDeadline(t time.Time) error {
	c.network.mu.Lock()
	defer c.network.mu.Unlock()
	c.write.set(c.network, t)
	return nil
}

// deadline is the time at which reading or writing is over.
type deadline struct {
	at      time.Time
	timer   *time.Timer
	changed chan struct{} // closed when the deadline changes or comes
}

// state reports whether the deadline has passed. The channel is closed when the caller should ask again. n.mu is held.
func (d *deadline) state() (over bool, changed <-chan struct{}) {
	if d.changed == nil {
		d.changed = make(chan struct{})
	}
	return !d.at.IsZero() && !time.Now().Before(d.at), d.changed
}

// set changes the deadline. n.mu is held.
func (d *deadline) set(n *Network, at time.Time) {
	if d.timer != nil {
		d.timer.Stop()
	}
	d.timer, d.at = nil, at
	d.wake()
	if left := time.Until(at); !at.IsZero() && left > 0 {
		d.timer = time.AfterFunc(left, func() {
			n.mu.Lock()
			defer n.mu.Unlock()
			d.wake()
		})
	}
}

func (d *deadline) wake() {
	if d.changed != nil {
		close(d.changed)
		d.changed = nil
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
