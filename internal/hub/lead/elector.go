package lead

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	coordinationv1 "k8s.io/api/coordination/v1"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/klog/v2"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/ends"
	"yurtcoordinator/internal/hub/link"
	"yurtcoordinator/internal/live"
	"yurtcoordinator/internal/run"
)

// ElectorConfig configures an Elector. All fields are required unless they say otherwise.
type ElectorConfig struct {
	// Node is this hub's node; its name is the identity in the election.
	Node edge.NodeName
	// Cloud and Coordinator are the states of this hub's links.
	Cloud, Coordinator *live.Value[link.State]
	// Leases is a client of the coordinator. There, the hub must be allowed to get, create and update the Lease
	// kube-system/yurthub. Seen is that Lease as the coordinator's stream shows it (State.Election).
	Leases coordinationv1client.LeasesGetter
	Seen   *live.Value[Sighting]
	// Lead is the leader's duty, run for one term. When its context ends, Lead must return within 500 ms without further I/O. If
	// it returns before its context ends, the elector releases the Lease, and this hub campaigns again after a pause.
	Lead func(ctx context.Context, term edge.Term) error
	// Prove returns an error unless the cloud lets this hub do the leader's duty. The elector calls it before each campaign. A
	// nil Prove means that no proof is needed.
	Prove func(ctx context.Context) error
	// Doubtful reports whether the cloud leaves a request unanswered while the link still counts as up. The hub then begins no
	// term, because its link may be down while another hub's is up. A nil Doubtful means never.
	Doubtful func() bool
	// Metrics registers the metrics of the role. nil means that they are not exported.
	Metrics prometheus.Registerer
	// Ends are this machine's clocks and random numbers.
	Ends ends.Ends
}

// ErrUnfit is wrapped by a duty's error if this hub can't do the duty, but another hub perhaps can. This hub then campaigns
// again after 30 s, or after 4 s if no hub leads by then.
var ErrUnfit = errors.New("this hub can't do a leader's duty")

// Elector determines this hub's role. Make one with NewElector.
type Elector struct {
	config   ElectorConfig
	instance string // tells this process from others under the same node name
	board    *board
	yields   yields
	standing *live.Value[Standing]
	metrics  metrics
}

type metrics struct {
	role  *prometheus.GaugeVec
	terms *prometheus.CounterVec
	clash prometheus.Gauge
}

// NewElector returns an Elector. It registers its metrics.
func NewElector(c ElectorConfig) *Elector {
	m := promauto.With(c.Metrics)
	return &Elector{
		config: c, instance: c.Ends.UUID(), board: newBoard(c.Ends.Clock), standing: live.NewValue(Standing{}),
		metrics: metrics{
			role: m.NewGaugeVec(prometheus.GaugeOpts{
				Name: "yurthub_role", Help: "1 for the role that this hub has in its pool.",
			}, []string{"role"}),
			terms: m.NewCounterVec(prometheus.CounterOpts{
				Name: "yurthub_leader_terms_total", Help: "Terms that this hub has led, by how they ended.",
			}, []string{"end"}),
			clash: m.NewGauge(prometheus.GaugeOpts{
				Name: "yurthub_identity_clash",
				Help: "1 while another process holds the election Lease under this node's name.",
			}),
		},
	}
}

// Standing returns this hub's place in its pool, now and as it changes.
func (k *Elector) Standing() *live.Value[Standing] { return k.standing }

// Renewed returns when this hub last saw the election Lease change, by its running clock; zero if it knows of no Lease.
func (k *Elector) Renewed() time.Time {
	lease, _ := k.board.read()
	if lease == nil {
		return time.Time{}
	}
	return k.board.since(lease)
}

