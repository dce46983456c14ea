package lead

import (
	"context"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/run"
)

// Duty is one task that a leader has for a term. Run blocks until ctx ends or it fails.
type Duty struct {
	Name string
	Run  func(ctx context.Context, term edge.Term) error
}

// Together returns an ElectorConfig.Lead that runs all duties concurrently. The first that fails ends all.
func Together(duties ...Duty) func(context.Context, edge.Term) error {
	return func(ctx context.Context, term edge.Term) error {
		var all run.Group
		for _, d := range duties {
			all.Add(d.Name, func(ctx context.Context) error { return d.Run(ctx, term) })
		}
		return all.Run(ctx)
	}
}
