package share

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"k8s.io/apimachinery/pkg/runtime/schema"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/klog/v2"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/stream"
)

// Replica is a copy of a resource; replica.Replica is one. Safe for concurrent use.
type Replica interface {
	stream.Source
	// Position is the revision up to which the replica has everything; 0 if it has nothing complete.
	Position() edge.Revision
	// History is the history of Position.
	History() edge.History
	// Type is the type of its objects.
	Type() stream.Type
}

// Resource is a resource to push.
type Resource struct {
	GVR     schema.GroupVersionResource
	Replica Replica
	// Live reports whether the cloud feeds the replica right now.
	Live func() bool
	// Filling returns the page that the hub is reading of a list from the cloud. 0 means no list, and a negative number a list
	// that waits for others. A nil Filling means that there never is a list.
	Filling func() int
	// Optional says that an empty replica is normal; Fillings then leaves the resource out.
	Optional bool
}

// Set has the resources that a pool shares.
type Set interface {
	// Resources returns the present resources, each GVR once, and a channel that is closed when they change.
	Resources() ([]Resource, <-chan struct{})
}

// poolShare is what a coordinator's mirror has of the pool's resources.
type poolShare struct{ client }

// positions says how far the mirror has each resource. Of a resource that is missing here, the mirror has nothing.
type positions struct {
	// instance changes with each start of the coordinator.
	instance string
	at       map[schema.GroupVersionResource]edge.Moment
}

// positions returns the mirror's positions.
func (s poolShare) positions(ctx context.Context) (positions, error) {
	var is edge.PoolState
	if _, err := s.state(ctx, "", &is); err != nil {
		return positions{}, fmt.Errorf("ask where the mirror stands: %w", err)
	}
	p := positions{is.Instance, map[schema.GroupVersionResource]edge.Moment{}}
	for _, each := range is.Resources {
		in := each.History
		if each.Filled {
			in = in.Filled()
		}
		r := schema.GroupVersionResource{Group: each.Group, Version: each.Version, Resource: each.Resource}
		p.at[r] = edge.Moment{History: in, Revision: each.Applied}
	}
	return p, nil
}

// everything pushes the whole content of a replica, whose revisions count in the history in.
func (s poolShare) everything(
	ctx context.Context, r schema.GroupVersionResource, in edge.History, term edge.Term, content stream.Snapshot,
) error {
	ctx, cancel := context.WithTimeout(ctx, fullTimeout)
	defer cancel()
	events := make([]stream.Event, 0, len(content.Objects)+1)
	for _, o := range content.Objects {
		events = append(events, stream.Event{Type: stream.Added, Object: o})
	}
	events = append(events, stream.Event{Type: stream.InitialEventsEnd, Object: stream.Object{Revision: content.Revision}})
	taken, err := s.push(ctx, push{resource: r, in: in, term: term, of: content.Type, events: events})
	if err != nil {
		return fmt.Errorf("push everything: %w", err)
	}
	if taken.Applied != content.Revision.String() {
		return fmt.Errorf("%w: at revision %q after a push of everything up to %s", errMoved, taken.Applied, content.Revision)
	}
	return nil
}

// Complete reports whether a coordinator has content of every resource of which this hub has content.
func Complete(ctx context.Context, c Config, resources Set) (bool, error) {
	known, err := poolShare{c.client(edge.PathMirror)}.positions(ctx)
	if err != nil {
		return false, err
	}
	all, _ := resources.Resources()
	return !slices.ContainsFunc(all, func(r Resource) bool {
		return r.Replica.Position() != 0 && known.at[r.GVR].Revision == 0
	}), nil
}

// PoolConfig configures a Pool. All fields are required.
type PoolConfig struct {
	Config
	// Resources are the resources to push. The node must be allowed to get and to post below /mirror/v1.
	Resources Set
	// Leases is a client of the coordinator. The hub must be allowed to get and update the Lease
	// kube-system/leader-informer-sync, and becomes its holder.
	Leases coordinationv1client.LeasesGetter
}

// Pool keeps a coordinator's mirror. Make one with NewPool.
type Pool struct {
	config   PoolConfig
	metrics  poolMetrics
	fillings fillings
}

type poolMetrics struct {
	pushes, failures *prometheus.CounterVec
	declared         *prometheus.GaugeVec
}

// NewPool returns a Pool. It registers its metrics, and does no I/O.
func NewPool(c PoolConfig) *Pool {
	registry := promauto.With(c.Metrics)
	return &Pool{config: c, metrics: poolMetrics{
		pushes: registry.NewCounterVec(prometheus.CounterOpts{
			Name: "yurthub_pushes_total", Help: "Pushes that the coordinator acknowledged: of everything, or of changes.",
		}, []string{"resource", "kind"}),
		failures: registry.NewCounterVec(prometheus.CounterOpts{
			Name: "yurthub_push_failures_total", Help: "Times that pushing a resource had to begin again.",
		}, []string{"resource"}),
		declared: registry.NewGaugeVec(prometheus.GaugeOpts{
			Name: "yurthub_declared_resources",
			Help: "1 for a resource that this hub, as the leader, declares to be current in the coordinator.",
		}, []string{"resource"}),
	}}
}

// Run pushes for one term. When ctx ends, it breaks off requests under way and returns nil. Only one Run may be active at a time.
func (p *Pool) Run(ctx context.Context, term edge.Term) error {
	ctx, cancel := context.WithCancel(ctx)
	d := &duty{Pool: p, term: term, mirror: poolShare{p.config.client(edge.PathMirror)}}
	var owned sync.WaitGroup
	defer p.fillings.forget()
	defer p.metrics.declared.Reset()
	defer owned.Wait()
	defer cancel()
	owned.Go(func() { d.declare(ctx) })

	carriers := map[*carrier]context.CancelFunc{}
	for {
		wanted, changed := p.config.Resources.Resources()
		for c, stop := range carriers {
			if !slices.ContainsFunc(wanted, c.carries) {
				stop()
				delete(carriers, c)
			}
		}
		for _, r := range wanted {
			if slices.ContainsFunc(slices.Collect(maps.Keys(carriers)), func(c *carrier) bool { return c.carries(r) }) {
				continue
			}
			carrying, stop := context.WithCancel(ctx)
			c := newCarrier(d, r)
			carriers[c] = stop
			owned.Go(func() {
				logger := klog.FromContext(ctx).WithValues("resource", r.GVR.GroupResource().String())
				c.run(klog.NewContext(carrying, logger))
			})
		}
		d.become(slices.Collect(maps.Keys(carriers)))
		select {
		case <-changed:
		case <-ctx.Done():
			return nil
		}
	}
}

// duty is one term of a Pool.
type duty struct {
	*Pool
	term   edge.Term
	mirror poolShare

	mu       sync.Mutex
	carriers []*carrier // replaced, never changed
}

func (d *duty) become(carriers []*carrier) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.carriers = carriers
}

func (d *duty) all() []*carrier {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.carriers
}
