package views

import (
	"context"
	"maps"
	"sync"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/klog/v2"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/ends"
	"yurtcoordinator/internal/hub/cache"
	"yurtcoordinator/internal/live"
	"yurtcoordinator/internal/replica"
	"yurtcoordinator/internal/run"
	"yurtcoordinator/internal/stream"
)

// debounce is how long Topology collects changes that come together, because all watches compare their objects after each new
// state.
const debounce = 100 * time.Millisecond

// TopologyConfig configures a Topology.
type TopologyConfig struct {
	// Node is this node; Pool its pool, empty if it has none.
	Node edge.NodeName
	Pool edge.PoolName
	// Source returns the source of each selection of Learns. It is called when Run begins.
	Source func(cache.Selection) stream.Beginner
	// Chance is where random numbers come from.
	Chance ends.Chance
}

// Topology is a replica.View that applies service topology to EndpointSlices and Endpoints, and shows other objects unchanged. It
// shows all endpoints until the field complete is true, so nobody should be served through it before. Safe for concurrent use.
type Topology struct {
	config   TopologyConfig
	services *learnedServices
	members  *members
	state    *live.Value[*state]
	// complete is true once the hub has seen all Services, and has either seen the NodePool or learned that it can't.
	complete *live.Value[bool]

	explained bool // explain has said why the pool is not known; only keep uses it
}

// NewTopology returns a Topology that knows nothing yet.
func NewTopology(c TopologyConfig) *Topology {
	return &Topology{
		config: c, services: newServices(), members: newMembers(c.Pool),
		state: live.NewValue(&state{node: c.Node, nodes: nodeSet{c.Node: {}}}), complete: live.NewValue(false),
	}
}

// Look implements replica.View.
func (t *Topology) Look() (replica.Look, <-chan struct{}) { return t.state.Watch() }

// state decides what is shown. It is immutable.
type state struct {
	node     edge.NodeName
	services map[stream.Key]scope // those with a topology
	nodes    nodeSet
}

type nodeSet map[edge.NodeName]struct{}

// Show implements replica.Look.
func (s *state) Show(t stream.Type, o stream.Object) ([]byte, bool) { return s.show(t, o), true }

func (s *state) show(t stream.Type, o stream.Object) []byte {
	if len(s.services) == 0 {
		return o.Raw
	}
	var form form
	service := o.Key
	switch {
	case t.Kind == "EndpointSlice" && t.Group == discoveryv1.GroupName:
		labels, err := stream.Labels(stream.Protobuf, o.Raw)
		if err != nil {
			return o.Raw // unchanged: the client may be able to read it
		}
		form, service.Name = slice, labels[discoveryv1.LabelServiceName]
	case t.Kind == "Endpoints" && t.Group == "":
		form = endpoints
	default:
		return o.Raw
	}
	near, ok := s.services[service]
	if !ok {
		return o.Raw
	}
	raw, err := cutObject(form, o.Raw, s.keeper(near))
	if err != nil {
		return o.Raw
	}
	return raw
}

// keeper returns a function that reports whether a scope includes an endpoint's node.
func (s *state) keeper(near scope) (keep func(node string) bool) {
	if near == onNode {
		return func(n string) bool { return n == string(s.node) }
	}
	return func(n string) bool {
		_, ok := s.nodes[edge.NodeName(n)]
		return ok
	}
}

// Run follows Services and NodePools until ctx ends, and returns the cause of that.
func (t *Topology) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var owned sync.WaitGroup
	defer owned.Wait()
	owned.Go(func() { Learn(ctx, t.config.Chance, Services, t.config.Source(Services), t.services) })
	if pool := OwnPool(t.config.Pool); t.config.Pool == "" {
		t.members.learn(nil, errNoPool)
	} else {
		owned.Go(func() { Learn(ctx, t.config.Chance, pool, t.config.Source(pool), t.members) })
	}
	return t.keep(ctx)
}

// keep makes a new state when the sources have changed, until ctx ends.
func (t *Topology) keep(ctx context.Context) error {
	var seen [2]uint64
	for {
		serviceCount, servicesChanged := t.services.version.Watch()
		memberCount, membersChanged := t.members.version.Watch()
		now := [2]uint64{serviceCount, memberCount}
		if now != seen && serviceCount != 0 && memberCount != 0 {
			// Requests wait for the first state: it is not delayed.
			if t.complete.Get() && run.Pause(ctx, debounce) != nil {
				return context.Cause(ctx)
			}
			seen = [2]uint64{t.services.version.Get(), t.members.version.Get()}
			t.update()
			t.explain(ctx)
			continue
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-servicesChanged:
		case <-membersChanged:
		}
	}
}

// update sets the state from what the sources have sent.
func (t *Topology) update() {
	old := t.state.Get()
	next := &state{node: old.node, services: t.services.all(), nodes: t.members.set(old.node)}
	if !maps.Equal(old.services, next.services) || !maps.Equal(old.nodes, next.nodes) {
		t.state.Set(next)
	}
	t.complete.Set(true)
}

// explain logs why the pool is unknown, once each time that it becomes so.
func (t *Topology) explain(ctx context.Context) {
	why := t.members.unknown()
	if why != nil && !t.explained {
		klog.FromContext(ctx).Info("Service topology takes this node for a pool of its own", "pool", t.config.Pool, "reason", why)
	}
	t.explained = why != nil
}
