package relay

import (
	"slices"
	"time"

	"yurtcoordinator/internal/edge"
)

// forget is how long after a failure a neighbour is tried only after all others.
const forget = 15 * time.Second

// failures remembers which neighbours have failed lately.
type failures map[edge.NodeName]time.Time

// note records how a try at a neighbour ended.
func (f failures) note(name edge.NodeName, ok bool, now time.Time) {
	for other, at := range f {
		if now.Sub(at) >= forget {
			delete(f, other)
		}
	}
	delete(f, name)
	if !ok {
		f[name] = now
	}
}

// last moves the neighbours that have failed lately behind the others, the earliest failure first.
func (f failures) last(all []edge.Neighbour, now time.Time) {
	when := func(n edge.Neighbour) time.Time {
		if at, ok := f[n.Name]; ok && now.Sub(at) < forget {
			return at
		}
		return time.Time{}
	}
	slices.SortStableFunc(all, func(a, b edge.Neighbour) int { return when(a).Compare(when(b)) })
}
