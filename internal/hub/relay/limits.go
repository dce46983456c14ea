package relay

import (
	"context"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/ends"
)

// Limits bound what a hub relays. One neighbour gets at most a fourth of the bytes of a second and of a day (share).
type Limits struct {
	// PerPeer and All bound the tunnels that are open at a time, of one neighbour and in all. A hub needs up to eight.
	PerPeer, All int
	// BytesPerSecond bounds the bytes that all tunnels carry together in a second, both ways.
	BytesPerSecond int
	// BytesPerDay bounds the bytes that all tunnels carry in a day. Days count from the hub's start. Once BytesPerDay is reached,
	// the hub relays for no node for the rest of that day.
	BytesPerDay int64
}

// Standard returns the limits of a hub whose line costs little.
func Standard() Limits {
	return Limits{PerPeer: 32, All: 256, BytesPerSecond: 2 << 20, BytesPerDay: 4 << 30}
}

// Metered returns the limits of a hub whose line is paid for by the byte. A neighbour gets 8 MiB a day. When these are spent, the
// pool's leader forwards the neighbour's heartbeats.
func Metered() Limits {
	return Limits{PerPeer: 32, All: 256, BytesPerSecond: 128 << 10, BytesPerDay: 32 << 20}
}

const (
	// share divides the bytes of a second and of a day: one neighbour gets at most a fourth of them.
	share = 4
	// reserved is how many bytes a neighbour may use in a minute without waiting for other neighbours' bytes. A node's heartbeats
	// and status need some 10 KB.
	reserved = 64 << 10
	day      = 24 * time.Hour
)

// borrower is what one neighbour uses of this hub's line.
type borrower struct {
	tunnels      int
	spent        int64 // bytes of this day
	bytes, first *rate.Limiter
}

// borrowers counts and bounds what neighbours use. It remembers a neighbour until the day is over.
type borrowers struct {
	bytes *rate.Limiter // of all

	mu      sync.Mutex
	tunnels int
	began   time.Time // of the day
	spent   int64
	each    map[edge.NodeName]*borrower
}

func newBorrowers(l Limits) *borrowers {
	return &borrowers{bytes: limiter(l.BytesPerSecond), each: map[edge.NodeName]*borrower{}}
}

func limiter(perSecond int) *rate.Limiter {
	return rate.NewLimiter(rate.Limit(perSecond), burst(perSecond))
}

func burst(perSecond int) int { return max(chunk, perSecond/4) }

// acquire takes a place for a peer's tunnel. It returns tooMany if none is left, overDay if the day's bytes are spent, else "".
func (b *borrowers) acquire(peer edge.NodeName, l Limits, now time.Time) (why refusal) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.turnLocked(now)
	of := b.each[peer]
	if of == nil {
		of = &borrower{bytes: limiter(l.BytesPerSecond / share), first: rate.NewLimiter(reserved/60., reserved)}
	}
	switch {
	case b.spent >= l.BytesPerDay || of.spent >= l.BytesPerDay/share:
		return overDay
	case b.tunnels >= l.All || of.tunnels >= l.PerPeer:
		return tooMany
	}
	b.each[peer] = of
	b.tunnels++
	of.tunnels++
	return ""
}

func (b *borrowers) leave(peer edge.NodeName) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tunnels--
	b.each[peer].tunnels--
}

// count returns the open tunnels, and how many peers have one.
func (b *borrowers) count() (tunnels, peers int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, of := range b.each {
		if of.tunnels > 0 {
			peers++
		}
	}
	return b.tunnels, peers
}

// lasts reports whether bytes of this day are left for a peer that has used none.
func (b *borrowers) lasts(l Limits, now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.turnLocked(now)
	return b.spent < l.BytesPerDay
}

// spend counts bytes that were carried for a peer with a tunnel. It reports whether more may be.
func (b *borrowers) spend(peer edge.NodeName, n int, l Limits, now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.turnLocked(now)
	of := b.each[peer]
	b.spent += int64(n)
	of.spent += int64(n)
	return b.spent < l.BytesPerDay && of.spent < l.BytesPerDay/share
}

// turnLocked begins a new day if the last one is over.
func (b *borrowers) turnLocked(now time.Time) {
	if !b.began.IsZero() && now.Sub(b.began) < day {
		return
	}
	b.began, b.spent = now, 0
	for name, of := range b.each {
		if of.spent = 0; of.tunnels == 0 {
			delete(b.each, name)
		}
	}
}

// wait blocks until n bytes of a peer with a tunnel may be carried.
func (b *borrowers) wait(ctx context.Context, peer edge.NodeName, n int, l Limits, clock ends.Clock) error {
	now := clock.Running()
	b.mu.Lock()
	of := b.each[peer]
	b.mu.Unlock()
	retime(b.bytes, l.BytesPerSecond, now)
	retime(of.bytes, l.BytesPerSecond/share, now)
	if err := wait(ctx, of.bytes, n, clock); err != nil || of.first.AllowN(clock.Running(), n) {
		return err
	}
	return wait(ctx, b.bytes, n, clock)
}

func retime(l *rate.Limiter, perSecond int, now time.Time) {
	if wanted := rate.Limit(perSecond); l.Limit() != wanted {
		l.SetLimitAt(now, wanted)
		l.SetBurstAt(now, burst(perSecond))
	}
}
