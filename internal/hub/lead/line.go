package lead

import (
	"context"
	"time"

	"k8s.io/klog/v2"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/ends"
)

// lookEvery is how often a leader compares lines: half of the time between two heartbeats.
const lookEvery = 5 * time.Second

// LineWatchConfig configures a LineWatch. All fields are required.
type LineWatchConfig struct {
	Node edge.NodeName
	// Lines returns the lines reported by the nodes that renew at the coordinator and have a link to the cloud of their own.
	Lines func(now time.Time) map[edge.NodeName]edge.Line
	// Rested reports whether the pool's last hand-over for a better line was long enough ago.
	Rested func(now time.Time) bool
	// Clock is this machine's.
	Clock ends.Clock
}

// LineWatch compares the leader's line with others'. Make one with NewLineWatch.
type LineWatch struct{ cfg LineWatchConfig }

// NewLineWatch returns a LineWatch.
func NewLineWatch(c LineWatchConfig) *LineWatch { return &LineWatch{c} }

// Run compares lines for one term. It returns nil when ctx ends, and a *Yield when another node should lead.
func (w *LineWatch) Run(ctx context.Context, term edge.Term) error {
	j := comparison{self: w.cfg.Node}
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
		to, ok := j.compare(lines, now)
		if !ok || !w.cfg.Rested(now) || !term.Valid() {
			continue
		}
		klog.FromContext(ctx).Info("Another node's line to the cloud is far better: leaving the lead to it", "node", to,
			"line", lines[to].String(), "own", lines[w.cfg.Node].String())
		return &Yield{To: to}
	}
}
