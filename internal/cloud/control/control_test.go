package control

import (
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"yurtcoordinator/internal/ends"
)

func TestRetriesAreBoundedAndSpread(t *testing.T) {
	for _, longest := range []time.Duration{30 * time.Second, 2 * time.Minute} {
		limiter := NewLimiter(longest, ends.Chance{})
		waits := make(map[time.Duration]bool)
		for range 30 {
			wait := limiter.When(reconcile.Request{})
			if wait < Base || wait > longest*3/2 {
				t.Errorf("waits %v", wait)
			}
			waits[wait] = true
		}
		if len(waits) < 20 {
			t.Errorf("only %d different waits", len(waits))
		}
	}
}
