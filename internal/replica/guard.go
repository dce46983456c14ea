package replica

import (
	"errors"
	"fmt"
	"time"
)

// ErrSuspicious says that a snapshot would remove more than a healthy source takes away at once. Offer it again later: a
// source that keeps to it is believed.
var ErrSuspicious = errors.New("the snapshot would remove more than half of the objects")

// What makes a snapshot suspicious, and how it is believed. A source that has lost its content, or is not yet filled,
// looks like one whose objects have all been deleted, but rarely for long.
const (
	// GuardMinimum is the number of objects below which nothing is suspicious, as a rule.
	GuardMinimum = 10
	// GuardTries and GuardTime are how often and for how long a suspicious snapshot must have been offered.
	GuardTries = 3
	GuardTime  = 30 * time.Second
	// guardForget is after how long without an offer a new one is another incident.
	guardForget = 10 * time.Minute
)

// Guard refuses suspicious snapshots until they have been offered for long enough. The zero Guard is ready. It is used
// by one goroutine at a time.
type Guard struct {
	first, last time.Time // of the offers of the incident under way
	tries       int       // 0: there is none
}

// Check says whether a snapshot may be applied at time now, which should be monotonic, that removes some of the objects
// that there are; fewer than minimum, GuardMinimum as a rule, are not suspicious. It fails with ErrSuspicious. A snapshot that
// passes ends the incident.
func (g *Guard) Check(now time.Time, minimum, have, remove int) error {
	if have < minimum || 2*remove <= have {
		g.tries = 0
		return nil
	}
	if now.Sub(g.last) > guardForget {
		g.tries = 0
	}
	if g.tries == 0 {
		g.first = now
	}
	g.last = now
	g.tries++
	if since := now.Sub(g.first); g.tries < GuardTries || since < GuardTime {
		return fmt.Errorf("%w: %d of %d; it is believed when offered %d times over %v (now %d times over %v)",
			ErrSuspicious, remove, have, GuardTries, GuardTime, g.tries, since.Round(time.Second))
	}
	g.tries = 0
	return nil
}
