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
	"k8s.io/apimachinery/pkg/watch"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/klog/v2"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/ends"
	"yurtcoordinator/internal/hub/leasewatch"
)

// lookEvery is how often a leader looks whether it can still do what it leads for, and whether a node's pause is over.
const lookEvery = time.Second

// ErrUnable is in the chain of the error with which Forwarder.Run ends because this hub can't forward heartbeats: another may.
var ErrUnable = errors.New("this hub can't forward heartbeats")

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
	// Right asks the cloud whether this hub may forward at all, and fails only if the cloud says that it may not. It is asked
	// when the cloud answers a request for one Lease with 401 or 403. nil means that it may.
	Right func(ctx context.Context) error
	// Metrics takes the metrics of forwarding. nil means that nobody sees them.
	Metrics prometheus.Registerer
	// Ends are this machine's clocks and random numbers.
	Ends ends.Ends
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

// Run forwards for one term, until ctx ends. Then it calls off the writes under way, waits for them and returns nil. It returns
// an ErrUnable once fitness says so, or ForwarderConfig.Right: another hub may be able to do what this one is not. It must not
// run twice at a time.
func (f *Forwarder) Run(ctx context.Context, term edge.Term) error {
	ctx, cancel := context.WithCancel(ctx)
	var owned sync.WaitGroup
	defer owned.Wait()
	defer cancel()
	defer f.metrics.delegated.Set(0)

	r := &round{
		Forwarder: f, term: term, owned: &owned,
		seen: make(chan func(*queue)), finished: make(chan written), told: make(chan error),
		stops: map[edge.NodeName]context.CancelFunc{}, fit: newFitness(f.config.Ends.Running()),
	}
	owned.Go(func() {
		sink := relay{leasewatch.Relay[*queue]{Ctx: ctx, To: r.seen}, term, f.config.Ends.Clock}
		// All Leases, not the marked ones: a watch with a selector is silent, without a bookmark, while the others change.
		follow := leasewatch.Config{
			Leases: f.config.Coordinator.Leases(corev1.NamespaceNodeLease), Beating: true, Ends: f.config.Ends,
			Heard: func() {
				now := f.config.Ends.Running()
				sink.Send(func(*queue) { r.fit.heard = now })
			},
		}
		_ = leasewatch.Follow(ctx, follow, sink) // it returns only the end of ctx
	})
	return r.run(ctx)
}

// round is one term of a Forwarder. The queue and the fitness belong to run's goroutine; the others hand it what they have.
type round struct {
	*Forwarder
	term     edge.Term
	owned    *sync.WaitGroup
	seen     chan func(*queue)
	finished chan written
	told     chan error // the answer of ForwarderConfig.Right
	fit      *fitness
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
	term  edge.Term
	clock ends.Clock
}

// Baseline implements leasewatch.Sink.
func (r relay) Baseline(leases []coordinationv1.Lease) {
	r.Send(func(l *queue) { l.baseline(leases) })
}

// Changed implements leasewatch.Sink. A Lease without the mark is none of those that are watched for.
func (r relay) Changed(kind watch.EventType, lease *coordinationv1.Lease) {
	if lease.Labels[edge.DelegateHeartbeat] != edge.DelegateHeartbeatOn {
		kind = watch.Deleted
	}
	now := r.clock.Running()
	stored, known := r.term.NotBefore(leasewatch.Revision(lease))
	r.Send(func(l *queue) { l.change(kind, lease, now, stored, known) })
}

func (r *round) run(ctx context.Context) error {
	asking := false // whether this hub may forward at all
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	logger := klog.FromContext(ctx)
	l := newQueue(r.config.Node, func(node edge.NodeName, why reason) {
		r.dropped(logger, node, why)
	})
	for {
		for s := l.next(r.config.Ends.Running(), r.term.Valid()); s != nil; s = l.next(r.config.Ends.Running(), r.term.Valid()) {
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
			r.fit.ends(w.node, w.why, r.config.Ends.Running())
			switch w.why {
			case "":
				l.take(w.node)
			case reasonRefused:
				l.refuse(w.node, r.config.Ends.Running())
			}
			if doubts(w.err) && !asking && r.config.Right != nil {
				asking = true
				r.ask(ctx)
			}
		case err := <-r.told:
			if asking = false; err != nil {
				return fmt.Errorf("%w: %w", ErrUnable, err)
			}
		case <-look.C:
			if err := r.fit.judge(r.config.Ends.Running()); err != nil {
				return fmt.Errorf("%w: %w", ErrUnable, err)
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
	now := r.config.Ends.Running()
	writing, stop := context.WithTimeout(ctx, s.deadline.Sub(now))
	r.stops[s.node] = stop
	r.fit.begins(s.node, now)
	r.owned.Go(func() {
		logger := klog.FromContext(ctx)
		cloud, why, err := r.write(writing, s)
		switch {
		case why == "":
			r.metrics.forwarded.Inc()
			r.metrics.age.Observe(r.config.Ends.Since(s.seen).Seconds())
			logger.V(2).Info("Heartbeat forwarded", "of", s.node, "after", r.config.Ends.Since(s.seen))
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

// ask asks whether this hub may forward at all, in a goroutine of its own.
func (r *round) ask(ctx context.Context) {
	r.owned.Go(func() {
		err := r.config.Right(ctx)
		select {
		case r.told <- err:
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
		if ctx.Err() != nil || !r.config.Ends.Running().Before(s.deadline) {
			return current.Lease, reasonAged, nil //nolint:nilerr // the reason says it
		}
		written, err := leases.Update(ctx, lease, metav1.UpdateOptions{})
		switch {
		case err == nil:
			return written, "", nil
		case apierrors.IsConflict(err), apierrors.IsInvalid(err) && lease.ResourceVersion == "", apierrors.IsNotFound(err),
			apierrors.IsAlreadyExists(err):
			// Moved on, created meanwhile (an update without a resourceVersion is invalid then), or gone.
			known, refused = false, err
		default:
			why, err := failure(ctx, fmt.Errorf("write the Lease in the cloud: %w", err))
			return nil, why, err // it may have taken effect all the same
		}
	}
	return nil, reasonRefused, fmt.Errorf("write the Lease in the cloud, %d times: %w", attempts, refused)
}

// doubts reports whether an error may be about this hub's right to forward, and not about one Lease.
func doubts(err error) bool { return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) }

// failure tells a renewal that ran out of time, or was called off, from one that the cloud refused, or did not take.
func failure(ctx context.Context, err error) (reason, error) {
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return reasonAged, err
	case ctx.Err() != nil:
		return reasonUnmarked, nil //nolint:nilerr // called off
	}
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Code/100 == 4 && !apierrors.IsTooManyRequests(err) {
		return reasonRefused, err
	}
	return reasonFailed, err
}
