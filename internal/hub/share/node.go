package share

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"k8s.io/klog/v2"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/hub/link"
	"yurtcoordinator/internal/live"
	"yurtcoordinator/internal/run"
	"yurtcoordinator/internal/stream"
)

const (
	// askEvery is how often the hub asks a coordinator what it has of this node. A coordinator drops the objects of a node whose
	// hub sends no request for some minutes.
	askEvery = 10 * time.Second
)

// NodeConfig configures a Node. All fields are required.
type NodeConfig struct {
	Config
	// Pool is the node's pool. If the Node's label names another pool, the node has left this one.
	Pool edge.PoolName
	// Followed returns the node's own selections that the hub follows now, each once.
	Followed func() []Selection
	// Secrets says to push the Secrets that the node's Pods use.
	Secrets bool
	// Link is the state of the link to the coordinator.
	Link *live.Value[link.State]
	// CloudLink is the state of the link to the cloud.
	CloudLink *live.Value[link.State]
	// Accounts reads the ServiceAccounts of the node's Pods. Its Run must be active, too.
	Accounts *Accounts
	// Overlay is what this node says itself.
	Overlay Overlay
}

// Overlay is what this node says itself: statuses of its Node and Pods, which replace those in the cloud's objects, and Events.
// Taker is one. Safe for concurrent use.
type Overlay interface {
	// Cut reports whether the cloud is cut off, or may be, or was until a moment ago.
	Cut(now time.Time) bool
	// AddTo puts the node's statuses into the objects, in place of the cloud's, and adds the node's Events. The map in gets the
	// history of each Event's revision. The map said gets a digest of each object that differs from the cloud's. A digest is at
	// least 2, because 0 and 1 are marks (fromCloud, foreign). The parameter cut is the result of Cut.
	AddTo(objects map[stream.ID]stream.Object, in map[stream.ID]edge.History, said map[stream.ID]uint64, cut bool)
	// HasEvent reports whether an Event must still be shown.
	HasEvent(k stream.Key) bool
	// DropEvent drops an Event that the coordinator refuses, unless the cloud must still get it.
	DropEvent(k stream.Key)
	// AdoptEvent records an Event that the coordinator has from an earlier run of this hub, so that it expires in due time.
	AdoptEvent(k stream.Key, as edge.Moment)
}

// Node keeps this node's own objects in the coordinator. Make one with NewNode.
type Node struct {
	config      NodeConfig
	coordinator nodeShare
	metrics     nodeMetrics
	changed     bell // what there is to push

	// The goroutine that pushes owns these.
	gatherer *gatherer
	refused  map[stream.ID]offer
	have     have
	state    string    // the coordinator's name for the state in have
	asked    time.Time // when the coordinator was last asked, or pushed to
	adopt    sync.Once // what is there when the hub starts
}

type nodeMetrics struct {
	pushes, refused *prometheus.CounterVec
	failures        prometheus.Counter
	objects         prometheus.Gauge
}

// NewNode returns a Node. It registers its metrics, and does no I/O.
func NewNode(c NodeConfig) *Node {
	registry := promauto.With(c.Metrics)
	n := &Node{
		config: c, coordinator: nodeShare{c.client(edge.PathOwn)}, changed: newBell(), refused: map[stream.ID]offer{},
		metrics: nodeMetrics{
			pushes: registry.NewCounterVec(prometheus.CounterOpts{
				Name: "yurthub_own_pushes_total", Help: "Pushes of this node's own objects that the coordinator has taken.",
			}, []string{"resource"}),
			refused: registry.NewCounterVec(prometheus.CounterOpts{
				Name: "yurthub_own_refused_total", Help: "Objects of this node that the coordinator has refused.",
			}, []string{"resource"}),
			failures: registry.NewCounter(prometheus.CounterOpts{
				Name: "yurthub_own_push_failures_total", Help: "Times that pushing this node's objects had to begin again.",
			}),
			objects: registry.NewGauge(prometheus.GaugeOpts{
				Name: "yurthub_own_objects", Help: "Objects of this node that the coordinator has, as far as this hub knows.",
			}),
		},
	}
	n.gatherer = newGatherer(c, n.changed)
	return n
}

