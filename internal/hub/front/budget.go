package front

import (
	"net/netip"
	"sync"
	"time"

	"k8s.io/utils/lru"

	"yurtcoordinator/internal/ends"
)

const (
	// mostInVain is how often in budgetTime the cloud is asked about tokens from one address that turn out to be nobody's. A
	// program whose token has ended asks with that one token, which is one question each 5 s at most, and soon has another.
	mostInVain, budgetTime = 20, time.Minute
	// maxSources bounds the addresses that are remembered; the one that has asked nothing for longest is forgotten.
	maxSources = 1000
)

// budget bounds the questions about tokens by the address that shows them, so that whoever makes tokens up can neither use the
// node's identity to flood the cloud with reviews nor take the places of those who ask for a reason.
type budget struct {
	clock ends.Clock

	mu sync.Mutex
	of *lru.Cache // of *account, by netip.Addr
}

type account struct {
	began time.Time
	spent int
}

func newBudget(c ends.Clock) *budget { return &budget{clock: c, of: lru.New(maxSources)} }

// take spends a question of an address, or returns false if it has none left.
func (b *budget) take(from netip.Addr) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	found, _ := b.of.Get(from)
	a, ok := found.(*account)
	if !ok {
		a = &account{}
		b.of.Add(from, a)
	}
	if now := b.clock.Running(); now.Sub(a.began) >= budgetTime {
		*a = account{began: now}
	}
	if a.spent >= mostInVain {
		return false
	}
	a.spent++
	return true
}

// giveBack returns a question that was not in vain.
func (b *budget) giveBack(from netip.Addr) {
	b.mu.Lock()
	defer b.mu.Unlock()
	found, _ := b.of.Get(from)
	if a, ok := found.(*account); ok && a.spent > 0 {
		a.spent--
	}
}
