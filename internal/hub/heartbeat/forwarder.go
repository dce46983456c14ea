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
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/klog/v2"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/ends"
	"yurtcoordinator/internal/hub/lead"
)

// lookEvery is how often a leader checks its fitness, and whether a node's pause is over.
const lookEvery = time.Second

// firstTry is the least time for the first try of a write, because the answer may wait behind 4 s of other data. secondTry is
// left for a second try: enough to connect anew and to write again. If there is no time for both before the write's deadline, the
// first try lasts until then.
const firstTry, secondTry = 6 * time.Second, 3 * time.Second

// ErrUnable is wrapped by Forwarder.Run's error if this hub can't forward heartbeats. Another hub may be able to.
var ErrUnable = errors.New("this hub can't forward heartbeats")

// ForwarderConfig is what a Forwarder needs. All fields are required unless it says otherwise.
type ForwarderConfig struct {
	// Node is this hub's own node, whose Lease is forwarded first.
	Node edge.NodeName
	// Cloud is a client of the cloud with the pool's forwarding identity. This identity must be allowed to get, update and create
	// the Leases in kube-node-lease that are named after the pool's nodes (RBAC resourceNames). The Forwarder creates a missing
	// Lease by PUT, because RBAC can't allow a POST for certain names only.
	Cloud coordinationv1client.LeasesGetter
	// Right asks the cloud whether this hub may forward at all. It returns an error only if the cloud says no. The Forwarder
	// calls Right if the cloud answers a request for one Lease with 401 or 403. A nil Right means that the hub may forward.
	Right func(ctx context.Context) error
	// Metrics takes the metrics of forwarding. nil means that they are not exported.
	Metrics prometheus.Registerer
	// Ends are this machine's clocks and random numbers.
	Ends ends.Ends
}

// Forwarder writes delegated nodes' renewals to the cloud, from all coordinators where this hub leads. Make one with
// NewForwarder.
//
// Forwarder writes a renewal within a quarter of the node's lease duration (at most 10 s) after this hub saw it, or not at all. A
// second bound is 2 s longer, and counts from when the coordinator stored the renewal. Both use this machine's monotonic clock
// alone, so neither a pause of the process nor a stalled connection stretches them. TCP may deliver a write later: over a path
// that loses packets, it sends again for 12 s (upstream's unackedTimeout).
//
// Forwarder tries a write that gets no answer once more within the bounds, over a connection that may be new.
type Forwarder struct {
	config  ForwarderConfig
	metrics forwarderMetrics

	mu     sync.Mutex
	rounds map[int]*round // by slot
	queue  *queue
	fit    *fitness
	asking bool                                 // whether this hub may forward at all
	stops  map[edge.NodeName]context.CancelFunc // calls off the write under way for a node
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
	f := &Forwarder{config: c, rounds: map[int]*round{}, fit: newFitness(), stops: map[edge.NodeName]context.CancelFunc{}}
	f.queue = newQueue(c.Node, func(node edge.NodeName, why reason) { f.dropped(klog.Background(), node, why) })
	f.metrics = forwarderMetrics{
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
	}
	return f
}

// Source is a coordinator where this hub leads.
type Source struct {
	Slot int
	// Told passes on the heartbeats that the coordinator has; lead.State does.
	Told Heartbeats
}

// Heartbeats are the nodes' heartbeats that a coordinator has.
type Heartbeats interface {
	// Heartbeats passes the heartbeats on until ctx ends.
	Heartbeats(ctx context.Context, to lead.LeaseSink)
	// Heard returns when the coordinator last reported heartbeats, or that there are none, by the running clock.
	Heard() time.Time
}

// Run forwards from one coordinator for one term. When ctx ends, Run cancels the writes under way, waits for them and returns
// nil. If fitness or ForwarderConfig.Right finds that this hub can't forward, Run returns an error that wraps ErrUnable. Only one
// Run at a time is allowed per slot.
func (f *Forwarder) Run(ctx context.Context, from Source, term edge.Term) error {
	ctx, cancel := context.WithCancel(ctx)
	var owned sync.WaitGroup
	defer owned.Wait()
	r := &round{
		Forwarder: f, slot: from.Slot, term: term, ctx: ctx, owned: &owned, unable: make(chan error, 1),
	}
	f.begin(r)
	defer f.end(r)
	defer cancel()
	owned.Go(func() { from.Told.Heartbeats(ctx, r) })
	began := f.config.Ends.Running()
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-r.unable:
			return fmt.Errorf("%w: %w", ErrUnable, err)
		case <-look.C:
			var err error
			heard := from.Told.Heard()
			if heard.Before(began) {
				heard = began
			}
			r.update(func(q *queue) {
				now := f.config.Ends.Running()
				q.forgive(now)
				err = f.fit.unfit(now, heard)
			})
			if err != nil {
				return fmt.Errorf("%w: %w", ErrUnable, err)
			}
		}
	}
}

