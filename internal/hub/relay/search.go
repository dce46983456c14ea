package relay

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/ends"
	"yurtcoordinator/internal/run"
)

const (
	// askTimeout bounds a question to the coordinator, and askedFor is how long nobody asks it again.
	askTimeout = 2 * time.Second
	askedFor   = time.Second
	// enough is how many neighbours a hub wants to know, and page how many Leases it takes at a time until it knows them. In a
	// large pool all hubs take the first page, whose nodes can carry hundreds of others.
	enough, page = 8, 32
	// shortPause and longPause are the first and the longest pause after a try that found nobody.
	shortPause, longPause = 2 * time.Second, 30 * time.Second
)

// search is whom a Client may try, and when. It is safe for concurrent use.
type search struct {
	mu     sync.Mutex
	known  []neighbour // those that the coordinator named last, ranked; if it named nobody, those before
	named  []neighbour // those of its last answer; while it gives none, known
	asked  time.Time   // zero: never
	failed failures

	lost    bool // the last try found nobody
	pause   run.Backoff
	resumes time.Time // no try before
	why     error     // of the last one
}

func newSearch() search {
	return search{failed: failures{}, pause: run.Backoff{Min: shortPause, Max: longPause}}
}

// resting returns why the last try found nobody, if it is too early for another. lost says that the coordinator is to be asked
// before that one: who is known does not help, or nobody is.
func (s *search) resting(now time.Time) (lost bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Before(s.resumes) {
		return false, s.why
	}
	return s.lost || len(s.named) == 0, nil
}

// rest takes in that a try found nobody.
func (s *search) rest(why error, now time.Time, chance ends.Chance) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Before(s.resumes) {
		return // another one, at the same time, has found that too
	}
	s.lost, s.why, s.resumes = true, why, now.Add(s.pause.Next(chance.Float64()))
}

// note takes in how a try at a neighbour ended.
func (s *search) note(name edge.NodeName, ok bool, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed.note(name, ok, now)
	if ok {
		s.foundLocked()
	}
}

func (s *search) foundLocked() {
	s.lost, s.why, s.resumes = false, nil, time.Time{}
	s.pause.Reset()
}

// candidates returns the neighbours in the order in which to try them.
func (s *search) candidates(now time.Time) []neighbour {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := slices.Clone(s.named)
	s.failed.last(all, now)
	return all
}

// asks reports whether to ask the coordinator, which nobody has done for some time, and notes that it is done.
func (s *search) asks(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.asked.IsZero() && now.Sub(s.asked) < askedFor {
		return false
	}
	s.asked = now
	return true
}

// answered takes in whom the coordinator names. While it does not say, those known before count.
func (s *search) answered(all []neighbour, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.named = s.known
		return
	}
	s.named = all
	if len(all) > 0 {
		s.known = all
	}
}

// ask asks the coordinator which neighbours relay.
func (c *Client) ask(ctx context.Context) error {
	if !c.search.asks(c.cfg.Clock.Running()) {
		return nil
	}
	all, err := c.relaying(ctx)
	c.search.answered(all, err)
	return err
}

// relaying returns the neighbours that relay, as the coordinator knows, ranked: all of them, or enough.
func (c *Client) relaying(ctx context.Context) (all []neighbour, err error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	those := metav1.ListOptions{ResourceVersion: "0", LabelSelector: edge.LabelRelays, Limit: page}
	for {
		found, err := c.cfg.Coordinator.Leases(corev1.NamespaceNodeLease).List(ctx, those)
		if err != nil {
			return nil, fmt.Errorf("ask the coordinator who relays: %w", err)
		}
		all = append(all, neighbours(c.cfg.Node, found.Items)...)
		if those.Continue = found.Continue; those.Continue == "" || len(all) >= enough {
			rank(c.cfg.Node, all)
			return all, nil
		}
	}
}