// Run pushes until ctx ends, whenever the coordinator can be reached, and then returns nil.
func (n *Node) Run(ctx context.Context) error {
	again(ctx, "Pushing this node's objects to the coordinator", n.metrics.failures, n.session, n.config.pauseAfter)
	return nil
}

// session waits until the coordinator can be reached. Then it keeps the node's objects there up to date, until an error. It
// reports whether it pushed anything.
func (n *Node) session(ctx context.Context) (progress bool, err error) {
	if _, err := n.config.Link.Wait(ctx, func(s link.State) bool { return s == link.Up }); err != nil {
		return false, err
	}
	defer func() {
		n.have, n.state = nil, ""
		n.metrics.objects.Set(0)
	}()
	if err := n.refresh(ctx); err != nil {
		return false, err
	}
	for {
		pushed, err := n.round(ctx)
		progress = progress || pushed
		if err != nil {
			return progress, err
		}
		n.metrics.objects.Set(float64(len(n.have)))
		if !pushed {
			n.await(ctx)
		}
		if ctx.Err() != nil {
			return progress, context.Cause(ctx)
		}
		if n.config.Ends.Since(n.asked) >= askEvery {
			if err := n.refresh(ctx); err != nil {
				return progress, err
			}
		}
	}
}

// Changed tells the Node that the result of NodeConfig.Followed, the content of a replica, or the Overlay may have changed. It
// does not block.
func (n *Node) Changed() { n.changed.ring() }

// await waits for lookEvery, and then until there may be something to push.
func (n *Node) await(ctx context.Context) {
	cloud, linked := n.config.CloudLink.Watch()
	_ = run.Pause(ctx, lookEvery)
	if !cloud.Answers() || n.config.Overlay.Cut(n.config.Ends.Running()) {
		return // what was said in a cut goes by time
	}
	next := n.asked.Add(askEvery)
	for _, r := range n.refused {
		if again := r.at.Add(refusedPause); again.Before(next) {
			next = again
		}
	}
	timer := time.NewTimer(n.config.Ends.Until(next))
	defer timer.Stop()
	select {
	case <-n.changed:
	case <-linked:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// refresh updates the knowledge of what the coordinator has.
func (n *Node) refresh(ctx context.Context) error {
	has, state, err := n.coordinator.get(ctx, n.state)
	if err != nil {
		return err
	}
	if has != nil {
		n.have = has
		n.config.Later(has.latest())
		n.adopt.Do(func() {
			for i, at := range has {
				if i.Resource == events {
					n.config.Overlay.AdoptEvent(i.Key, at.Moment)
				}
			}
		})
	}
	n.state, n.asked = state, n.config.Ends.Running()
	return nil
}

// round pushes the difference between what the coordinator should have and what it has, and reports whether there was one.
func (n *Node) round(ctx context.Context) (pushed bool, err error) {
	forget(n.refused, n.config.Ends.Running())
	wanted := n.gatherer.gather(ctx)
	for _, b := range plan(wanted, n.have, n.refused, n.config.Ends.Running()) {
		reasons, state, err := n.coordinator.bring(ctx, n.state, b)
		if err != nil {
			return pushed, err
		}
		pushed = true
		n.asked, n.state = n.config.Ends.Running(), state
		n.have.note(b, wanted, n.refused, reasons, n.config.Ends.Running())
		n.metrics.pushes.WithLabelValues(b.of.resource).Inc()
		n.metrics.refused.WithLabelValues(b.of.resource).Add(float64(len(reasons)))
		for key, why := range reasons {
			klog.FromContext(ctx).V(1).Info("The coordinator does not take an object of this node", "resource", b.of.resource,
				"object", key, "why", why)
		}
		if state == "" { // something else came about, too
			if err := n.refresh(ctx); err != nil {
				return pushed, err
			}
			break
		}
	}
	n.gatherer.keep(wanted, n.have, n.refused)
	return pushed, nil
}
