package cache

import (
	"context"
	"errors"
	"time"

	"k8s.io/klog/v2"

	"yurtcoordinator/internal/store"
	"yurtcoordinator/internal/stream"
	"yurtcoordinator/internal/stream/remote"
)

const (
	// nodeBytes bounds the encoded objects that the hub follows for the node's programs, guestBytes those for one caller, and
	// guestsBytes those for all callers together. If a hub were killed for its memory, kubelet would lose its API server. A
	// thousand ConfigMaps and Secrets are some MB; all Services and EndpointSlices of a cluster of 5000 Services are some 20 MB.
	nodeBytes, guestBytes, guestsBytes = 128 << 20, 8 << 20, 32 << 20
	// passOnFor is how long the cloud answers a selection that was too large. Then the hub tries to follow it again, which costs
	// a list.
	passOnFor = 10 * time.Minute
	// maxPassedOn bounds how many too large selections the hub remembers.
	maxPassedOn = 1000
)

// errTooLarge says that a selection is larger than its client's budget.
var errTooLarge = errors.New("it is too large to be followed; the cloud answers it")

// budget returns how many bytes the hub follows for a client in all; 0 means no bound but that of a list (remote.Config).
func budget(client string) int {
	switch client {
	case Hub:
		return 0 // what a pool shares is its operator's choice
	case "":
		return nodeBytes
	default:
		return guestBytes
	}
}

// giveUp stops following a selection that does not fit; from now on the cloud answers it. The selection's feed may call giveUp.
func (s *Set) giveUp(m *Member) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !m.ending {
		s.giveUpLocked(m, budget(m.Client), s.cfg.Ends.Running())
	}
}

// giveUpLocked is giveUp for a selection that does not fit into its bound (most, in bytes).
func (s *Set) giveUpLocked(m *Member, most int, now time.Time) {
	klog.FromContext(m.life).Info("No longer following a selection that is too large; the cloud answers it", "what", m.id(),
		"bytes", m.Replica.Stats().ObjectBytes, "bound", most)
	s.cfg.TooLarge(m.id(), most)
	if len(s.tooLarge) >= maxPassedOn {
		clear(s.tooLarge)
	}
	s.tooLarge[m.id()] = now.Add(passOnFor)
	m.forget = true
	s.endLocked(m)
}

// keepToBudgetLocked gives up selections that do not fit, each client's largest first.
func (s *Set) keepToBudgetLocked(now time.Time) {
	used, largest := map[string]int{}, map[string]*Member{}
	all := 0
	for _, m := range s.members {
		if m.fixed() || m.ending {
			continue
		}
		bytes := m.Replica.Stats().ObjectBytes
		used[m.Client] += bytes
		if m.Client != "" {
			all += bytes
		}
		if l := largest[m.Client]; l == nil || l.Replica.Stats().ObjectBytes < bytes {
			largest[m.Client] = m
		}
	}
	var most *Member // the largest of all callers with credentials of their own
	for client, m := range largest {
		if used[client] > budget(client) {
			s.giveUpLocked(m, budget(client), now)
			continue
		}
		if client != "" && (most == nil || used[client] > used[most.Client]) {
			most = m
		}
	}
	if all > guestsBytes && most != nil && !most.ending {
		s.giveUpLocked(most, guestsBytes, now)
	}
}

// fitsLocked returns an error if a selection was too large lately.
func (s *Set) fitsLocked(id store.Collection, now time.Time) error {
	if until, was := s.tooLarge[id]; was {
		if now.Before(until) {
			return errTooLarge
		}
		delete(s.tooLarge, id)
	}
	return nil
}

// bounded is a source that calls tooLarge when a list exceeds the client's budget.
type bounded struct {
	*remote.Source // which also proves the cloud's history
	tooLarge       func()
}

// Snapshot implements stream.Source.
func (b *bounded) Snapshot(ctx context.Context) (stream.Snapshot, error) {
	s, err := b.Source.Snapshot(ctx)
	if errors.Is(err, stream.ErrTooLarge) {
		b.tooLarge()
	}
	return s, err
}

var _ Prover = (*bounded)(nil) // by its pointer, because it is a key of a map
