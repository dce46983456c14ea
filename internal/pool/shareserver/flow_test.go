package shareserver

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"yurtcoordinator/internal/pool/exchange"
)

func TestFlowOfANode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFlows()
		of, err := f.begin("n1")
		if err != nil {
			t.Fatal(err)
		}
		var refused *exchange.Refusal
		if _, err := f.begin("n1"); !errors.As(err, &refused) || refused.Code != http.StatusTooManyRequests {
			t.Errorf("a second push of a node: %v", err)
		}
		if _, err := f.begin("n2"); err != nil {
			t.Errorf("another node's: %v", err)
		}
		waits := func(bytes int, want time.Duration) {
			t.Helper()
			start := time.Now()
			if err := of.wait(t.Context(), bytes); err != nil {
				t.Error(err)
			}
			if took := time.Since(start); took.Round(time.Millisecond) != want {
				t.Errorf("%d bytes wait for %v, want %v", bytes, took, want)
			}
		}
		waits(flowBurst, 0)
		waits(flowRate/2, 500*time.Millisecond)
		waits(10*flowBurst, flowBurst/flowRate*time.Second) // no more than the burst
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := of.wait(ctx, flowRate); !errors.Is(err, context.Canceled) {
			t.Errorf("a caller that gives up: %v", err)
		}
		of.end()
		again, err := f.begin("n1")
		if err != nil || again != of {
			t.Errorf("after the first: %v, or its bytes are forgotten", err)
		}
	})
}
