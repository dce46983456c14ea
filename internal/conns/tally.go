package conns

import (
	"net/netip"
	"sync"
)

// tally counts the connections of each address.
type tally struct {
	most int

	mu   sync.Mutex
	open map[netip.Addr]int // without zeros
}

func newTally(most int) *tally { return &tally{most: most, open: map[netip.Addr]int{}} }

// enter counts one more, or returns false if the address has most already.
func (t *tally) enter(source netip.Addr) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.open[source] >= t.most {
		return false
	}
	t.open[source]++
	return true
}

func (t *tally) leave(source netip.Addr) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.open[source]--; t.open[source] == 0 {
		delete(t.open, source)
	}
}
