package lead

import (
	"sync"
	"time"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/ends"
)

// remembered is how many renewals a fence keeps for NotBefore: at one a second, those of more than half a minute.
const remembered = 40

// renewal is one acknowledged write of the election Lease.
type renewal struct {
	revision uint64
	sent     ends.Moment
}

// fence decides whether a term is valid.
type fence struct {
	clock ends.Clock

	mu       sync.Mutex
	renewals []renewal // in the order of their revisions; the last ones only
	fallen   bool
}

// term returns the term that the fence guards. The term is valid until the fence falls, and only for 3.5 s after this hub sent
// its last acknowledged renewal. Other hubs wait longer. The term's NotBefore takes a revision, and returns the time at which
// this hub sent the last renewal with a lower revision. Usually that is at most a second before the coordinator wrote the given
// revision. If the revision is from before the term, or older than some 40 s, NotBefore returns false.
func (f *fence) term(transitions int32) edge.Term {
	return edge.Term{
		Transitions: transitions, Valid: func() bool { return f.valid(f.clock.Now()) }, NotBefore: f.notBefore,
	}
}

// acknowledge records that the renewal sent at a moment was acknowledged with a revision.
func (f *fence) acknowledge(revision uint64, sent ends.Moment) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if n := len(f.renewals); n > 0 && f.renewals[n-1].revision >= revision {
		return
	}
	if len(f.renewals) == remembered {
		f.renewals = append(f.renewals[:0], f.renewals[1:]...)
	}
	f.renewals = append(f.renewals, renewal{revision, sent})
}

// fall ends the term for good.
func (f *fence) fall() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fallen = true
}

func (f *fence) valid(now ends.Moment) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fallen || len(f.renewals) == 0 {
		return false
	}
	return now.Sub(f.renewals[len(f.renewals)-1].sent) < leaseDuration-fenceMargin
}

func (f *fence) notBefore(revision uint64) (time.Time, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := len(f.renewals) - 1; i >= 0; i-- {
		if f.renewals[i].revision < revision {
			return f.renewals[i].sent.Running, true
		}
	}
	return time.Time{}, false
}
