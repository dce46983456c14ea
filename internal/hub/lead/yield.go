package lead

import (
	"fmt"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/ends"
)

// Yield is the error of a duty that ends its term so that another node leads. The Lease is left to that node, which takes it at
// once. Other hubs, this one included, take it only if that node has not taken it within yieldWait.
type Yield struct{ To edge.NodeName } //nolint:errname // it is a decision before it is an error

func (y *Yield) Error() string { return fmt.Sprintf("the lead is left to %s", y.To) }

// restAfterYield is the least time between two hand-overs of a pool for a better line.
const restAfterYield = 10 * time.Minute

// yields records when the pool last handed over for a better line.
type yields struct {
	mu     sync.Mutex
	looked bool      // a Lease was seen
	known  string    // its annotation, as last seen
	last   time.Time // by this hub's running clock; zero: it knows of none
}

// saw records the pool's last hand-over, which the Lease names. A hand-over that this hub sees happen counts from now. A
// hand-over that the hub finds when it starts counts from the time that the Lease states by the wall clock, but at the latest
// from now.
func (y *yields) saw(lease *coordinationv1.Lease, now ends.Moment) {
	if lease == nil {
		return
	}
	y.mu.Lock()
	defer y.mu.Unlock()
	found := !y.looked
	y.looked = true
	said := lease.Annotations[edge.AnnotationYielded]
	at, ok := edge.ParseYielded(said)
	if !ok || said == y.known {
		return
	}
	y.known, y.last = said, now.Running
	if found {
		y.last = now.Running.Add(-max(0, now.Wall.Sub(at)))
	}
}

// rested reports whether the last hand-over was long enough ago.
func (y *yields) rested(now time.Time) bool {
	y.mu.Lock()
	defer y.mu.Unlock()
	return y.last.IsZero() || now.Sub(y.last) >= restAfterYield
}

// yieldedTo returns the node that a vacant Lease was left to; empty if it was left to nobody.
func yieldedTo(lease *coordinationv1.Lease) edge.NodeName {
	if holder(lease) != "" {
		return ""
	}
	return edge.NodeName(lease.Annotations[edge.AnnotationYieldedTo])
}

// Rested reports whether the pool's last hand-over for a better line was at least ten minutes ago, as far as this hub knows. The
// Lease carries the time of the last hand-over, for hubs that did not see it. A coordinator that came back empty has lost that
// time.
func (k *Elector) Rested(now time.Time) bool { return k.yields.rested(now) }
