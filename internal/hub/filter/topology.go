// Package filter shows a node's clients what concerns them of the pool's resources: service topology. A Service with the
// annotation openyurt.io/topologyKeys keeps its traffic near, and the EndpointSlices and Endpoints that belong to it
// are shown without the endpoints that are elsewhere. kube-proxy, CoreDNS and the like need to know nothing of it.
//
// What the annotation means, by its one value (edge.LabelNodePool is another name; these are OpenYurt's values):
//
//   - kubernetes.io/hostname: endpoints on this node.
//   - openyurt.io/nodepool: endpoints on the nodes of this node's pool. A node that is in no pool, or whose pool is not
//     known, is a pool of its own.
//   - kubernetes.io/zone: the same, as OpenYurt documents it: a node at the edge has no zone as a rule, and to show it
//     everything would send its traffic over the WAN, which is what the annotation is there to prevent.
//   - Anything else, a list of keys included, is no topology, as in OpenYurt. Kubernetes' old field of that name was a
//     list with a fall-back from key to key, by whether the Service has endpoints that match. That is a property of all
//     slices of a Service; a view sees one object at a time.
//
// An endpoint without a node is kept only where no topology applies, as in OpenYurt: it cannot be shown to be near. A slice
// with nothing left is shown empty, never as deleted. Of Endpoints the addresses that are not ready are treated as the
// others, and subsets with no address left are dropped. There is no fall-back to everything when nothing is near: staying
// near is what was asked for.
//
// Invariants:
//
//   - A state never changes. Two states that show every object alike may both be told of; a watch tells what differs.
//   - Show never changes the bytes it is given. What no topology concerns, or takes nothing from, is shown verbatim, the
//     same bytes. What is filtered keeps its encoding, and fields that this program has never heard of.
//   - Whatever may change what is shown makes a new state, and nothing else does: a Service's other changes do not, nor a
//     NodePool's.
//
// Decoding into API types was the alternative: it costs four times as much (BenchmarkShow), and drops what a newer API
// server sends.
package filter

import (
	"context"
	"maps"
	"sync"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/klog/v2"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/hub/follow"
	"yurtcoordinator/internal/live"
	"yurtcoordinator/internal/replica"
	"yurtcoordinator/internal/run"
	"yurtcoordinator/internal/stream"
)

// debounce is how long changes are gathered that come together, say with a Helm release: each has all watches look again.
const debounce = 100 * time.Millisecond

// Config says where this node is, and where to learn what it needs to know.
type Config struct {
	// Node is this node; Pool its pool, empty if it has none.
	Node edge.NodeName
	Pool edge.PoolName
	// Source gives each selection of Learns. It is called when Run begins.
	Source func(follow.Selection) stream.Beginner
}

// Topology is a replica.View of endpointslices.discovery.k8s.io/v1 and of core endpoints; all else it shows verbatim.
// Until it is complete it shows everything: nothing should be served through it before. Safe for concurrent use.
type Topology struct {
	config   Config
	services *services
	members  *members
	state    *live.Value[*state]
	// complete is true once the annotations of all Services are known, and the pool is known or known to be unknown.
	complete *live.Value[bool]

	explained bool // that the pool is not known; keep's own
}

// New returns a Topology that knows nothing yet.
func New(c Config) *Topology {
	return &Topology{
		config: c, services: newServices(), members: newMembers(c.Pool),
		state: live.NewValue(&state{node: c.Node, nodes: nodeSet{c.Node: {}}}), complete: live.NewValue(false),
	}
}

// Look implements replica.View.
func (t *Topology) Look() (replica.Look, <-chan struct{}) { return t.state.Watch() }

// state is all that decides what is shown. It is immutable.
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
		labels, err := stream.Labels(t.Encoding, o.Raw)
		if err != nil {
			return o.Raw // as it came: a client that can read it knows better
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
	raw, err := cut(t.Encoding, form, o.Raw, s.keeper(near))
	if err != nil {
		return o.Raw
	}
	return raw
}

// keeper returns which endpoints a scope keeps.
func (s *state) keeper(near scope) (keep func(node string) bool) {
	if near == onNode {
		return func(n string) bool { return n == string(s.node) }
	}
	return func(n string) bool {
		_, ok := s.nodes[edge.NodeName(n)]
		return ok
	}
}

// Run follows Services and NodePools until ctx ends, and returns its cause.
func (t *Topology) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var owned sync.WaitGroup
	defer owned.Wait()
	owned.Go(func() { learn(ctx, Services, t.config.Source(Services), t.services) })
	if pool := ownPool(t.config.Pool); t.config.Pool == "" {
		t.members.learn(nil, errNoPool)
	} else {
		owned.Go(func() { learn(ctx, pool, t.config.Source(pool), t.members) })
	}
	return t.keep(ctx)
}

// keep makes states of what the sources tell.
func (t *Topology) keep(ctx context.Context) error {
	var seen [2]uint64
	for {
		serviceCount, servicesChanged := t.services.version.Watch()
		memberCount, membersChanged := t.members.version.Watch()
		now := [2]uint64{serviceCount, memberCount}
		if now != seen && serviceCount != 0 && memberCount != 0 {
			// Before it is complete, requests wait for it.
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

// update makes the state what the sources have told.
func (t *Topology) update() {
	old := t.state.Get()
	next := &state{node: old.node, services: t.services.all(), nodes: t.members.set(old.node)}
	if !maps.Equal(old.services, next.services) || !maps.Equal(old.nodes, next.nodes) {
		t.state.Set(next)
	}
	t.complete.Set(true)
}

// explain says once that the pool is not known, each time that it is so anew.
func (t *Topology) explain(ctx context.Context) {
	why := t.members.unknown()
	if why != nil && !t.explained {
		klog.FromContext(ctx).Info("Service topology takes this node for a pool of its own", "pool", t.config.Pool, "reason", why)
	}
	t.explained = why != nil
}
