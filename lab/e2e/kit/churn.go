package kit

import (
	"context"
	"errors"
	"time"

	"yurtcoordinator/lab/load"
)

// Churn is a rolling update that continues until it is stopped.
type Churn struct {
	stop func()
	done chan struct{}
	n    load.Counts
	err  error
}

// Churn changes the load so many times a second.
func (t *T) Churn(spec load.Spec, perSecond float64) *Churn {
	ctx, cancel := context.WithCancel(t.Ctx)
	c := &Churn{stop: cancel, done: make(chan struct{})}
	t.Background.Go(func() {
		defer close(c.done)
		c.n, c.err = load.Churn(ctx, t.Cloud, spec, perSecond, time.Hour)
	})
	return c
}

// End stops a churn and returns how many changes it made.
func (t *T) End(c *Churn) int {
	c.stop()
	<-c.done
	if c.err != nil && !errors.Is(c.err, context.Canceled) {
		t.Must(c.err)
	}
	return c.n.Updates
}

// Patching patches random objects, 20 times a second, until stop is called.
func (t *T) Patching(paths ...string) (stop func()) {
	ctx, cancel := context.WithCancel(t.Ctx)
	done := make(chan error, 1)
	t.Background.Go(func() {
		_, err := load.Patches(ctx, t.Cloud.CoreV1().RESTClient(),
			load.PatchSpec{Paths: paths, MaxBytes: 200, PerSecond: 20}, time.Hour)
		done <- err
	})
	return func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Fail("patching %v: %w", paths, err)
		}
	}
}
