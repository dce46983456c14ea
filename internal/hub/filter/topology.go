// Package filter shows a node's clients what concerns them of the pool's resources: service topology. A Service with the
// annotation openyurt.io/topologyKeys keeps its traffic near, and the EndpointSlices and Endpoints that belong to it
// are shown without the endpoints that are elsewhere. kube-proxy, CoreDNS and the like need to know nothing of it.
//
// What the annotation means, by its one value (edge.LabelNodePool is another name; these are OpenYurt's values):
//
//   - kubernetes.io/hostname: endpoints on this node.
//   - openyurt.io/nodepool: endpoints on the nodes of this node's pool. A node that is in no pool, or whose pool is not
//     known, is a pool of its own.
//   - kubernetes.io/zone: endpoints in this node's zone, if Config says which that is. If not, or for Endpoints, which
//     have no zones, it means the pool, as OpenYurt documents it: a node at the edge has no zone as a rule, and to show
//     it everything would send its traffic over the WAN, which is what the annotation is there to prevent.
//   - Anything else, a list of keys included, is no topology, as in OpenYurt. Kubernetes' old field of that name was a
//     list with a fall-back from key to key, by whether the Service has endpoints that match. That is a property of all
//     slices of a Service; a view sees one object at a time.
//
// An endpoint without a node (or a zone, where that counts) is kept only where no topology applies, as in OpenYurt: it
// cannot be shown to be near. A slice with nothing left is shown empty, never as deleted. Of Endpoints the addresses that
// are not ready are treated as the others, and subsets with no address left are dropped. There is no fall-back to
// everything when nothing is near: staying near is what was asked for.
//
// Invariants:
//
//   - Show is pure within an epoch; it never changes the bytes it is given. What no topology concerns is shown verbatim,
//     the same bytes. What is filtered keeps its encoding, and fields that this program has never heard of.
//   - Whatever changes what is shown ends the epoch, and nothing else does: a Service's other changes do not, nor a
//     NodePool's.
//   - After a change, every object that it concerns is shown with another revision than before. client-go's informers
//     tell their handlers nothing of a listed object whose revision they know, so a change of what is shown must be a
//     change of revision. The revision shown is the object's own or, if newer, that of the change (the Service's or the
//     NodePool's), at most that of the list. A change may arrive after newer objects have been shown, from another
//     watch; then it counts as younger than those, and when their replica has moved beyond, a second epoch makes sure
//     that the list which could not show a newer revision is followed by one that can.
//
// Decoding into API types was the alternative: it costs four times as much (BenchmarkShow), and drops what a newer API
// server sends.
package filter

import (
	"context"
	"errors"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/klog/v2"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/live"
	"yurtcoordinator/internal/run"
	"yurtcoordinator/internal/stream"
)

const (
	// defaultDebounce gathers the changes that come together, say with a Helm release, into one epoch: each makes all
	// clients list again.
	defaultDebounce = 100 * time.Millisecond

	// settlePoll is how often a replica is asked whether it has moved beyond a change. A bookmark moves it, once a minute.
	settlePoll = time.Second
)

// Config says where this node is, and where to learn what it needs to know.
type Config struct {
	// Node is this node; Pool its pool, empty if it has none.
	Node edge.NodeName
	Pool edge.PoolName
	// Zone is the value of this node's label topology.kubernetes.io/zone; empty if it has none or none is known.
	Zone string
	// Services gives the cluster's Services, NodePools its nodepools.apps.openyurt.io. NodePools may be nil: every node
	// is a pool of its own then.
	Services, NodePools stream.Source
	// Positions are those of the replicas that are shown through this view; 0 for one that has nothing yet.
	Positions []func() edge.Revision
	// Debounce is how long changes are gathered, from the first one on; 0 is 100 ms.
	Debounce time.Duration
}

// Topology is a replica.View of endpointslices.discovery.k8s.io/v1 and of core endpoints; all else it shows verbatim.
// Until it is complete it shows everything: nothing should be served through it before. Safe for concurrent use.
type Topology struct {
	config   Config
	services *services
	members  *members
	epoch    *live.Value[uint64]
	complete *live.Value[bool]

	state     atomic.Pointer[state]
	explained bool // that the pool is not known; keep's own
}

