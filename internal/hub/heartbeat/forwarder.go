package heartbeat

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/watch"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/klog/v2"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/hub/leasewatch"
)

// refusedMost is how many renewals in a row the cloud may refuse before a leader gives up its term.
const refusedMost = 3

// ErrRefused is in the chain of the error with which Forwarder.Run ends because the cloud refuses what it writes.
var ErrRefused = errors.New("the cloud refuses the heartbeats that this hub forwards")

// ForwarderConfig is what a Forwarder needs. All fields are required unless it says otherwise.
type ForwarderConfig struct {
	// Node is this hub's own node, whose Lease is forwarded first.
	Node edge.NodeName
	// Coordinator is a client of the coordinator. The hub must be allowed to list and watch the Leases in
	// kube-node-lease there.
	Coordinator coordinationv1client.LeasesGetter
	// Cloud is a client of the cloud with the pool's forwarding identity. That must be allowed to get, update and
	// create the Leases in kube-node-lease that are named after the pool's nodes (RBAC resourceNames). A missing Lease
	// is created by PUT and not by POST: the API server then checks "create" with the Lease's name (withAuthorization
	// in k8s.io/apiserver/pkg/endpoints/handlers), while for a POST it does not know the name yet.
	Cloud coordinationv1client.LeasesGetter
	// Metrics takes the metrics of forwarding. nil means that nobody sees them.
	Metrics prometheus.Registerer
}

// Forwarder carries delegated nodes' renewals to the cloud, for one term at a time. Make one with NewForwarder.
//
// How late a renewal can be written: at most a quarter of the node's lease duration (10 s at most) after it was seen,
// and at most 2 s more than that after it was stored in the coordinator. The term bounds the latter by this machine's
// monotonic clock alone, so neither a pause of the process nor a stalled connection stretches it.
type Forwarder struct {
	config  ForwarderConfig
	metrics forwarderMetrics
}

type forwarderMetrics struct {
	forwarded prometheus.Counter
	dropped   *prometheus.CounterVec
	age       prometheus.Histogram
	delegated prometheus.Gauge
}

// NewForwarder returns a Forwarder. It registers its metrics.
func NewForwarder(c ForwarderConfig) *Forwarder {
	m := promauto.With(c.Metrics)
	return &Forwarder{config: c, metrics: forwarderMetrics{
		forwarded: m.NewCounter(prometheus.CounterOpts{
			Name: "yurthub_forwarded_heartbeats_total", Help: "Heartbeats of other nodes written to the cloud.",
		}),
		dropped: m.NewCounterVec(prometheus.CounterOpts{
			Name: "yurthub_dropped_heartbeats_total", Help: "Delegated heartbeats not written to the cloud, by reason.",
		}, []string{"reason"}),
		age: m.NewHistogram(prometheus.HistogramOpts{
			Name:    "yurthub_forwarded_heartbeat_age_seconds",
			Help:    "From when the leader saw a delegated heartbeat to when the cloud had it.",
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}),
		delegated: m.NewGauge(prometheus.GaugeOpts{
			Name: "yurthub_delegated_nodes", Help: "Nodes whose heartbeats this hub forwards; 0 unless it leads.",
		}),
	}}
}

// Run forwards for one term, until ctx ends. Then it calls off the writes under way, waits for them and returns nil. If the
// cloud has refused refusedMost renewals in a row, it returns an ErrRefused: another hub may be allowed what this one is not. It
// must not run twice at a time.
func (f *Forwarder) Run(ctx context.Context, term edge.Term) error {
	ctx, cancel := context.WithCancel(ctx)
	var owned sync.WaitGroup
	defer owned.Wait()
	defer cancel()
	defer f.metrics.delegated.Set(0)

	r := &round{
		Forwarder: f, term: term, owned: &owned,
		seen: make(chan func(*queue)), finished: make(chan written),
		stops: map[edge.NodeName]context.CancelFunc{},
	}
	owned.Go(func() {
		follow := leasewatch.Config{
			Leases:        f.config.Coordinator.Leases(corev1.NamespaceNodeLease),
			LabelSelector: labels.Set{edge.DelegateHeartbeat: edge.DelegateHeartbeatOn}.String(),
		}
		sink := relay{leasewatch.Relay[*queue]{Ctx: ctx, To: r.seen}, term}
		_ = leasewatch.Follow(ctx, follow, sink) // it returns only the end of ctx
	})
	return r.run(ctx)
}

// round is one term of a Forwarder. The queue belongs to run's goroutine; the other goroutines hand it what they have.
type round struct {
	*Forwarder
	term     edge.Term
	owned    *sync.WaitGroup
	seen     chan func(*queue)
	finished chan written
	stops    map[edge.NodeName]context.CancelFunc // calls off the write under way for a node; only run uses it
}

// written is what a write leaves behind: the node's Lease in the cloud, nil if that is not known.
type written struct {
	node  edge.NodeName
	cloud *coordinationv1.Lease
	why   reason // why it was not written; "" if it was
	err   error
}

// relay hands what the watch finds to run's goroutine.
type relay struct {
	leasewatch.Relay[*queue]
	term edge.Term
}

// Baseline implements leasewatch.Sink.
func (r relay) Baseline(leases []coordinationv1.Lease) {
	r.Send(func(l *queue) { l.baseline(leases) })
}

