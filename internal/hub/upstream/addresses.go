package upstream

import (
	"context"
	"net/netip"
	"time"

	"k8s.io/klog/v2"

	"yurtcoordinator/internal/hub/link"
)

// lookupTimeout bounds one question to a name server.
const lookupTimeout = 5 * time.Second

// addressTiming says how fast connections follow a name's addresses.
type addressTiming struct {
	// look is the time between two questions to the name server.
	look time.Duration
	// left is how long an address must be missing in all answers before it counts as removed. One answer is not enough, because
	// some name servers return only a few of many addresses each time.
	left time.Duration
	// drain is how long requests and watches may continue at a removed address, once new requests use another address.
	drain time.Duration
}

// followed is the timing of every hub: a hub gives up a removed address after 3 minutes at most.
var followed = addressTiming{look: 30 * time.Second, left: 2 * time.Minute, drain: 30 * time.Second}

// absences records since when addresses have been missing in a name server's answers.
type absences map[netip.Addr]time.Time

// answer adds a name server's answer. It returns the used addresses that have been missing for atLeast.
func (a absences) answer(named, used []netip.Addr, at time.Time, atLeast time.Duration) (left []netip.Addr) {
	in := map[netip.Addr]bool{}
	for _, address := range named {
		in[address] = true
	}
	using := map[netip.Addr]bool{}
	for _, address := range used {
		using[address] = true
		if in[address] {
			continue
		}
		since, missing := a[address]
		if !missing {
			a[address], since = at, at
		}
		if at.Sub(since) >= atLeast {
			left = append(left, address)
		}
	}
	for address := range a {
		if in[address] || !using[address] {
			delete(a, address)
		}
	}
	return left
}

// followAddresses watches which addresses a server's name has, until ctx ends. Once an address counts as removed, new requests
// use the present addresses. Requests at the removed address may continue for addressTiming.drain; then their connections are
// reset. While the server answers at no present address, requests stay where they are.
func (u *Upstream) followAddresses(ctx context.Context, s *server) error {
	timing := u.cfg.addresses
	ticker := time.NewTicker(timing.look)
	defer ticker.Stop()
	missing, moved := absences{}, map[netip.Addr]time.Time{}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		asking, cancel := context.WithTimeout(ctx, lookupTimeout)
		named, follow, err := u.cfg.Addresses(asking, s.addr)
		cancel()
		if err != nil || !follow {
			continue // nobody says where the name leads: all stay where they are
		}
		now := u.cfg.Ends.Running()
		left := missing.answer(named, s.session.Remotes(), now, timing.left)
		next := map[netip.Addr]time.Time{}
		for _, address := range left {
			at, done := moved[address]
			if !done {
				if err := u.move(ctx, s); err != nil {
					break
				}
				klog.FromContext(ctx).Info("The server's name has left an address; new requests go where it leads now",
					"server", s.addr, "address", address.String())
				at = now
			}
			next[address] = at
			if now.Sub(at) >= timing.drain {
				s.session.Leave(address)
			}
		}
		moved = next
	}
}

// move makes new requests use new connections, if a server answers at one of the name's present addresses.
func (u *Upstream) move(ctx context.Context, s *server) error {
	trying, cancel := context.WithTimeout(ctx, u.cfg.Link.MaxDownTimeout)
	defer cancel()
	if err := s.probe(trying, link.Fresh); err != nil {
		return err
	}
	u.installing.Lock()
	defer u.installing.Unlock()
	s.session.Renew(u.credentials.Load())
	return nil
}
