package relay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/ends"
	"yurtcoordinator/internal/run"
)

const (
	// askTimeout bounds a question to a coordinator. askedFor is the least time between two questions for DialContext.
	askTimeout = 2 * time.Second
	askedFor   = time.Second
	// maxAnswer bounds a coordinator's answer, in bytes. edge.MostRelaying neighbours with names of the greatest length fit
	// into it.
	maxAnswer = 16 << 10
	// enough is how many neighbours a hub wants to know. With that many it asks no further coordinator.
	enough = 8
	// keepEvery is how often Run asks the coordinators, less up to a fifth at random, so that hubs don't ask in step. Run
	// begins within keepSoon, and tries again after keepSoon if a question fails.
	keepEvery, keepSoon = time.Minute, 10 * time.Second
	// shortPause and longPause are the first and the longest pause after a try that found no neighbour.
	shortPause, longPause = 2 * time.Second, 30 * time.Second
)

// search is the state of a Client's search: which neighbours it may try, and when. It is safe for concurrent use.
type search struct {
	mu     sync.Mutex
	known  []edge.Neighbour // from the last answer that named some, ranked
	named  []edge.Neighbour // from the last answer; the same as known if the last question failed
	asked  time.Time        // when the coordinators were last asked; zero means never
	failed failures

	lost    bool // the last try found no neighbour
	pause   run.Backoff
	resumes time.Time // no try before that time
	why     error     // of the last try
}

func newSearch() search {
	return search{failed: failures{}, pause: run.Backoff{Min: shortPause, Max: longPause}}
}

// resting returns the last try's error if it is too early for another try. lost says that the coordinators must be asked first,
// because no neighbour is known or the known ones do not help.
func (s *search) resting(now time.Time) (lost bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Before(s.resumes) {
		return false, s.why
	}
	return s.lost || len(s.named) == 0, nil
}

// rest records that a try found no neighbour, and begins a pause.
func (s *search) rest(why error, now time.Time, chance ends.Chance) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Before(s.resumes) {
		return // another one, at the same time, has found that too
	}
	if now.Sub(s.resumes) > longPause {
		s.pause.Reset() // the try before was another cut's
	}
	s.lost, s.why, s.resumes = true, why, now.Add(s.pause.Next(chance.Float64()))
}

// note records how a try at a neighbour ended.
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
func (s *search) candidates(now time.Time) []edge.Neighbour {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := slices.Clone(s.named)
	s.failed.last(all, now)
	return all
}

// asks reports whether the coordinators may be asked now, and if so, records the present as the time of the last question. The
// parameter since is the least time between two questions.
func (s *search) asks(now time.Time, since time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.asked.IsZero() && now.Sub(s.asked) < since {
		return false
	}
	s.asked = now
	return true
}

// answered stores the neighbours that the coordinators name. After an error, it keeps those known before.
func (s *search) answered(all []edge.Neighbour, err error) {
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

// Run asks the coordinators once a minute which neighbours relay, so that neighbours are known before they are needed. It ends
// with ctx, and returns nil.
func (c *Client) Run(ctx context.Context) error {
	c.recall()
	var kept []edge.Neighbour
	for pause := c.cfg.Chance.Below(keepSoon); run.Pause(ctx, pause) == nil; {
		pause = keepEvery - c.cfg.Chance.Below(keepEvery/5)
		if _, err := c.cfg.Credentials.own(); err != nil || !c.cfg.Wanted() {
			continue
		}
		if err := c.refresh(ctx, keepEvery/2); err != nil {
			pause = keepSoon
			klog.FromContext(ctx).V(2).Info("Who relays is not known", "err", err)
		}
		kept = c.keep(ctx, kept)
	}
	return nil
}

// refresh asks the coordinators which neighbours relay, unless they were asked a short time ago.
func (c *Client) refresh(ctx context.Context, since time.Duration) error {
	if !c.search.asks(c.cfg.Clock.Running(), since) {
		return nil
	}
	all, err := c.relaying(ctx)
	c.search.answered(all, err)
	return err
}

// errUnreached says that no coordinator can be asked which neighbours relay.
var errUnreached = errors.New("ask who relays: this hub reaches no coordinator of the pool")

// relaying returns the neighbours that relay, ranked. It asks the coordinators that this hub reaches, one after the other, until
// it knows enough neighbours, because a neighbour may reach only one coordinator. It fails if this hub reaches no coordinator. It
// also fails if it learns of no neighbour and a coordinator has not answered.
func (c *Client) relaying(ctx context.Context) (all []edge.Neighbour, err error) {
	reached := c.cfg.Coordinators()
	if len(reached) == 0 {
		return nil, errUnreached
	}
	for _, slot := range slices.Sorted(maps.Keys(reached)) {
		named, failed := relayingAt(ctx, reached[slot])
		if failed != nil {
			err = errors.Join(err, fmt.Errorf("ask the coordinator in slot %d who relays: %w", slot, failed))
		}
		for _, n := range named {
			if !slices.ContainsFunc(all, func(other edge.Neighbour) bool { return other.Name == n.Name }) {
				all = append(all, n)
			}
		}
		if len(all) >= enough {
			break
		}
	}
	if len(all) == 0 {
		return nil, err
	}
	edge.RankNeighbours(c.cfg.Node, all)
	return all, nil
}

// errOtherwise says that a coordinator does not know the question. A coordinator of an older version sends its presence
// instead.
var errOtherwise = errors.New("it does not say who relays")

// relayingAt returns the neighbours that one coordinator names.
func relayingAt(ctx context.Context, at rest.Interface) ([]edge.Neighbour, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	said, err := at.Get().AbsPath(edge.PathState).Param(edge.QueryRelaying, "true").
		SetHeader("Accept", runtime.ContentTypeJSON).Stream(ctx)
	if err != nil {
		return nil, err
	}
	defer said.Close()
	var answer edge.Relaying
	if err := json.NewDecoder(io.LimitReader(said, maxAnswer)).Decode(&answer); err != nil {
		return nil, fmt.Errorf("%w: %w", errOtherwise, err)
	}
	if answer.Neighbours == nil {
		return nil, errOtherwise
	}
	return answer.Neighbours, nil
}
