package shareserver

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/utils/lru"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/pool/exchange"
)

const (
	// flowRate is how many bytes a second a node may push in the long run, and flowBurst how many at once. A node of 110 Pods has
	// 1 MB, and its whole quota of 16 MiB takes 3 s. etcd keeps overwritten values until Housekeep runs next. Without a bound, a
	// node that rewrites its objects could fill etcd before that, which ends the coordinator.
	flowRate  = 4 << 20
	flowBurst = 4 << 20

	// maxFlows is how many nodes' flows are remembered, the latest: more than a pool has nodes.
	maxFlows = 4096
)

// flows bounds what each node pushes: one push at a time, and so many bytes a second. No node waits for another.
type flows struct {
	mu     sync.Mutex
	byNode *lru.Cache // of *flow, by edge.NodeName
}

type flow struct {
	bytes *rate.Limiter
	busy  atomic.Bool
}

func newFlows() *flows { return &flows{byNode: lru.New(maxFlows)} }

// begin begins a push of a node, which end ends. It refuses a second one.
func (f *flows) begin(n edge.NodeName) (*flow, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	known, ok := f.byNode.Get(n)
	if !ok {
		known = &flow{bytes: rate.NewLimiter(flowRate, flowBurst)}
		f.byNode.Add(n, known)
	}
	of := known.(*flow) //nolint:forcetypeassert // nothing else is put there
	if !of.busy.CompareAndSwap(false, true) {
		return nil, &exchange.Refusal{
			Code: http.StatusTooManyRequests, RetryAfter: time.Second,
			Message: "another push of this node is under way; push one after another",
		}
	}
	return of, nil
}

func (f *flow) end() { f.busy.Store(false) }

// wait waits until the node may have pushed so many bytes, flowBurst at most.
func (f *flow) wait(ctx context.Context, bytes int) error {
	return f.bytes.WaitN(ctx, min(bytes, flowBurst))
}