// Run takes part in the election until ctx ends. Then it releases the Lease if this hub holds it, and returns nil. If the duty
// returns in time, the release takes at most about two seconds.
func (k *Elector) Run(ctx context.Context) error {
	logger := klog.FromContext(ctx).WithValues("node", k.config.Node)
	ctx = klog.NewContext(ctx, logger)
	var owned sync.WaitGroup
	// observe outlives the last campaign, whose release reads the board.
	observing, stopObserving := context.WithCancel(context.WithoutCancel(ctx))
	defer owned.Wait()
	defer stopObserving()
	owned.Go(func() { k.observe(observing) })

	machine := NewMachine(k.config.Node)
	events := make(chan Event)
	cancel := func() {}
	campaigning := false
	failures := &run.Backoff{Min: backoffMin, Max: backoffMax}
	take := func(e Event) {
		before := machine.Standing()
		action := machine.Step(e)
		k.publish(logger, before, machine.Standing(), e)
		switch action {
		case Campaign:
			var campaign context.Context
			campaign, cancel = context.WithCancel(ctx)
			campaigning = true
			owned.Go(func() { k.campaign(campaign, failures, events) })
		case Release:
			cancel()
		}
	}
	var shown Observed
	for {
		cloud, cloudChanged := k.config.Cloud.Watch()
		coordinator, coordinatorChanged := k.config.Coordinator.Watch()
		lease, _, boardChanged := k.board.watch()
		k.yields.saw(lease, k.config.Ends.Now())
		take(Links{cloud, coordinator})
		if seen := (Observed{holder(lease), transitions(lease)}); seen != shown {
			shown = seen
			take(seen)
		}
		k.reportClash(logger, lease)
		select {
		case <-ctx.Done():
			for campaigning {
				e := <-events
				_, ended := e.(Ended)
				campaigning = !ended
			}
			cancel()
			k.publish(logger, machine.Standing(), Standing{}, Links{})
			return nil
		case e := <-events:
			if _, ended := e.(Ended); ended {
				campaigning = false
				cancel()
			}
			take(e)
		case <-cloudChanged:
		case <-coordinatorChanged:
		case <-boardChanged:
		}
	}
}

func (k *Elector) publish(logger klog.Logger, before, now Standing, why Event) {
	for _, r := range []Role{Pending, Follower, Leader} {
		value := 0.0
		if r == now.Role {
			value = 1
		}
		k.metrics.role.WithLabelValues(r.String()).Set(value)
	}
	if k.standing.Set(now) {
		logger.Info("Place in the pool changed", "role", now.Role, "was", before.Role, "leader", now.Leader,
			"transitions", now.Transitions, "after", why.String())
	}
}

// reportClash reports another process that holds the Lease under this node's name. For up to leaseDuration this can be the hub's
// own predecessor, which crashed. After that time the other process is a second hub with this node's name and certificate.
func (k *Elector) reportClash(logger klog.Logger, lease *coordinationv1.Lease) {
	other := ""
	if lease != nil {
		other = namesake(lease, k.config.Node, k.instance)
	}
	if other == "" {
		k.metrics.clash.Set(0)
		return
	}
	k.metrics.clash.Set(1)
	logger.V(1).Info("Another process holds the election Lease under this node's name. Unless it is the hub that ran "+
		"here before, two machines have the same node name: give one of them another", "holder", other)
}

// campaign runs one candidacy, and pauses after it if the proof or the duty has failed. It sends the events Won and Lost as they
// happen, and Ended last.
func (k *Elector) campaign(ctx context.Context, failures *run.Backoff, events chan<- Event) {
	logger := klog.FromContext(ctx)
	began := k.config.Ends.Running()
	err := k.prove(ctx)
	proven := err == nil
	if proven {
		err = k.candidacy(ctx, events)
	}
	if yield := (*Yield)(nil); errors.As(err, &yield) {
		_ = run.Pause(ctx, leaseDuration) // by then somebody leads
		err = nil
	}
	if err != nil && ctx.Err() == nil {
		if k.config.Ends.Since(began) >= steadyTerm {
			failures.Reset()
		}
		pause := failures.Next(k.config.Ends.Float64())
		// A hub that was refused before it led has kept no other from leading: a new pool's rights come seconds after its hubs.
		unfit := proven && errors.Is(err, ErrUnfit)
		if unfit {
			pause = leaseDuration // by then another leads, if one can
		}
		logger.Error(err, "This hub can't do a leader's duty; campaigning after a pause", "pause", pause)
		_ = run.Pause(ctx, pause)
		if lease, _ := k.board.read(); unfit && lease != nil && holder(lease) != "" {
			_ = run.Pause(ctx, unfitPause-pause)
		}
	}
	events <- Ended{}
}

// prove finds out whether this hub could do its duty if it led.
func (k *Elector) prove(ctx context.Context) error {
	if k.config.Prove == nil {
		return nil
	}
	return k.config.Prove(ctx)
}

