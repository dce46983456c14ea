package lead

import (
	"fmt"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/ends"
)

// Yield is the error of a duty that ends its term so that another node leads. The Lease is left to that node: it takes it at
// once, and others, this hub too, only if it has not within yieldWait.
type Yield struct{ To edge.NodeName } //nolint:errname // it is a decision before it is an error

func (y *Yield) Error() string { return fmt.Sprintf("the lead is left to %s", y.To) }

// restAfterYield is how long a pool is not handed over again for a better line.
const restAfterYield = 10 * time.Minute

// yields knows when the pool was last handed over for a better line.
type yields struct {
	mu     sync.Mutex
	looked bool      // a Lease was seen
	known  string    // its annotation, as last seen
	last   time.Time // by this hub's running clock; zero: it knows of none
}

// saw takes in the Lease. A hand-over that this hub sees happen was now. One that it finds is as old as the wall clock says, or
// new if that says that it is yet to come.
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

// rested reports whether the last hand-over is long enough ago.
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

// Rested reports whether the pool was not handed over for a better line within the last ten minutes, as far as this hub knows.
// The Lease remembers the last time for hubs that were not there. A coordinator that came back empty has forgotten it.
func (k *Elector) Rested(now time.Time) bool { return k.yields.rested(now) }
