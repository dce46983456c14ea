package lead

import (
	"maps"
	"slices"
	"time"

	"yurtcoordinator/internal/edge"
)

const (
	// lineFactor and lineMargin define when another line is better than the leader's, if both or neither are metered. A request
	// must take lineFactor times as long on the leader's line, and lineMargin longer. A leader whose requests take less than
	// lineMargin is good enough, because a busy API server makes pushes wait as long on any line.
	lineFactor = 2
	lineMargin = 100 * time.Millisecond

	// lostCosts is added to a line's estimate for each unanswered heartbeat of the last ten minutes. It is about as long as the
	// hub waited for the answer.
	lostCosts = time.Second

	// endurable is how long a request may take on an unmetered line that counts as better than any metered one.
	endurable = 2 * time.Second

	// linePatience is how long a line must stay better without a break: six heartbeats.
	linePatience = time.Minute
)

// takes estimates how long a request takes on a line: as long as TCP would wait for the answer, plus lostCosts for each lost
// heartbeat.
func takes(l edge.Line) time.Duration { return l.Answer + 4*l.Spread + time.Duration(l.Lost)*lostCosts }

// better reports whether line a is so much better than line b that a change of leader is worth it. If better(a, b) is true,
// better(b, a) is false.
func better(a, b edge.Line) bool {
	switch {
	case a.Metered && !b.Metered:
		return false
	case !a.Metered && b.Metered:
		return takes(a) <= max(endurable, lineFactor*takes(b))
	}
	return lineFactor*takes(a) <= takes(b) && takes(a)+lineMargin <= takes(b)
}

// comparison decides when a leader hands over to another node. It does no I/O and has no clock.
type comparison struct {
	self edge.NodeName
	// since is, by node, the time since which the node's line was better than this hub's at every comparison.
	since map[edge.NodeName]time.Time
}

// compare returns the node with the best line among those whose line was better than this node's for linePatience; false means
// that there is none. The parameter lines must have the lines of all nodes that could lead, this one included.
func (j *comparison) compare(lines map[edge.NodeName]edge.Line, now time.Time) (edge.NodeName, bool) {
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

// preferred reports whether to choose line a over b if both are better than ours.
func preferred(a, b edge.Line) bool {
	if a.Metered != b.Metered {
		return !a.Metered
	}
	return takes(a) < takes(b)
}