// candidacy runs one election and, if won, one term. It returns the error of a duty that ended before its term, otherwise nil.
func (k *Elector) candidacy(ctx context.Context, events chan<- Event) error {
	logger := klog.FromContext(ctx)
	l := &lock{
		leases: k.config.Leases.Leases(edge.NamespaceSystem), board: k.board,
		identity: k.config.Node, instance: k.instance, fence: &fence{clock: k.config.Ends.Clock},
		doubtful: k.config.Doubtful, ends: k.config.Ends,
	}
	won := make(chan *coordinationv1.Lease, 1)
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: l, Name: l.Describe(),
		LeaseDuration: leaseDuration, RenewDeadline: renewDeadline, RetryPeriod: retryPeriod,
		// candidacy releases the Lease, after the duty has returned; the elector would do it before.
		ReleaseOnCancel: false,
		Callbacks: leaderelection.LeaderCallbacks{
			// The elector calls this in a goroutine of its own, after the lock has set term, which then never changes.
			OnStartedLeading: func(context.Context) { won <- l.term },
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		return fmt.Errorf("set up the election: %w", err)
	}
	electing, stopElecting := context.WithCancel(quiet(ctx))
	defer stopElecting()
	elected := make(chan struct{})
	go func() {
		defer close(elected)
		elector.Run(electing)
	}()

	var duty *duty
	select {
	case <-elected: // ctx ended before the Lease was won
	case lease := <-won:
		duty = k.term(ctx, l, lease, elected, events)
	}
	// By now the fence has fallen, and the duty has returned or used up its grace.
	stopElecting()
	<-elected
	releasing, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTimeout)
	defer cancel()
	var heir edge.NodeName
	if duty != nil {
		select {
		case <-duty.done:
			if yield := (*Yield)(nil); errors.As(duty.failure, &yield) {
				heir = yield.To
			}
		default: // it does not return in time
		}
	}
	if err := l.release(releasing, heir); err != nil {
		logger.Error(err, "The election Lease was not released")
	}
	if duty == nil {
		return nil
	}
	<-duty.done
	return duty.failure
}

// duty is one run of ElectorConfig.Lead.
type duty struct {
	done    chan struct{}
	failure error // why it ended unasked; set before done is closed
}

// term leads until ctx ends, the elector gives up, the duty returns, or the Lease no longer belongs to this term. Then it makes
// the term invalid (fence.fall) and asks the duty to return. term returns when the duty has returned, or after leadGrace.
func (k *Elector) term(
	ctx context.Context, l *lock, lease *coordinationv1.Lease, elected <-chan struct{}, events chan<- Event,
) *duty {
	logger := klog.FromContext(ctx)
	won := Won{transitions(lease)}
	events <- won
	leading, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	d := &duty{done: make(chan struct{})}
	go func() {
		defer close(d.done)
		err := k.config.Lead(leading, l.fence.term(won.Transitions))
		switch {
		case leading.Err() != nil: // asked to return: its error no longer matters
		case err == nil:
			d.failure = errors.New("the duty returned before its term was over")
		default:
			d.failure = err
		}
	}()

	var end string
	for end == "" {
		seen, known, changed := l.board.watch()
		if known && !l.same(seen, lease) {
			end = "deposed"
			break
		}
		select {
		case <-ctx.Done():
			end = "released"
		case <-elected:
			end = "not renewed"
		case <-d.done:
			end = "duty failed"
			if errors.Is(d.failure, ErrUnfit) {
				end = "unfit"
			}
			if yield := (*Yield)(nil); errors.As(d.failure, &yield) {
				end = "yielded"
			}
		case <-changed:
		}
	}
	l.fence.fall()
	stop(fmt.Errorf("term %d is over: %s", won.Transitions, end))
	k.metrics.terms.WithLabelValues(end).Inc()
	logger.Info("Term is over", "transitions", won.Transitions, "end", end)
	events <- Lost{}

	grace := time.NewTimer(leadGrace)
	defer grace.Stop()
	select {
	case <-d.done:
	case <-grace.C:
		logger.Error(nil, "The leader's duty did not return in time; the Lease is released without it",
			"grace", leadGrace)
	}
	return d
}
