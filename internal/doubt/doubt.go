// Package doubt says when a source is believed that contradicts what is known. A source that has lost its content, or is
// not filled yet, looks like one whose objects have all been deleted, but rarely for long.
//
// One policy has everything that has to agree: how often and for how long a source must insist, and how long to wait
// before it is asked again. Whoever asks, whoever is asked, and whoever waits for either take their times from it.
//
// It is pure: it is told the time, which should be monotonic.
package doubt

import (
	"errors"
	"fmt"
	"time"
)

// ErrSuspicious says that a snapshot would remove more than a healthy source takes away at once. Offer it again later: a
// source that keeps to it is believed.
var ErrSuspicious = errors.New("the snapshot would remove more than half of the objects")

const (
	// Minimum is the number of objects below which nothing is suspicious, as a rule.
	Minimum = 10
	// tries is how often a source must insist.
	tries = 3
	// forgetAfter is after how long without an offer a new one is another incident.
	forgetAfter = 10 * time.Minute
)

// Policy is how long a source is doubted.
type Policy struct {
	// For is how long a source must insist, in at least three offers.
	For time.Duration
	// Enough is the time since the first offer after which a second is believed, however few there were. 0 means never.
	Enough time.Duration
}

// Shown is the policy for what a source has itself shown to be so: it must have changed its mind, or its content is lost.
func Shown() Policy { return Policy{For: 30 * time.Second} }

// Restored is the policy for what only the disk says. A node that was off may well have lost its objects meanwhile, and
// whoever asks for them waits: it is asked again for at most 10 s.
func Restored() Policy { return Policy{For: 8 * time.Second, Enough: 10 * time.Second} }

// Pause is how long to wait before the next offer, so that the last needed comes no earlier than For. Add up to Spread of
// it at random.
func (p Policy) Pause() time.Duration { return p.For / (tries - 1) }

// Spread is the most to add to Pause: together the pauses stay within Enough.
func (p Policy) Spread() time.Duration { return p.Pause() / 10 }

// Longest is how long a source may be doubted whose answers take no time.
func (p Policy) Longest() time.Duration { return (tries - 1) * (p.Pause() + p.Spread()) }

// Doubt is one contradiction, as often as it was offered. The zero Doubt is ready. It is used by one goroutine at a time.
type Doubt struct {
	first, last time.Time // of the offers of the incident under way
	offers      int       // 0 means that there is none
}

// Offer takes in that a source contradicts what is known, and reports whether it is believed now. What is believed ends
// the incident.
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

// Clear takes in that the source contradicts nothing.
func (d *Doubt) Clear() { d.offers = 0 }

// Guard refuses suspicious snapshots until they have been offered for long enough. The zero Guard is ready. It is used
// by one goroutine at a time.
type Guard struct {
	doubt Doubt
}

// Check says whether a snapshot may be applied at time now that removes some of the objects that there are; fewer than
// minimum, Minimum as a rule, are not suspicious. It fails with ErrSuspicious. A snapshot that passes ends the incident.
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
