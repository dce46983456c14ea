package shareserver

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"yurtcoordinator/internal/ends"
	"yurtcoordinator/internal/pool/exchange"
)

func TestFlowOfANode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFlows(ends.Clock{})
		of, end, err := f.begin("n1")
		if err != nil {
			t.Fatal(err)
		}
		var refused *exchange.Refusal
		if _, _, err := f.begin("n1"); !errors.As(err, &refused) || refused.Code != http.StatusTooManyRequests {
			t.Errorf("a second push of a node: %v", err)
		}
		if _, other, err := f.begin("n2"); err != nil {
			t.Errorf("another node's: %v", err)
		} else {
			other()
		}
		waits := func(bytes int, want time.Duration) {
			t.Helper()
			start := time.Now()
			if err := f.wait(t.Context(), of, bytes); err != nil {
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
		if err := f.wait(ctx, of, flowRate); !errors.Is(err, context.Canceled) {
			t.Errorf("a caller that gives up: %v", err)
		}
		end()
		f.forget()
		if len(f.byNode) != 2 {
			t.Errorf("%d nodes are remembered", len(f.byNode))
		}
		_, end, err = f.begin("n1")
		if err != nil {
			t.Fatalf("after the first: %v", err)
		}
		time.Sleep(2 * forgetAfter)
		f.forget()
		if len(f.byNode) != 1 || f.byNode["n1"] == nil {
			t.Errorf("one of n1 is under way, and remembered are %v", f.byNode)
		}
		end()
		time.Sleep(2 * forgetAfter)
		f.forget()
		if len(f.byNode) != 0 {
			t.Errorf("remembered for ever: %v", f.byNode)
		}
	})
}
