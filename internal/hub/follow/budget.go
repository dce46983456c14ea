package follow

import (
	"context"
	"errors"
	"time"

	"k8s.io/klog/v2"

	"yurtcoordinator/internal/hub/history"
	"yurtcoordinator/internal/store"
	"yurtcoordinator/internal/stream"
	"yurtcoordinator/internal/stream/remote"
)

const (
	// nodeBytes bounds what the node's programs have followed for them, encoded: a thousand ConfigMaps and Secrets of kubelet's
	// are some MB, all Services and EndpointSlices of a cluster of 5000 Services some 20 MB. guestBytes bounds what one caller
	// with credentials of its own has, and guestsBytes what all have: a hub's memory is for the node first, and one that is
	// killed for its memory takes kubelet's API server with it.
	nodeBytes, guestBytes, guestsBytes = 128 << 20, 8 << 20, 32 << 20
	// passOnFor is how long what was too large is passed on before it is tried again: it costs its list each time.
	passOnFor = 10 * time.Minute
	// maxPassedOn bounds how many selections are remembered to have been too large.
	maxPassedOn = 1000
)

// errTooLarge says that a selection has more than its client may have followed.
var errTooLarge = errors.New("it is too large to be followed; the cloud answers it")

// budget is how many bytes a client may have in all.
func budget(client string) int {
	switch client {
	case Hub:
		return 0 // no bound: what a pool shares is its operator's choice
	case "":
		return nodeBytes
	default:
		return guestBytes
	}
}

// giveUp has a selection be answered by the cloud from now on: it does not fit. It may be called by its feed.
func (s *Set) giveUp(m *Member) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !m.ending {
		s.giveUpLocked(m, time.Now())
	}
}

func (s *Set) giveUpLocked(m *Member, now time.Time) {
	klog.FromContext(m.life).Info("No longer following what is too large; the cloud answers it", "what", m.id(),
		"bytes", m.Replica.Stats().ObjectBytes)
	if len(s.tooLarge) >= maxPassedOn {
		clear(s.tooLarge)
	}
	s.tooLarge[m.id()] = now.Add(passOnFor)
	m.forget = true
	s.endLocked(m)
}

// keepToBudgetLocked gives up what does not fit, the largest of each client first.
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
			s.giveUpLocked(m, now)
			continue
		}
		if client != "" && (most == nil || used[client] > used[most.Client]) {
			most = m
		}
	}
	if all > guestsBytes && most != nil && !most.ending {
		s.giveUpLocked(most, now)
	}
}

// fitsLocked reports, as an error, that a selection was too large lately.
func (s *Set) fitsLocked(id store.Collection, now time.Time) error {
	if until, was := s.tooLarge[id]; was {
		if now.Before(until) {
			return errTooLarge
		}
		delete(s.tooLarge, id)
	}
	return nil
}

// bounded says so when a list is larger than its source allows.
type bounded struct {
	*remote.Source // which proves the cloud's history, too
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

var _ history.Prover = (*bounded)(nil) // by its pointer: it is a key of a map
