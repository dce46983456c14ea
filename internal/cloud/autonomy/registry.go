package autonomy

import (
	"maps"
	"slices"
	"sync"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/live"
)

// registry holds the Nodes whose Pods must or may carry our marks, and nothing else. It is safe for concurrent use.
type registry struct {
	// any says whether there is such a Node.
	any live.Value[bool]

	mu     sync.Mutex
	puts   uint64
	byNode map[edge.NodeName]entry
}

type entry struct {
	terms Terms
	put   uint64 // number of the put that wrote it
}

func newRegistry() *registry { return &registry{byNode: make(map[edge.NodeName]entry)} }

func (r *registry) put(node edge.NodeName, t Terms) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.puts++
	r.byNode[node] = entry{t, r.puts}
	r.any.Set(true)
}

// get returns a Node's terms and the number of their put; 0 means that the Node is not there.
func (r *registry) get(node edge.NodeName) (Terms, uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.byNode[node]
	return e.terms, e.put
}

// drop forgets a Node, unless it was put again since.
func (r *registry) drop(node edge.NodeName, put uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byNode[node].put == put {
		delete(r.byNode, node)
		r.any.Set(len(r.byNode) > 0)
	}
}

func (r *registry) nodes() []edge.NodeName {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Keys(r.byNode))
}