// Changed implements leasewatch.Sink.
func (r relay) Changed(kind watch.EventType, lease *coordinationv1.Lease) {
	now := time.Now()
	stored, known := r.term.NotBefore(leasewatch.Revision(lease))
	r.Send(func(l *queue) { l.change(kind, lease, now, stored, known) })
}

func (r *round) run(ctx context.Context) error {
	refused := 0 // renewals in a row
	logger := klog.FromContext(ctx)
	l := newQueue(r.config.Node, func(node edge.NodeName, why reason) {
		r.dropped(logger, node, why)
	})
	for {
		for s := l.next(time.Now(), r.term.Valid()); s != nil; s = l.next(time.Now(), r.term.Valid()) {
			r.start(ctx, s)
		}
		r.metrics.delegated.Set(float64(l.count()))
		select {
		case <-ctx.Done():
			return nil
		case take := <-r.seen:
			take(l)
			for node, stop := range r.stops {
				if l.left(node) {
					stop() // the node took its mark off, so nobody may write for it
				}
			}
		case w := <-r.finished:
			r.stops[w.node]()
			delete(r.stops, w.node)
			l.done(w.node, w.cloud)
			switch {
			case w.why == "":
				refused = 0
			case denies(w.err):
				refused++
			}
			if refused == refusedMost {
				return fmt.Errorf("%w: %d in a row, the last with: %w", ErrRefused, refused, w.err)
			}
		}
	}
}

func (r *round) dropped(logger klog.Logger, node edge.NodeName, why reason) {
	r.metrics.dropped.WithLabelValues(string(why)).Inc()
	logger.V(2).Info("Heartbeat not forwarded", "of", node, "reason", why)
}

// start writes a renewal in a goroutine of its own, until its deadline.
func (r *round) start(ctx context.Context, s *sighting) {
	writing, stop := context.WithDeadline(ctx, s.deadline)
	r.stops[s.node] = stop
	r.owned.Go(func() {
		logger := klog.FromContext(ctx)
		cloud, why, err := r.write(writing, s)
		switch {
		case why == "":
			r.metrics.forwarded.Inc()
			r.metrics.age.Observe(time.Since(s.seen).Seconds())
			logger.V(2).Info("Heartbeat forwarded", "of", s.node, "after", time.Since(s.seen))
		case err != nil && ctx.Err() == nil:
			logger.Error(err, "A delegated heartbeat did not reach the cloud", "of", s.node)
			fallthrough
		default:
			r.dropped(logger, s.node, why)
		}
		select {
		case r.finished <- written{s.node, cloud, why, err}:
		case <-ctx.Done():
		}
	})
}

// write brings a renewal to the cloud. It returns the Lease there, as far as it knows it since, and why it did not
// write ("" if it did), with the error if that was one.
func (r *round) write(ctx context.Context, s *sighting) (*coordinationv1.Lease, reason, error) {
	leases := r.config.Cloud.Leases(corev1.NamespaceNodeLease)
	current, known := cloudLease{Lease: s.cloud, before: true}, s.cloud != nil
	if known {
		current.latest = renewTime(s.cloud)
	}
	// The Lease may move on under us: the node may report itself, or have its Lease deleted. Each attempt decides anew.
	const attempts = 4
	var refused error
	for range attempts {
		if !known {
			fresh, err := leases.Get(ctx, string(s.node), metav1.GetOptions{})
			switch {
			case apierrors.IsNotFound(err):
				fresh = nil
			case err != nil:
				why, err := failure(ctx, fmt.Errorf("read the Lease in the cloud: %w", err))
				return nil, why, err
			}
			current.Lease, current.before = fresh, false
			if fresh != nil && renewTime(fresh).After(current.latest) {
				current.latest = renewTime(fresh)
			}
		}
		lease, why := forward(s.lease, current)
		if why != "" {
			return current.Lease, why, nil
		}
		// Asked right before each write, because time may have passed since the decision. In a process that was
		// stopped, the context's own timer may not have fired yet.
		if !r.term.Valid() {
			return current.Lease, reasonDeposed, nil
		}
		if ctx.Err() != nil || !time.Now().Before(s.deadline) {
			return current.Lease, reasonAged, nil //nolint:nilerr // the reason says it
		}
		written, err := leases.Update(ctx, lease, metav1.UpdateOptions{})
		switch {
		case err == nil:
			return written, "", nil
		case apierrors.IsConflict(err), apierrors.IsInvalid(err), apierrors.IsNotFound(err),
			apierrors.IsAlreadyExists(err):
			// Moved on, created meanwhile (an update without a resourceVersion is invalid then), or gone.
			known, refused = false, err
		default:
			why, err := failure(ctx, fmt.Errorf("write the Lease in the cloud: %w", err))
			return nil, why, err // it may have taken effect all the same
		}
	}
	return nil, reasonFailed, fmt.Errorf("write the Lease in the cloud, %d times: %w", attempts, refused)
}

// denies reports whether an error is the cloud's answer that this hub, or the identity that it acts as, may not do what it did.
// That the cloud is overloaded, or a Lease moves on, is no such answer.
func denies(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err)
}

// failure tells a renewal that ran out of time, or was called off, from one that the cloud refused.
func failure(ctx context.Context, err error) (reason, error) {
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return reasonAged, err
	case ctx.Err() != nil:
		return reasonUnmarked, nil //nolint:nilerr // called off
	}
	return reasonFailed, err
}
