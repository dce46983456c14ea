package shareserver

import (
	"context"
	"net/http"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/ends"
	"yurtcoordinator/internal/pool/exchange"
)

const (
	// flowRate is how many bytes a second a node may push in the long run, and flowBurst how many at once. A node of 110 Pods has
	// 1 MB, and its whole quota of 16 MiB takes 3 s. etcd keeps overwritten values until Housekeep runs next. Without a bound,
	// one node that rewrites its objects fills etcd in between, which ends the coordinator.
	flowRate  = 4 << 20
	flowBurst = 4 << 20

	// forgetAfter is how long a node's flow is remembered. By then its burst is whole again.
	forgetAfter = time.Minute
)

// flows bounds what each node pushes: one push at a time, and so many bytes a second. No node waits for another.
type flows struct {
	clock ends.Clock

	mu     sync.Mutex
	byNode map[edge.NodeName]*flow
}

type flow struct {
	bytes *rate.Limiter
	busy  bool
	last  time.Time
}

func newFlows(c ends.Clock) *flows {
	return &flows{clock: c, byNode: map[edge.NodeName]*flow{}}
}

// begin begins a push of a node, which end ends. It refuses a second one.
func (f *flows) begin(n edge.NodeName) (of *flow, end func(), err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	of = f.byNode[n]
	if of == nil {
		of = &flow{bytes: rate.NewLimiter(flowRate, flowBurst)}
		f.byNode[n] = of
	}
	if of.busy {
		return nil, nil, &exchange.Refusal{
			Code: http.StatusTooManyRequests, RetryAfter: time.Second,
			Message: "another push of this node is under way; push one after another",
		}
	}
	of.busy = true
	return of, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		of.busy, of.last = false, f.clock.Running()
	}, nil
}

// wait waits until the node may have pushed so many bytes, flowBurst at most.
func (f *flows) wait(ctx context.Context, of *flow, bytes int) error {
	now := f.clock.Running()
	delay := of.bytes.ReserveN(now, min(bytes, flowBurst)).DelayFrom(now)
	if delay <= 0 {
		return nil
	}
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// forget drops nodes that have not pushed for a while.
func (f *flows) forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for n, of := range f.byNode {
		if !of.busy && f.clock.Since(of.last) > forgetAfter {
			delete(f.byNode, n)
		}
	}
}
