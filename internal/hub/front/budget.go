package front

import (
	"net/netip"
	"sync"
	"time"

	"k8s.io/utils/lru"

	"yurtcoordinator/internal/ends"
)

const (
	// mostInVain is how many tokens that the cloud does not know one address may show within budgetTime. A program whose token
	// has expired stays below that, because the hub asks about its one token at most every 5 s (unknownFor).
	mostInVain, budgetTime = 20, time.Minute
	// maxSources bounds the remembered addresses; the least recently used is dropped.
	maxSources = 1000
)

// budget bounds how often an address may do something within a time: show tokens that the cloud does not know, or send requests
// as a stranger. Otherwise a client with made-up tokens could flood the cloud with reviews in the node's name.
type budget struct {
	clock  ends.Clock
	most   int
	within time.Duration

	mu sync.Mutex
	of *lru.Cache // of *account, by netip.Addr
}

type account struct {
	began time.Time
	spent int
}

func newBudget(c ends.Clock, most int, within time.Duration) *budget {
	return &budget{clock: c, most: most, within: within, of: lru.New(maxSources)}
}

// spend notes that an address does it once more, or returns false if it has done it often enough.
func (b *budget) spend(from netip.Addr) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	found, _ := b.of.Get(from)
	a, ok := found.(*account)
	if !ok {
		a = &account{}
		b.of.Add(from, a)
	}
	if now := b.clock.Running(); now.Sub(a.began) >= b.within {
		*a = account{began: now}
	}
	if a.spent >= b.most {
		return false
	}
	a.spent++
	return true
}

// giveBack takes back one spend, for a question that was not in vain.
func (b *budget) giveBack(from netip.Addr) {
	b.mu.Lock()
	defer b.mu.Unlock()
	found, _ := b.of.Get(from)
	if a, ok := found.(*account); ok && a.spent > 0 {
		a.spent--
	}
}
