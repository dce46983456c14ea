package upstream

import (
	"net"
	"sync"
	"syscall"
	"time"

	"k8s.io/utils/clock"
)

// tripMemory is for how long the least round trip to a server counts, as in Linux: a route may have become longer.
const tripMemory = 5 * time.Minute

// kernel is what the kernel knows of a TCP connection, and lets be set.
type kernel interface {
	// trip returns the least round trip lately (0 if unknown), and how large a segment may be that comes.
	trip() (least time.Duration, segment int)
	// clamp bounds the window that the other end is told.
	clamp(bytes int) error
}

// pacer bounds what a connection has on its way to us by its window. It belongs to the connection's reader.
type pacer struct {
	kernel kernel
	clock  clock.PassiveClock
	trips  *leastTrip
	window window
}

// newPacer returns nil where a connection's window can't be bounded: it is not of TCP, or the kernel has no means.
func newPacer(c net.Conn, now clock.PassiveClock, trips *leastTrip) *pacer {
	for {
		if inner, ok := c.(interface{ NetConn() net.Conn }); ok {
			c = inner.NetConn() // of a TLS connection with a proxy
			continue
		}
		break
	}
	tcp, ok := c.(interface {
		SyscallConn() (syscall.RawConn, error)
	})
	if !ok {
		return nil
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return nil
	}
	k := kernelOf(raw)
	if k == nil {
		return nil
	}
	p := &pacer{kernel: k, clock: now, trips: trips}
	least, segment := k.trip()
	trips.note(now.Now(), least)
	// A sender waits if there is no room for a segment: those of the loopback have 64 KB.
	p.window = newWindow(2 * segment)
	if k.clamp(p.window.size) != nil {
		return nil
	}
	return p
}

// received takes in that n bytes were read.
func (p *pacer) received(n int) {
	if p == nil || n <= 0 {
		return
	}
	now := p.clock.Now()
	if !p.window.due(now, n, p.trips.get()) {
		return
	}
	least, _ := p.kernel.trip()
	p.window.next(now, p.trips.note(now, least))
	// Even if it is the same: where the kernel enlarges its buffer, it forgets the bound. An error says that the connection has
	// ended, which its reader finds out.
	_ = p.kernel.clamp(p.window.size)
}

// leastTrip is the least round trip to a server, over all of its connections. One that was opened while the line's queue was full
// has measured nothing less.
type leastTrip struct {
	mu    sync.Mutex
	least time.Duration // 0 means that none was measured
	at    time.Time
}

func (l *leastTrip) get() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.least
}

// note takes a round trip in (0 is none), and returns the least.
func (l *leastTrip) note(at time.Time, trip time.Duration) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if trip > 0 && (l.least == 0 || trip <= l.least || at.Sub(l.at) > tripMemory) {
		l.least, l.at = trip, at
	}
	return l.least
}

// forget forgets what was measured: the link went down, and may lead another way when it comes up.
func (l *leastTrip) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.least = 0
}
