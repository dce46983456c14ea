package lead

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"yurtcoordinator/internal/edge"
)

// TestYields: a leader whose line is far worse leaves the lead to the best, once the pool has rested, and in a term that holds.
func TestYields(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		valid := false
		w := NewLineWatch(LineWatchConfig{
			Node: "a",
			Lines: func(time.Time) map[edge.NodeName]edge.Line {
				return map[edge.NodeName]edge.Line{"a": at(600, 50), "b": at(9, 1)}
			},
			Rested: func(now time.Time) bool {
				valid = now.Sub(began) > 9*time.Minute // and a minute later than that it has rested
				return now.Sub(began) >= 8*time.Minute
			},
		})
		err := w.Run(t.Context(), edge.Term{Valid: func() bool { return valid }})
		var yield *Yield
		if took := time.Since(began); !errors.As(err, &yield) || yield.To != "b" || took != 9*time.Minute+lookEvery {
			t.Errorf("Run = %v after %v, want that it yields to b once it may", err, took)
		}
	})
}

func TestEndsWithItsTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithTimeout(t.Context(), time.Hour)
		defer stop()
		w := NewLineWatch(LineWatchConfig{
			Node: "a", Lines: func(time.Time) map[edge.NodeName]edge.Line { return nil },
			Rested: func(time.Time) bool { return true },
		})
		if err := w.Run(ctx, edge.Term{Valid: func() bool { return true }}); err != nil {
			t.Errorf("Run = %v", err)
		}
	})
}
