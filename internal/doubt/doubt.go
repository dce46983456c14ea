// Package doubt decides when to believe a source that contradicts what is known. A source that has lost its content, or has not
// been filled yet, looks as if all its objects were deleted. But it rarely looks so for long.
//
// A Policy holds the times on which several packages must agree. All packages that read, serve or wait for such a source use the
// same Policy.
//
// The package is pure: callers pass the time, which should be monotonic.
package doubt

import (
	"errors"
	"fmt"
	"time"
)

// ErrSuspicious says that a snapshot would remove more objects than a healthy source removes at once. Offer the snapshot again
// later: the source is believed if it insists.
var ErrSuspicious = errors.New("the snapshot would remove more than half of the objects")

const (
	// Minimum is the usual number of objects below which nothing is suspicious.
	Minimum = 10
	// tries is how often a source must insist.
	tries = 3
	// forgetAfter is the time without an offer after which the next offer begins a new incident.
	forgetAfter = 10 * time.Minute
)

// Policy is how long a source is doubted.
type Policy struct {
	// For is how long a source must insist, in at least three offers.
	For time.Duration
	// Enough is the time since the first offer after which a second is believed, however few there were. 0 means never.
	Enough time.Duration
}

// Shown is the policy if the known content came from the same source: then either it changed, or the source has lost it.
func Shown() Policy { return Policy{For: 30 * time.Second} }

// Restored is the policy if the known content came only from the disk. The objects may well have been deleted while the node was
// off, and a client waits for the answer. So the source is believed after three offers in at least 8 s, or two in at least 10 s.
func Restored() Policy { return Policy{For: 8 * time.Second, Enough: 10 * time.Second} }

// Pause is how long to wait between two offers. Then the last necessary offer (tries) comes no earlier than For after the first.
// Callers add a random part of up to Spread.
func (p Policy) Pause() time.Duration { return p.For / (tries - 1) }

// Spread is the most to add to Pause: together the pauses stay within Enough.
func (p Policy) Spread() time.Duration { return p.Pause() / 10 }

// Longest is how long a source whose answers take no time may be doubted.
func (p Policy) Longest() time.Duration { return (tries - 1) * (p.Pause() + p.Spread()) }

// Doubt is one contradiction and the offers of it. The zero Doubt is ready. One goroutine at a time uses it.
type Doubt struct {
	first, last time.Time // of the offers of the incident under way
	offers      int       // 0 means that there is none
}

// Offer records that a source contradicts what is known, and reports whether to believe the source now. If so, Offer forgets all
// offers until now.
func (d *Doubt) Offer(now time.Time, p Policy) bool {
	if now.Sub(d.last) > forgetAfter {
		d.offers = 0
	}
	if d.offers == 0 {
		d.first = now
	}
	d.last = now
	d.offers++
	since := now.Sub(d.first)
	if d.offers >= tries && since >= p.For || d.offers > 1 && p.Enough > 0 && since >= p.Enough {
		d.offers = 0
		return true
	}
	return false
}

// Clear records that the source contradicts nothing.
func (d *Doubt) Clear() { d.offers = 0 }

// Guard refuses suspicious snapshots until they have been offered for long enough. The zero Guard is ready. Only one goroutine
// at a time may use it.
type Guard struct {
	doubt Doubt
}

// Check returns nil if a snapshot may be applied now, and ErrSuspicious if not. The parameter have is the number of present
// objects. The parameter remove is the number of those that the snapshot would remove. With fewer than minimum present objects
// (usually Minimum), nothing is suspicious. If Check returns nil, it forgets all snapshots offered until now.
func (g *Guard) Check(now time.Time, p Policy, minimum, have, remove int) error {
	if have < minimum || 2*remove <= have {
		g.doubt.Clear()
		return nil
	}
	if g.doubt.Offer(now, p) {
		return nil
	}
	return fmt.Errorf("%w: %d of %d; it is believed when offered %d times over %v (now %d times over %v)", ErrSuspicious,
		remove, have, tries, p.For, g.doubt.offers, now.Sub(g.doubt.first).Round(time.Second))
}
