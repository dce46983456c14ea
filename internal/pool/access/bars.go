package access

import (
	"fmt"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"yurtcoordinator/internal/edge"
)

const (
	// barredFor is how long a node may not lead after another has accused it.
	barredFor = 30 * time.Second

	// accuseEvery is how often one node may accuse. A liar can end a term that often, and no oftener.
	accuseEvery = 5 * time.Minute

	// accuseAfter is how long a term lasts before anybody may end it: nobody can have seen that it lacks anything before.
	accuseAfter = 10 * time.Second
)

// bars knows who may not take the election Lease, and until when, by this process's own clock. Whatever vacates the Lease without
// its holder, a restart of the coordinator or an accusation, leaves it vacant for a term: the former leader may not know yet.
//
// A write that was admitted and then not stored leaves a bar behind that does no harm: the holder goes on, and the accuser may
// say the same again.
type bars struct {
	clock clock.PassiveClock

	mu      sync.Mutex
	vacant  time.Time // until then nobody may take the Lease
	barred  map[edge.NodeName]time.Time
	accused map[edge.NodeName]accusation // by who accused
	term    leaseMark                    // holder and transitions as last taken
	began   time.Time                    // when that term did
	led     time.Time                    // when the Lease was last written; before that, when this process started
}

type accusation struct {
	term leaseMark
	at   time.Time
}

// newBars returns the bars of a coordinator that has just started.
func newBars(c clock.PassiveClock) *bars {
	return &bars{
		clock: c, vacant: c.Now().Add(edge.ElectionTerm), led: c.Now(),
		barred: map[edge.NodeName]time.Time{}, accused: map[edge.NodeName]accusation{},
	}
}

// mayTake says why a node may not take the Lease; nil means that it may.
func (b *bars) mayTake(caller edge.NodeName) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.clock.Now()
	if left := b.vacant.Sub(now); left > 0 {
		return fmt.Errorf("a former leader may not know yet that its term is over: the Lease stays vacant for %s",
			left.Round(time.Millisecond))
	}
	if left := b.barred[caller].Sub(now); left > 0 {
		return fmt.Errorf("node %q was accused of not forwarding heartbeats: it may lead again in %s",
			caller, left.Round(time.Second))
	}
	return nil
}

// mayAccuse says why a node may not end the term of another; nil means that it may.
func (b *bars) mayAccuse(caller edge.NodeName, old leaseMark) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.clock.Now()
	term := termOf(old)
	if left := b.barred[caller].Sub(now); left > 0 {
		return fmt.Errorf("node %q was accused itself: it may accuse again in %s", caller, left.Round(time.Second))
	}
	last, before := b.accused[caller]
	if left := last.at.Add(accuseEvery).Sub(now); before && last.term != term && left > 0 {
		return fmt.Errorf("node %q has just accused another: it may do so again in %s", caller, left.Round(time.Second))
	}
	if left := b.began.Add(accuseAfter).Sub(now); b.term == term && left > 0 {
		return fmt.Errorf("this term has just begun: it may be ended in %s", left.Round(time.Second))
	}
	return nil
}

// admitted notes what is about to be stored.
func (b *bars) admitted(caller edge.NodeName, old, next leaseMark, accuses bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.clock.Now()
	b.led = now
	if accuses {
		b.accused[caller] = accusation{termOf(old), now}
		b.barred[old.holder] = now.Add(barredFor)
		b.vacant = now.Add(edge.ElectionTerm)
	}
	if term := termOf(next); term != b.term {
		b.term, b.began = term, now
	}
	for node, until := range b.barred {
		if !now.Before(until) {
			delete(b.barred, node)
		}
	}
	for node, a := range b.accused {
		if now.Sub(a.at) >= accuseEvery {
			delete(b.accused, node)
		}
	}
}

// termOf is what a mark has in common with all others of its term.
func termOf(m leaseMark) leaseMark { return leaseMark{holder: m.holder, transitions: m.transitions} }
