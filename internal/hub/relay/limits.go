package relay

import (
	"sync"
	"time"

	"yurtcoordinator/internal/edge"
)

// Limits bound what a hub relays.
type Limits struct {
	// PerPeer and All bound the tunnels that are open at a time: PerPeer those of one neighbour, All those of all. A hub needs
	// up to eight.
	PerPeer, All int
	// BytesPerSecond bounds the bytes that all tunnels carry together in a second, both ways.
	BytesPerSecond int
	// BytesPerDay bounds the bytes that all tunnels carry in a day; days count from the hub's start. Once it is reached, the
	// hub relays for no node for the rest of that day.
	BytesPerDay int64
}

// Standard returns the limits of a hub whose line costs little.
func Standard() Limits {
	return Limits{PerPeer: 32, All: 256, BytesPerSecond: 2 << 20, BytesPerDay: 4 << 30}
}

// Metered returns the limits of a hub whose line is paid for by the byte. They suffice for some three nodes that send their
// heartbeats and statuses.
func Metered() Limits {
	return Limits{PerPeer: 32, All: 256, BytesPerSecond: 128 << 10, BytesPerDay: 32 << 20}
}

// places counts open tunnels.
type places struct {
	mu   sync.Mutex
	all  int
	each map[edge.NodeName]int
}

// acquire takes a place for a tunnel of a peer, if there is one.
func (p *places) acquire(peer edge.NodeName, l Limits) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.all >= l.All || p.each[peer] >= l.PerPeer {
		return false
	}
	if p.each == nil {
		p.each = map[edge.NodeName]int{}
	}
	p.all++
	p.each[peer]++
	return true
}

func (p *places) leave(peer edge.NodeName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all--
	if p.each[peer]--; p.each[peer] == 0 {
		delete(p.each, peer)
	}
}

// count returns the open tunnels, and how many peers have one.
func (p *places) count() (tunnels, peers int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.all, len(p.each)
}

const day = 24 * time.Hour

// allowance counts the bytes that were carried on a day.
type allowance struct {
	mu    sync.Mutex
	began time.Time // of the day
	spent int64
}

// left returns how many bytes may still be carried.
func (a *allowance) left(l Limits, now time.Time) int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.turnLocked(now)
	return max(0, l.BytesPerDay-a.spent)
}

// spend counts bytes that were carried, and reports whether more may be.
func (a *allowance) spend(n int, l Limits, now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.turnLocked(now)
	a.spent += int64(n)
	return a.spent < l.BytesPerDay
}

// turnLocked begins a new day if the last one is over.
func (a *allowance) turnLocked(now time.Time) {
	if a.began.IsZero() || now.Sub(a.began) >= day {
		a.began, a.spent = now, 0
	}
}
