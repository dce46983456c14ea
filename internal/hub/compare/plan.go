package compare

import (
	"hash/fnv"
	"math"
	"time"

	"yurtcoordinator/internal/edge"
)

const (
	// share is the smallest part of a resource's objects that is to be lied about for a lie to be found within a period, and
	// found is the probability with which it then is.
	share, found = 0.1, 0.99

	// countsEach is how often within a period the number of a resource's objects is compared: objects that are left out are never
	// drawn, so a number must be, with the same probability.
	countsEach = 5
)

// Timing says how often a pool's followers compare, all of them together.
type Timing struct {
	// Period is how long it may take until a lie about a tenth of the objects is found.
	Period time.Duration
	// Window is half of how long it may take until a lie about one object is found: each resource is listed once in each window,
	// at a time within it that nobody knows before.
	Window time.Duration
	// PerDay is how many bytes the pool may spend for it in a day.
	PerDay int64
}

// Standard is the timing where bytes are not paid for.
func Standard() Timing { return Timing{Period: time.Hour, Window: 12 * time.Hour, PerDay: 10 << 20} }

// Metered is the timing of a pool whose lines are paid for by the byte: lists cost less than looks, so those are saved.
func Metered() Timing { return Timing{Period: 4 * time.Hour, Window: 12 * time.Hour, PerDay: 3 << 20} }

// Every returns the timing with another period, and all else in proportion.
func (t Timing) Every(period time.Duration) Timing {
	by := float64(period) / float64(t.Period)
	return Timing{
		Period: period, Window: time.Duration(float64(t.Window) * by),
		PerDay: int64(min(float64(t.PerDay)/by, 1<<50)),
	}
}

// looksFor returns how many objects of n must be drawn in a period, each from all and at a random time, so that at least one of
// those that are lied about is drawn with the probability found, if they are share of all or more. A period may have a few draws
// more or less than that: of k draws expected, none is of the lies with e^(-k × their share).
func looksFor(n int) int {
	if n == 0 {
		return 0
	}
	lies := math.Ceil(share * float64(n))
	return int(math.Ceil(-math.Log(1-found) * float64(n) / lies))
}

// pauseOf returns the mean pause between two draws of one follower of several, where resources have so many objects.
func pauseOf(t Timing, sizes []int, followers int) time.Duration {
	draws := 0
	for _, n := range sizes {
		draws += looksFor(n) + countsEach
	}
	if draws == 0 {
		return t.Period
	}
	return t.Period * time.Duration(max(followers, 1)) / time.Duration(draws)
}

// lister returns whose turn it is to list a resource in a window: an index into the followers, which all of them sort alike. It
// goes round, so that no single one is relied on.
func lister(resource string, window int64, followers int) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(resource))
	return int((int64(h.Sum32()) + window) % int64(max(followers, 1)))
}

// purse is what one follower may still spend. It is filled evenly.
type purse struct {
	bytes float64
	at    time.Time
}

// fill adds what has come since, and keeps no more than half a day's, or a first list could not be paid.
func (p *purse) fill(now time.Time, perDay float64) {
	if p.at.IsZero() {
		p.bytes = perDay / 2
	} else {
		p.bytes = min(p.bytes+perDay*now.Sub(p.at).Hours()/24, perDay/2)
	}
	p.at = now
}

// seen is an object as one side has it.
type seen struct {
	found    bool
	revision edge.Revision
	digest   digest
}

// verdict is what came of a comparison.
type verdict uint8

const (
	// behind: the replica has not come as far as the cloud was; wait.
	behind verdict = iota
	// same: both say the same.
	same
	// changed: the replica has it from later than the cloud was asked. That says nothing.
	changed
	// missing: the cloud had it, and the replica has it no more. It may have been deleted since.
	missing
	// omitted: the cloud has it unchanged, and the replica never had it.
	omitted
	// invented: the replica has what the cloud had not.
	invented
	// differs: the replica has something else than the cloud had.
	differs
	// ahead: the replica had a revision that the cloud has yet to give.
	ahead
	// withheld: the replica does not come as far as the cloud was.
	withheld
)

func (v verdict) String() string {
	return [...]string{
		"behind", "same", "changed", "missing", "omitted", "invented", "differs", "ahead", "withheld",
	}[v]
}

// lie reports whether an honest coordinator can't have caused it.
func (v verdict) lie() bool { return v >= omitted }

// judge compares an object as the cloud had it at a revision with what the replica has, which has come as far as position.
func judge(cloud seen, at edge.Revision, here seen, position edge.Revision) verdict {
	switch {
	case position < at:
		return behind
	case here.found && here.revision > at:
		return changed
	case here.found && !cloud.found:
		return invented
	case here.found && here != cloud:
		return differs
	case !here.found && cloud.found:
		return missing
	}
	return same
}

// judgeBefore compares an object as the replica had it before the cloud was asked with what the cloud had at a revision, and says
// what can be said at once: a replica that changes with each look is judged, too.
func judgeBefore(cloud seen, at edge.Revision, before seen, position edge.Revision) verdict {
	switch {
	case position > at || before.found && before.revision > at:
		return ahead
	case before.found && cloud.found && before.revision > cloud.revision:
		return differs // it can't have gone back
	case before.found && cloud.found && before.revision == cloud.revision && before != cloud:
		return differs
	}
	return behind
}
