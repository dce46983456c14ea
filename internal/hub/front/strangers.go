package front

import (
	"crypto/sha256"
	"net/http"
	"sync"
	"time"

	"k8s.io/utils/lru"

	"yurtcoordinator/internal/conns"
	"yurtcoordinator/internal/ends"
)

const (
	// mostUnproven is how many requests of one address may go to the cloud within unprovenTime with tokens that the cloud has
	// not accepted: 2 a second.
	mostUnproven, unprovenTime = 20, 10 * time.Second
	// provenFor is how long a token counts as accepted after an answer that showed it. maxProven bounds how many are remembered.
	provenFor, maxProven = 10 * time.Minute, 1000
)

// strangers bounds what goes over the WAN for those whom the cloud does not know, because it would refuse them in the end. Until
// the cloud has accepted a token, few requests with it pass, and none with a large body. A nil one bounds nothing. Safe for
// concurrent use.
type strangers struct {
	clock ends.Clock
	pace  *budget

	mu     sync.Mutex
	proven *lru.Cache // of time.Time on the running clock, by the token's digest
}

func newStrangers(c ends.Clock) *strangers {
	return &strangers{clock: c, pace: newBudget(c, mostUnproven, unprovenTime), proven: lru.New(maxProven)}
}

// admit reports whether a request may go to the cloud. It calls known, which finds out whose the token is, only if the request is
// too much for a stranger.
func (s *strangers) admit(r *http.Request, known func() bool) bool {
	if s == nil {
		return true
	}
	s.mu.Lock()
	found, _ := s.proven.Get(sha256.Sum256([]byte(Bearer(r))))
	s.mu.Unlock()
	if at, ok := found.(time.Time); ok && s.clock.Since(at) < provenFor {
		return true
	}
	small := 0 <= r.ContentLength && r.ContentLength <= BodyBytes && r.Header.Get("Upgrade") == ""
	return small && s.pace.spend(conns.SourceOf(r)) || Bearer(r) != "" && known()
}

// accepted notes that the cloud has accepted a request's token.
func (s *strangers) accepted(token string) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.proven.Add(sha256.Sum256([]byte(token)), s.clock.Running())
}

// refused notes that the cloud has not accepted it.
func (s *strangers) refused(token string) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.proven.Remove(sha256.Sum256([]byte(token)))
}