// round is one term at one coordinator. It is a lead.LeaseSink.
type round struct {
	*Forwarder
	slot   int
	term   edge.Term
	ctx    context.Context //nolint:containedctx // it is the round's: what it started ends with it
	owned  *sync.WaitGroup
	unable chan error // the cloud has said that this hub may not forward
}

func (f *Forwarder) begin(r *round) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.rounds) == 0 {
		f.fit.anew()
	}
	f.rounds[r.slot] = r
}

func (f *Forwarder) end(r *round) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.rounds, r.slot)
	f.queue.end(r.slot)
	f.goOnLocked()
}

// update applies a change to the queue, and starts the writes that follow from it.
func (r *round) update(what func(*queue)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.rounds[r.slot] != r {
		return // it is over
	}
	what(r.queue)
	r.goOnLocked()
}

// Baseline implements lead.LeaseSink.
func (r *round) Baseline(leases []coordinationv1.Lease) {
	r.update(func(q *queue) { q.baseline(r.slot, leases) })
}

// Changed implements lead.LeaseSink. A Lease without the mark is not forwarded.
func (r *round) Changed(lease *coordinationv1.Lease) {
	now := r.config.Ends.Running()
	stored, known := r.term.NotBefore(lead.LeaseRevision(lease))
	r.update(func(q *queue) { q.change(r.slot, lease, now, stored, known) })
}

// goOnLocked cancels and starts writes, as the queue says.
func (f *Forwarder) goOnLocked() {
	for node, stop := range f.stops {
		if f.queue.left(node) {
			stop() // the node took its mark off, so nobody may write for it
		}
	}
	valid := func(slot int) bool {
		r := f.rounds[slot]
		return r != nil && r.ctx.Err() == nil && r.term.Valid()
	}
	for {
		now := f.config.Ends.Running()
		s := f.queue.next(now, valid)
		if s == nil {
			break
		}
		f.rounds[s.slot].startLocked(s, now)
	}
	f.metrics.delegated.Set(float64(f.queue.count()))
}

func (f *Forwarder) dropped(logger klog.Logger, node edge.NodeName, why reason) {
	f.metrics.dropped.WithLabelValues(string(why)).Inc()
	logger.V(2).Info("Heartbeat not forwarded", "of", node, "reason", why)
}

// startLocked writes a renewal in a goroutine of its own, until its deadline.
func (r *round) startLocked(s *sighting, now time.Time) {
	writing, stop := context.WithTimeout(r.ctx, s.deadline.Sub(now))
	r.stops[s.node] = stop
	r.fit.begins(s.node, now)
	r.owned.Go(func() {
		defer stop()
		logger := klog.FromContext(r.ctx)
		cloud, why, err := r.write(writing, s)
		switch {
		case why == "":
			r.metrics.forwarded.Inc()
			r.metrics.age.Observe(r.config.Ends.Since(s.seen).Seconds())
			logger.V(2).Info("Heartbeat forwarded", "of", s.node, "after", r.config.Ends.Since(s.seen))
		case err != nil && r.ctx.Err() == nil:
			logger.Error(err, "A delegated heartbeat did not reach the cloud", "of", s.node)
			fallthrough
		default:
			r.dropped(logger, s.node, why)
		}
		r.finish(s.node, cloud, why, err, now)
	})
}

// finish records how the write of a node's renewal has ended. The parameter cloud is the node's Lease in the cloud; nil means
// unknown. The parameter why says why the renewal was not written; "" means that it was written.
func (r *round) finish(node edge.NodeName, cloud *coordinationv1.Lease, why reason, err error, began time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.config.Ends.Running()
	delete(r.stops, node)
	var took time.Duration
	if why == "" {
		took = now.Sub(began)
	}
	r.queue.done(node, cloud, took)
	r.fit.ends(node, why, now)
	switch why {
	case "":
		r.queue.accepted(node)
	case reasonRefused:
		least := refusedMin
		if errors.Is(err, errLarge) {
			least = largePause
		}
		r.queue.refuse(node, now, least)
	}
	if doubts(err) && !r.asking && r.config.Right != nil && r.ctx.Err() == nil {
		r.asking = true
		r.owned.Go(r.checkRight)
	}
	r.goOnLocked()
}