// New returns a Topology that knows nothing yet.
func New(c Config) (*Topology, error) {
	if c.Node == "" || c.Services == nil {
		return nil, errors.New("service topology needs the node's name and a source of Services")
	}
	if c.Debounce == 0 {
		c.Debounce = defaultDebounce
	}
	t := &Topology{
		config: c, services: newServices(), members: newMembers(c.Pool),
		epoch: live.NewValue[uint64](1), complete: live.NewValue(false),
	}
	t.state.Store(&state{nodes: nodeSet{c.Node: {}}})
	return t, nil
}

// Complete is true once the annotations of all Services are known, and the pool is known or known to be unknown.
func (t *Topology) Complete() *live.Value[bool] { return t.complete }

// Epoch implements replica.View.
func (t *Topology) Epoch() (uint64, <-chan struct{}) { return t.epoch.Watch() }

// Show implements replica.View.
func (t *Topology) Show(typ stream.Type, o stream.Object, at edge.Revision) (stream.Object, bool) {
	return t.state.Load().show(t.config.Node, t.config.Zone, typ, o, at), true
}

// state is all that decides what is shown. It is immutable.
type state struct {
	// services has those with a topology, and those that have had one: the latter are shown verbatim, but for the
	// revision.
	services map[stream.Key]rule
	nodes    nodeSet
	// revision is that of the last change of nodes.
	revision edge.Revision
}

// rule is what one Service asks for, since a revision.
type rule struct {
	scope scope
	since edge.Revision
}

type nodeSet map[edge.NodeName]struct{}

func (s *state) show(node edge.NodeName, zone string, t stream.Type, o stream.Object, at edge.Revision) stream.Object {
	if len(s.services) == 0 {
		return o
	}
	var form form
	service := o.Key
	switch {
	case t.Kind == "EndpointSlice" && t.Group == discoveryv1.GroupName:
		labels, err := stream.Labels(t.Encoding, o.Raw)
		if err != nil {
			return o // as it came: a client that can read it knows better
		}
		form, service.Name = slice, labels[discoveryv1.LabelServiceName]
	case t.Kind == "Endpoints" && t.Group == "":
		form = endpoints
	default:
		return o
	}
	r, ok := s.services[service]
	if !ok {
		return o
	}
	keep, since := s.keeper(r, form, node, zone)
	revision := max(o.Revision, min(since, at))
	if keep == nil && revision == o.Revision {
		return o
	}
	raw, err := cut(t.Encoding, form, o.Raw, keep, revision)
	if err != nil {
		return o
	}
	return stream.Object{Key: o.Key, Revision: revision, Raw: raw}
}

// keeper returns which endpoints a rule keeps (nil: all), and since when that has been so.
func (s *state) keeper(r rule, f form, node edge.NodeName, zone string) (keep func(node, zone string) bool, since edge.Revision) {
	switch {
	case r.scope == everywhere:
		return nil, r.since
	case r.scope == onNode:
		return func(n, _ string) bool { return n == string(node) }, r.since
	case r.scope == inZone && zone != "" && f == slice:
		return func(_, z string) bool { return z == zone }, r.since
	default:
		return func(n, _ string) bool {
			_, ok := s.nodes[edge.NodeName(n)]
			return ok
		}, max(r.since, s.revision)
	}
}

// Run follows Services and NodePools until ctx ends, and returns its cause.
func (t *Topology) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var owned sync.WaitGroup
	defer owned.Wait()
	owned.Go(func() { follow(ctx, "Services", t.config.Services, t.services) })
	if t.config.NodePools == nil {
		t.members.learn(nil, 0, errNoPool)
	} else {
		owned.Go(func() { follow(ctx, "NodePools", t.config.NodePools, t.members) })
	}
	return t.keep(ctx)
}

