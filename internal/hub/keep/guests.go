package keep

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// maxGuests bounds the callers that anything is kept for. A node has some ten ServiceAccounts whose programs are cached.
const maxGuests = 32

// Guests keep for callers with credentials of their own: a Set for each. Make one with NewGuests.
type Guests struct {
	newSet func(client string) (*Set, error)

	mu     sync.Mutex
	life   context.Context // of Run; nil while it does not run
	owned  sync.WaitGroup
	sets   map[string]*guest
	failed chan error
}

// guest is a caller's.
type guest struct {
	set   *Set
	end   context.CancelFunc
	users int
}

// NewGuests returns Guests that have nobody yet. newSet makes the Set of a client, as Config.Client says.
func NewGuests(newSet func(client string) (*Set, error)) *Guests {
	return &Guests{newSet: newSet, sets: map[string]*guest{}, failed: make(chan error, 1)}
}

// Run keeps until ctx ends, and returns nil when nothing of it is left. A Set that fails ends it.
func (g *Guests) Run(ctx context.Context) error {
	life, cancel := context.WithCancel(ctx)
	g.mu.Lock()
	g.life = life
	g.mu.Unlock()
	defer func() {
		g.mu.Lock()
		g.life = nil
		g.mu.Unlock()
		cancel()
		g.owned.Wait()
	}()
	select {
	case <-ctx.Done():
		return nil
	case err := <-g.failed:
		return err
	}
}

// Use returns the Set of a client, which stays at least until release.
func (g *Guests) Use(client string) (set *Set, release func(), err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.life == nil {
		return nil, nil, errors.New("it has not begun, or is ending")
	}
	found := g.sets[client]
	if found == nil {
		if len(g.sets) >= maxGuests && !g.evict() {
			return nil, nil, fmt.Errorf("%d callers are kept for already", maxGuests)
		}
		if found, err = g.begin(client); err != nil {
			return nil, nil, err
		}
	}
	found.users++
	return found.set, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		found.users--
	}, nil
}

// begin starts the Set of a client. The lock is held.
func (g *Guests) begin(client string) (*guest, error) {
	set, err := g.newSet(client)
	if err != nil {
		return nil, err
	}
	life, end := context.WithCancel(g.life)
	began := &guest{set: set, end: end}
	g.sets[client] = began
	g.owned.Go(func() {
		if err := set.Run(life); err != nil {
			select {
			case g.failed <- err:
			default:
			}
		}
	})
	<-set.Begun()
	return began, nil
}

// evict ends a Set that nobody uses and that follows nothing. The lock is held.
func (g *Guests) evict() bool {
	for client, each := range g.sets {
		if each.users == 0 && each.set.idle() {
			each.end()
			delete(g.sets, client)
			return true
		}
	}
	return false
}

// Status returns the state of each selection of all.
func (g *Guests) Status() []Status {
	g.mu.Lock()
	defer g.mu.Unlock()
	var all []Status
	for _, each := range g.sets {
		all = append(all, each.set.Status()...)
	}
	sortStatus(all)
	return all
}
