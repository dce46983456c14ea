package heartbeat

import (
	"sync"
	"time"

	"yurtcoordinator/internal/edge"
)

const (
	// lineKnown is how many answers are needed before the line's quality is reported.
	lineKnown = 3
	// lostCounts is how long an unanswered heartbeat counts as lost. At most lostMost of them count.
	lostCounts = 10 * time.Minute
	lostMost   = 60
)

// gauge measures the node's line to the cloud by kubelet's heartbeats. A heartbeat is a request of a few hundred bytes every ten
// seconds, whatever else crosses the line. gauge is safe for concurrent use.
type gauge struct {
	mu               sync.Mutex
	answers          int
	smoothed, spread time.Duration
	lost             []time.Time // the oldest first
}

// answered records that the cloud answered a heartbeat after some time (RFC 6298, section 2).
func (g *gauge) answered(took time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.answers++; g.answers == 1 {
		g.smoothed, g.spread = took, took/2
		return
	}
	g.spread += ((g.smoothed - took).Abs() - g.spread) / 4
	g.smoothed += (took - g.smoothed) / 8
}

// missed records that the cloud did not answer a heartbeat.
func (g *gauge) missed(now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.lost) == lostMost {
		g.lost = append(g.lost[:0], g.lost[1:]...)
	}
	g.lost = append(g.lost, now)
}

// says returns the line's quality; false if too few answers are known.
func (g *gauge) says(now time.Time) (edge.Line, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	lost := 0
	for _, at := range g.lost {
		if now.Sub(at) < lostCounts {
			lost++
		}
	}
	return edge.Line{Answer: g.smoothed, Spread: g.spread, Lost: lost}, g.answers >= lineKnown
}
