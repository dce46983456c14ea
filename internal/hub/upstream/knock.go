package upstream

import (
	"context"
	"sync"
	"syscall"
	"time"

	"yurtcoordinator/internal/ends"
)

const (
	// keepAliveIdle is how long nothing may arrive before TCP sends a keep-alive by itself.
	keepAliveIdle = 90 * time.Second
	// knockIdle is the least idle time that the kernel accepts for keep-alives. The hub does not knock at a connection on which
	// something has arrived within that time.
	knockIdle = time.Second
	// knockMost bounds the wait for an acknowledgement, which otherwise lasts for TCP's retransmission timeout.
	knockMost = time.Second
	// knockTick is how late the kernel's timer may fire.
	knockTick = 8 * time.Millisecond
	// nearPing is how much longer than TCP's shortest round trip the fastest ping may take. A quarter of that round trip counts
	// instead if it is longer than nearPing. Within this limit, the hub assumes that pings and TCP's acknowledgements come from
	// the same machine.
	nearPing = 5 * time.Millisecond
	// knockSkipMost bounds the number of probes that do without a knock after knocks got no answer.
	knockSkipMost = 64
)

// knocker makes TCP send a keep-alive (a knock) and waits for its acknowledgement. A knock takes two empty packets. An HTTP/2
// ping takes three, two of them with content. A middlebox that terminates TCP would acknowledge a knock in the server's place. So
// the hub knocks only if pings are about as fast as TCP's own round trips, which shows that no middlebox is much nearer than the
// server.
type knocker struct {
	tcp   tcpSocket
	clock ends.Clock

	mu     sync.Mutex
	ping   time.Duration // the least time that a ping took; 0 means that none was answered
	missed int           // knocks in a row without an acknowledgement, though a ping got its answer
	skip   int           // how many of the next probes must do without a knock
}

// tcpSocket is what a knocker needs of a connection.
type tcpSocket interface {
	// state returns the kernel's state of the connection, and false if it is not known.
	state() (tcpState, bool)
	// keepAlive sets how long nothing may arrive before TCP sends a keep-alive. If that time is over already, TCP sends one at
	// once.
	keepAlive(idle time.Duration)
}

// tcpState is the kernel's state of a connection.
type tcpState struct {
	// acknowledged is the time since an acknowledgement last arrived.
	acknowledged time.Duration
	// trip is the shortest round trip of the last minutes; retransmit is TCP's retransmission timeout.
	trip, retransmit time.Duration
}

// newKnocker returns nil if there is no socket to use.
func newKnocker(raw syscall.RawConn, c ends.Clock) *knocker {
	if raw == nil {
		return nil
	}
	return &knocker{tcp: rawSocket{raw}, clock: c}
}

// pinged records how long an answered ping took. The parameter after says that a knock before the ping was not answered.
func (k *knocker) pinged(took time.Duration, after bool) {
	if k == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ping == 0 || took < k.ping {
		k.ping = max(took, 1)
	}
	if after {
		k.skip = min(1<<min(k.missed, 16)-1, knockSkipMost) // one may have been lost
		k.missed++
	}
}

// ready reports whether to knock, and returns the connection's state.
func (k *knocker) ready() (tcpState, bool) {
	if k == nil {
		return tcpState{}, false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ping == 0 {
		return tcpState{}, false
	}
	if k.skip > 0 {
		k.skip--
		return tcpState{}, false
	}
	now, known := k.tcp.state()
	if !known || now.trip <= 0 || k.ping-now.trip > max(nearPing, now.trip/4) {
		return tcpState{}, false
	}
	return now, now.acknowledged >= knockIdle
}

// knock asks for an acknowledgement, and reports whether one came. asked is false if the hub did not knock.
func (k *knocker) knock(ctx context.Context) (came, asked bool) {
	before, ready := k.ready()
	if !ready {
		return false, false
	}
	began := k.clock.Running()
	k.tcp.keepAlive(knockIdle)
	defer k.tcp.keepAlive(keepAliveIdle)
	most := min(max(before.retransmit, before.trip+2*knockTick), knockMost)
	for pause := before.trip + knockTick; ; pause = max(before.trip/4, knockTick) {
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return false, true
		}
		since := k.clock.Since(began)
		if now, known := k.tcp.state(); known && now.acknowledged <= since {
			k.mu.Lock()
			k.missed = 0
			k.mu.Unlock()
			return true, true
		}
		if since >= most {
			return false, true
		}
	}
}
