package relay

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/ends"
)

func TestPlaces(t *testing.T) {
	limits := Limits{PerPeer: 2, All: 3, BytesPerDay: 100}
	b, at := newBorrowers(limits), time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	take := func(peer edge.NodeName, want refusal) {
		t.Helper()
		if got := b.acquire(peer, limits, at); got != want {
			t.Errorf("a place for %s: %q", peer, got)
		}
	}
	take("a", "")
	take("a", "")
	take("a", tooMany)
	take("b", "")
	take("c", tooMany)
	b.leave("a")
	take("c", "")
	for _, peer := range []edge.NodeName{"a", "b", "c"} {
		b.leave(peer)
	}
	if tunnels, peers := b.count(); tunnels != 0 || peers != 0 {
		t.Errorf("%d tunnels of %d peers are left", tunnels, peers)
	}
	if at = at.Add(day); !b.lasts(limits, at) || len(b.each) != 0 {
		t.Errorf("on the next day %d peers are remembered", len(b.each))
	}
}

// TestAllowance: a neighbour that spends its share of a day takes nothing from others, and five that do spend all.
func TestAllowance(t *testing.T) {
	limits := Limits{PerPeer: 9, All: 9, BytesPerDay: 400}
	b, at := newBorrowers(limits), time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	take := func(peer edge.NodeName, l Limits, want refusal) {
		t.Helper()
		if got := b.acquire(peer, l, at); got != want {
			t.Errorf("a tunnel of %s: %q, want %q", peer, got, want)
		}
	}
	take("greedy", limits, "")
	if !b.spend("greedy", 99, limits, at) || b.spend("greedy", 1, limits, at) {
		t.Error("a neighbour's share is not a fourth of the day's bytes")
	}
	take("greedy", limits, overDay)
	take("greedy", Limits{PerPeer: 9, All: 9, BytesPerDay: 800}, "") // the settings have changed
	for _, peer := range []edge.NodeName{"a", "b", "c"} {
		take(peer, limits, "")
		if b.spend(peer, 100, limits, at) {
			t.Errorf("%s has more than its share", peer)
		}
	}
	take("d", limits, overDay)
	if b.lasts(limits, at.Add(day-1)) {
		t.Error("bytes are left of a day that are spent")
	}
	at = at.Add(day)
	take("greedy", limits, "")
	take("d", limits, "")
}

// TestAGreedyNeighbour: what one takes in a second leaves the rest to others, whose first bytes of each minute do not wait.
func TestAGreedyNeighbour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const rate = 128 << 10
		limits, clock := Limits{PerPeer: 9, All: 99, BytesPerSecond: rate, BytesPerDay: 1 << 40}, ends.Clock{}
		b := newBorrowers(limits)
		for _, peer := range []edge.NodeName{"1", "2", "3", "4", "5", "6", "honest"} {
			if why := b.acquire(peer, limits, clock.Running()); why != "" {
				t.Fatal(why)
			}
		}
		var all sync.WaitGroup
		ctx, cancel := context.WithCancel(t.Context())
		var one atomic.Int64
		for _, peer := range []edge.NodeName{"1", "2", "3", "4", "5", "6"} {
			for range 8 {
				all.Go(func() {
					for b.wait(ctx, peer, chunk, limits, clock) == nil {
						if peer == "1" {
							one.Add(chunk)
						}
					}
				})
			}
		}
		time.Sleep(time.Minute)
		if got, most := one.Load(), int64(rate/share*60+reserved+rate); got > most {
			t.Errorf("one neighbour carried %d bytes in a minute, want at most %d", got, most)
		}
		for range 10 {
			began := time.Now()
			if err := b.wait(ctx, "honest", 4<<10, limits, clock); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); took > 0 {
				t.Errorf("a heartbeat waited for %v", took)
			}
			time.Sleep(10 * time.Second)
		}
		cancel()
		all.Wait()
	})
}
