package lead

import (
	"maps"
	"slices"
	"time"

	"yurtcoordinator/internal/edge"
)

const (
	// lineFactor is how many times as long a leader's line must take, and lineMargin how much longer, for another to be better. A
	// line that takes less than lineMargin is good enough for a leader: what it pushes waits no longer than for a busy API
	// server.
	lineFactor = 2
	lineMargin = 100 * time.Millisecond

	// lostCosts is what each heartbeat of the last ten minutes that the cloud did not answer adds to what a line takes: about as
	// long as the hub waited for it.
	lostCosts = time.Second

	// endurable is what a line may take for a node whose bytes are not paid for to be better than one whose bytes are.
	endurable = 2 * time.Second

	// linePatience is how long another line must be better without a break: six heartbeats.
	linePatience = time.Minute
)

// takes is how long the answer to a request takes on a line, or may well take: what TCP would wait for it, and more for each
// heartbeat that was lost.
func takes(l edge.Line) time.Duration { return l.Answer + 4*l.Spread + time.Duration(l.Lost)*lostCosts }

// better reports whether a pool is so much better off with a leader on line a than on line b that a change is worth it. No two
// lines are each better than the other.
func better(a, b edge.Line) bool {
	switch {
	case a.Metered && !b.Metered:
		return false
	case !a.Metered && b.Metered:
		return takes(a) <= max(endurable, lineFactor*takes(b))
	}
	return lineFactor*takes(a) <= takes(b) && takes(a)+lineMargin <= takes(b)
}

// comparison decides when a leader leaves the lead to another. It does no I/O and asks no clock.
type comparison struct {
	self edge.NodeName
	// since says since when each other's line has been better than ours at every look.
	since map[edge.NodeName]time.Time
}

// look takes in the lines of the nodes that could lead, this one's among them, and returns the best of those that have been
// better for long enough; false means that none has. A node that is not there could not lead.
func (j *comparison) look(lines map[edge.NodeName]edge.Line, now time.Time) (edge.NodeName, bool) {
	own, known := lines[j.self]
	since := map[edge.NodeName]time.Time{}
	var best edge.NodeName
	for _, node := range slices.Sorted(maps.Keys(lines)) {
		if !known || node == j.self || !better(lines[node], own) {
			continue
		}
		since[node] = now
		if before, was := j.since[node]; was {
			since[node] = before
		}
		if now.Sub(since[node]) >= linePatience && (best == "" || preferred(lines[node], lines[best])) {
			best = node
		}
	}
	j.since = since
	return best, best != ""
}

// preferred reports whether to choose line a over b, where both are better than ours.
func preferred(a, b edge.Line) bool {
	if a.Metered != b.Metered {
		return !a.Metered
	}
	return takes(a) < takes(b)
}
