package views

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/hub/cache"
	"yurtcoordinator/internal/live"
	"yurtcoordinator/internal/stream"
)

// members holds the nodes of this node's pool.
type members struct {
	pool edge.PoolName
	// version grows with each change that may alter what clients see. It is 0 until the source has sent the pool or has failed.
	version *live.Value[uint64]

	mu    sync.Mutex
	nodes []edge.NodeName
	why   error // why the pool is not known; nil if it is known
}

func newMembers(pool edge.PoolName) *members {
	return &members{pool: pool, version: live.NewValue[uint64](0)}
}

// set returns the pool's nodes. The given node is always one of them, because the NodePool may list it late.
func (m *members) set(node edge.NodeName) nodeSet {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := nodeSet{node: {}}
	for _, n := range m.nodes {
		all[n] = struct{}{}
	}
	return all
}

// unknown returns why the pool is not known; nil if it is known.
func (m *members) unknown() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.why
}

var (
	errNoPool   = errors.New("the node is in no pool")
	errNotThere = errors.New("there is no NodePool of that name")
)

func (m *members) learn(nodes []edge.NodeName, why error) {
	m.mu.Lock()
	m.nodes, m.why = nodes, why
	m.mu.Unlock()
	m.version.Set(m.version.Get() + 1)
}

func (m *members) Replace(s stream.Snapshot) {
	if !slices.ContainsFunc(s.Objects, m.read) {
		m.learn(nil, errNotThere)
	}
}

// Apply records changes.
func (m *members) Apply(_ context.Context, events []stream.Event) error {
	for _, e := range events {
		switch e.Type {
		case stream.Added, stream.Modified:
			m.read(e.Object)
		case stream.Deleted:
			if m.ours(e.Object.Key) {
				m.learn(nil, errNotThere)
			}
		default:
		}
	}
	return nil
}

func (m *members) ours(k stream.Key) bool {
	return m.pool != "" && k == stream.Key{Name: string(m.pool)}
}

// read records a NodePool and reports whether it is this node's. An unreadable NodePool changes nothing.
func (m *members) read(o stream.Object) bool {
	if !m.ours(o.Key) {
		return false
	}
	nodes, err := nodesOf(o)
	if err != nil {
		return m.version.Get() != 0
	}
	m.learn(nodes, nil)
	return true
}

// PoolNodes returns the nodes of a pool, as the cloud has last said to a hub that follows it; nil means that it has not said.
func PoolNodes(followed *cache.Set, pool edge.PoolName) []edge.NodeName {
	m := followed.Wanted(OwnPool(pool))
	if m == nil {
		return nil
	}
	o, ok := m.Replica.Get(stream.Key{Name: string(pool)})
	if !ok {
		return nil
	}
	nodes, err := nodesOf(o)
	if err != nil {
		return nil // what cannot be read says nothing
	}
	return nodes
}

// nodesOf returns the nodes of a NodePool.
func nodesOf(pool stream.Object) ([]edge.NodeName, error) {
	var is struct {
		Status struct {
			Nodes []edge.NodeName `json:"nodes"`
		} `json:"status"`
	}
	err := json.Unmarshal(pool.Raw, &is)
	return is.Status.Nodes, err
}

// Failed records that the pool is unknown, unless it was known before. A source that is not ready yet will send it later.
func (m *members) Failed(ctx context.Context, err error) {
	if errors.Is(err, stream.ErrNotReady) || ctx.Err() != nil || m.version.Get() != 0 {
		return
	}
	m.learn(nil, fmt.Errorf("the hub can't read NodePools: %w", err))
}