// checkRight asks whether this hub may forward at all.
func (r *round) checkRight() {
	err := r.config.Right(r.ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asking = false
	if err == nil {
		return
	}
	for _, one := range r.rounds {
		select {
		case one.unable <- err:
		default: // it has heard
		}
	}
}

// write writes a renewal to the cloud. It returns the node's Lease in the cloud (nil if unknown), the reason why it did not write
// ("" if it did), and the error if there was one.
func (r *round) write(ctx context.Context, s *sighting) (*coordinationv1.Lease, reason, error) {
	leases := r.config.Cloud.Leases(corev1.NamespaceNodeLease)
	current, known := cloudLease{Lease: s.cloud, before: true}, s.cloud != nil
	if known {
		current.latest = renewTime(s.cloud)
	}
	// The Lease may move on under us: the node may report itself, or have its Lease deleted. Each attempt decides anew.
	const attempts = 4
	var refused error
	// A device on the way may have forgotten the connection. The hub notices that only when no answer comes, so the first try
	// leaves time for a second one. The second try reads the Lease anew, because the first may have taken effect.
	first := s.deadline.Sub(r.config.Ends.Running())
	if first >= firstTry+secondTry {
		first -= secondTry
	}
	trying, end := context.WithTimeout(ctx, first)
	defer end()
	var sent *metav1.MicroTime // by a write that had no answer
	again := true
	unanswered := func(err error) bool {
		if why, _ := failure(ctx, err); err == nil || !again || why != reasonFailed || answered(err) {
			return false
		}
		trying, again = ctx, false
		return true
	}
	for range attempts {
		if !known {
			fresh, err := leases.Get(trying, string(s.node), metav1.GetOptions{})
			switch {
			case apierrors.IsNotFound(err):
				fresh = nil
			case unanswered(err):
				continue
			case err != nil:
				why, err := failure(ctx, fmt.Errorf("read the Lease in the cloud: %w", err))
				return nil, why, err
			}
			current.Lease, current.before = fresh, false
			if fresh != nil && renewTime(fresh).After(current.latest) {
				current.latest = renewTime(fresh)
			}
			if fresh != nil && sent != nil && fresh.Spec.RenewTime.Equal(sent) {
				return fresh, "", nil // it has taken effect
			}
		}
		if current.Lease != nil && current.Size() > maxLease {
			return nil, reasonRefused, fmt.Errorf("%w: %d bytes; delete it, and a leader makes another in ten minutes",
				errLarge, current.Size())
		}
		lease, why := forward(s.lease, current)
		if why != "" {
			return current.Lease, why, nil
		}
		// The term is checked right before each write, because time may have passed since the decision. In a process that was
		// stopped, the context's own timer may not have fired yet.
		if !r.term.Valid() {
			return current.Lease, reasonDeposed, nil
		}
		if ctx.Err() != nil || !r.config.Ends.Running().Before(s.deadline) {
			return current.Lease, reasonAged, nil
		}
		written, err := leases.Update(trying, lease, metav1.UpdateOptions{})
		switch {
		case err == nil:
			return written, "", nil
		case apierrors.IsConflict(err), apierrors.IsInvalid(err) && lease.ResourceVersion == "", apierrors.IsNotFound(err),
			apierrors.IsAlreadyExists(err):
			// The Lease changed, was created meanwhile (then an update without a resourceVersion is invalid), or is gone.
			known, refused = false, err
		case unanswered(err):
			known, sent = false, lease.Spec.RenewTime
		default:
			why, err := failure(ctx, fmt.Errorf("write the Lease in the cloud: %w", err))
			return nil, why, err // it may have taken effect all the same
		}
	}
	return nil, reasonRefused, fmt.Errorf("write the Lease in the cloud, %d times: %w", attempts, refused)
}

// errLarge says that a node's Lease is not written because of its size.
var errLarge = errors.New("the Lease in the cloud is too large")

// doubts reports whether an error may be about this hub's right to forward, and not about one Lease.
func doubts(err error) bool { return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) }

// failure tells apart the errors of a write: out of time, cancelled, refused by the cloud, or failed.
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

// answered reports whether an error is an answer.
func answered(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status)
}