// keep makes states of what the sources tell.
func (t *Topology) keep(ctx context.Context) error {
	var seen [2]uint64
	settles := edge.Revision(0) // the revision that the replicas must reach; 0 if nothing is open
	for {
		serviceCount, servicesChanged := t.services.version.Watch()
		memberCount, membersChanged := t.members.version.Watch()
		now := [2]uint64{serviceCount, memberCount}
		if now != seen && serviceCount != 0 && memberCount != 0 {
			// Before it is complete, requests wait for it.
			if t.complete.Get() && run.Pause(ctx, t.config.Debounce) != nil {
				return context.Cause(ctx)
			}
			seen = [2]uint64{t.services.version.Get(), t.members.version.Get()}
			settles = max(settles, t.update())
			t.explain(ctx)
			continue
		}
		var settling <-chan time.Time
		if settles != 0 {
			if low, _ := t.positions(); low >= settles || low == 0 {
				settles = 0
				t.epoch.Set(t.epoch.Get() + 1)
				continue
			}
			settling = time.After(settlePoll)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-servicesChanged:
		case <-membersChanged:
		case <-settling:
		}
	}
}

// update makes the state what the sources have told, and ends the epoch if that shows. It returns the revision that the
// replicas must reach before every client can have seen the change.
func (t *Topology) update() edge.Revision {
	old, rules, nodes := t.state.Load(), t.services.rules(), t.members.set(t.config.Node)
	var next *state
	var since edge.Revision
	changed := false
	for range 10 {
		_, high := t.positions()
		next, since, changed = old.next(rules, nodes, high+1)
		t.state.Store(next)
		// What was shown by the old state until now must be older than the change. If a replica has just moved, it may
		// not be: then the change is younger still.
		if _, now := t.positions(); now == high {
			break
		}
	}
	if changed {
		t.epoch.Set(t.epoch.Get() + 1)
	}
	t.complete.Set(true)
	if low, _ := t.positions(); low >= since {
		return 0
	}
	return since
}

// explain says once that the pool is not known, each time that it is so anew.
func (t *Topology) explain(ctx context.Context) {
	why := t.members.unknown()
	if why != nil && !t.explained {
		klog.FromContext(ctx).Info("Service topology takes this node for a pool of its own", "pool", t.config.Pool, "reason", why)
	}
	t.explained = why != nil
}

// positions returns the lowest and the highest of the replicas that have content.
func (t *Topology) positions() (low, high edge.Revision) {
	for _, position := range t.config.Positions {
		p := position()
		if p == 0 {
			continue
		}
		if low == 0 || p < low {
			low = p
		}
		high = max(high, p)
	}
	return low, high
}

// told is what a source has told: what is so, and as of which revision.
type told[T any] struct {
	value    T
	revision edge.Revision
}

// maxFormer bounds the Services that are remembered because they have had a topology. Each is some 100 bytes. One that
// is forgotten costs a client that has not listed since a stale slice.
const maxFormer = 1000

// next is the state that follows. unseen is a revision that no client has been shown yet: what changed counts from it, or
// from the revision of its cause if that is later. since is the latest of those, changed whether anything shows.
func (s *state) next(want told[map[stream.Key]rule], nodes told[nodeSet], unseen edge.Revision) (
	next *state, since edge.Revision, changed bool,
) {
	next = &state{services: make(map[stream.Key]rule, len(want.value)), nodes: s.nodes, revision: s.revision}
	first := s.services == nil // nothing has been shown through this view
	change := func(cause edge.Revision) edge.Revision {
		if !first {
			cause = max(cause, unseen)
		}
		since, changed = max(since, cause), true
		return cause
	}
	pools := false
	for key, r := range want.value {
		if old, ok := s.services[key]; ok && old.scope == r.scope {
			next.services[key] = old
		} else {
			next.services[key] = rule{r.scope, change(r.since)}
		}
		pools = pools || r.scope == inPool || r.scope == inZone
	}
	former := 0
	for key, old := range s.services {
		if _, ok := want.value[key]; ok {
			continue
		}
		if old.scope != everywhere {
			old = rule{everywhere, change(want.revision)}
		} else if former++; former > maxFormer {
			continue
		}
		next.services[key] = old
	}
	switch {
	case !first && maps.Equal(s.nodes, nodes.value):
	case pools && !first:
		next.nodes, next.revision = nodes.value, change(nodes.revision)
	default: // nobody has been shown anything that depends on it
		next.nodes, next.revision = nodes.value, nodes.revision
	}
	if pools && first {
		since = max(since, nodes.revision)
	}
	return next, since, changed
}
