// Package line has a leader leave the lead to a node with a much better link to the cloud.
//
// What the pool shares, and all forwarded heartbeats, cross the leader's line. Who came first leads, and with a line that is
// slow, lossy or paid for by the byte the whole pool pays. So each hub says on the coordinator's copy of its node's Lease what
// its own heartbeats take to the cloud (edge.AnnotationLine, measured in package heartbeat, which costs no byte more). The
// leader reads that from the watch that its report needs anyway (package roster). If another line has been far better for a
// minute, it ends its term and leaves the Lease to that node by name.
//
// Invariants: a pool has at most one such hand-over in ten minutes (role.Elector.Rested). No two lines are each better than the
// other, and a node hands over only to one whose line takes at most half of its own, so leadership does not go to and fro
// between equals. Only nodes that renew at the coordinator and whose link to the cloud is up are considered. A node whose
// leader's line is unknown is left alone.
//
// The alternative was to let hubs with better lines campaign against a leader that lives: the coordinator refuses that, and
// whoever wants to lead would have a reason to lie. Here it is the leader that decides.
package line

import (
	"context"
	"time"

	"k8s.io/klog/v2"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/ends"
	"yurtcoordinator/internal/hub/role"
)

// lookEvery is how often a leader compares: half of the time between two heartbeats.
const lookEvery = 5 * time.Second

// Config is what a Watch needs. All fields are required.
type Config struct {
	Node edge.NodeName
	// Lines are what nodes that renew at the coordinator, and have a link to the cloud of their own, say of it.
	Lines func(now time.Time) map[edge.NodeName]edge.Line
	// Rested reports whether the pool's last hand-over for a better line is long enough ago.
	Rested func(now time.Time) bool
	// Clock is this machine's.
	Clock ends.Clock
}

// Watch compares the leader's line with others'. Make one with New.
type Watch struct{ cfg Config }

// New returns a Watch.
func New(c Config) *Watch { return &Watch{c} }

// Run compares for one term, until ctx ends; then it returns nil. If another node is to lead, it returns a *role.Yield.
func (w *Watch) Run(ctx context.Context, term edge.Term) error {
	j := judge{self: w.cfg.Node}
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		now := w.cfg.Clock.Running()
		lines := w.cfg.Lines(now)
		to, ok := j.look(lines, now)
		if !ok || !w.cfg.Rested(now) || !term.Valid() {
			continue
		}
		klog.FromContext(ctx).Info("Another node's line to the cloud is far better: leaving the lead to it", "node", to,
			"line", lines[to].String(), "own", lines[w.cfg.Node].String())
		return &role.Yield{To: to}
	}
}
