package own

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/klog/v2"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/hub/link"
	"yurtcoordinator/internal/live"
	"yurtcoordinator/internal/run"
	"yurtcoordinator/internal/stream"
)

const (
	// lookEvery is the least time between two looks at what there is to push, which cost no I/O, and the most from a change to
	// its push: only what time alone changes is seen when the coordinator is asked.
	lookEvery = 250 * time.Millisecond
	// askEvery is how often the coordinator is asked whether it still has what it had. It also hears from the hub thereby,
	// and drops a node's objects when it has not for some minutes.
	askEvery = 10 * time.Second

	// backoffMin and backoffMax bound the pause after a failure; each is drawn from its upper half.
	backoffMin = 100 * time.Millisecond
	backoffMax = 5 * time.Second
	// refusedMax bounds the pause after a refusal instead. A coordinator that is just starting does not know yet what nodes
	// may do; one of an earlier version never will.
	refusedMax = 30 * time.Second
)

// Config is what a Pusher needs. All fields are required unless it says otherwise.
type Config struct {
	// Node is this hub's node, Pool the pool that it is of: with another label the node has left it.
	Node edge.NodeName
	Pool edge.PoolName
	// Followed returns what the hub follows at the moment; each selection once.
	Followed func() []Selection
	// Secrets has the Secrets pushed that the node's Pods use.
	Secrets bool
	// Transport reaches the coordinator as this node (upstream.AsNode). Base is its address; the path is ignored. Link is
	// the state of the way there.
	Transport http.RoundTripper
	Base      *url.URL
	Link      *live.Value[link.State]
	// CloudLink is the state of the way to the cloud, and Cloud has the ServiceAccounts there, as this node.
	CloudLink *live.Value[link.State]
	Cloud     corev1client.ServiceAccountsGetter
	// Overlay is what this node says itself.
	Overlay Overlay
	// History returns the one that the cloud is in, as far as is known. Later is told of a later one that the coordinator knows
	// of, as when the disk of this node was lost. Default: the first, and nobody is.
	History func() edge.History
	Later   func(edge.History)
	// Metrics takes the metrics. Default: they are not registered anywhere.
	Metrics prometheus.Registerer
}

// Overlay is what this node says itself: of its Node and Pods, on top of what the cloud has said of them, and its Events;
// standin.Taker is one. It is safe for concurrent use.
type Overlay interface {
	// Cut reports whether the cloud is cut off, or was until a moment ago, or may be.
	Cut(now time.Time) bool
	// AddTo puts what the node says in the place of what the cloud has, and adds its Events, with the histories that their
	// revisions count in. It adds digests of what the cloud has not heard to said; none is 0 or 1.
	AddTo(objects map[stream.ID]stream.Object, in map[stream.ID]edge.History, said map[stream.ID]uint64, cut bool)
	// HasEvent reports whether an Event is to be shown still.
	HasEvent(k stream.Key) bool
	// DropEvent forgets an Event that the coordinator does not take, unless the cloud is to be told of it.
	DropEvent(k stream.Key)
	// AdoptEvent takes in an Event that the coordinator has from an earlier run of this hub: it goes in its time.
	AdoptEvent(k stream.Key, as edge.Moment)
}

// Pusher keeps this node's own objects in the coordinator. Make one with New.
type Pusher struct {
	config      Config
	coordinator *coordinator
	metrics     metrics
	changed     bell // what there is to push

	// The goroutine that pushes owns these.
	gatherer *gatherer
	refused  map[stream.ID]refusal
	have     have
	tag      string    // names the state that have is
	asked    time.Time // or pushed
	adopt    sync.Once // what is there when the hub starts
}

type metrics struct {
	pushes, refused *prometheus.CounterVec
	failures        prometheus.Counter
	objects         prometheus.Gauge
}

// New returns a Pusher. It registers its metrics, and does no I/O.
func New(c Config) (*Pusher, error) {
	if c.Node == "" || c.Pool == "" || c.Followed == nil || c.Transport == nil || c.Base == nil || c.Link == nil ||
		c.CloudLink == nil || c.Cloud == nil || c.Overlay == nil {
		return nil, errors.New("own: Node, Pool, Followed, Transport, Base, Link, CloudLink, Cloud and Overlay are required")
	}
	if c.History == nil {
		c.History = func() edge.History { return 0 }
	}
	if c.Later == nil {
		c.Later = func(edge.History) {}
	}
	m := newMetrics()
	p := &Pusher{
		config: c, coordinator: &coordinator{c.Transport, c.Base}, refused: map[stream.ID]refusal{}, metrics: m,
		changed: newBell(),
	}
	p.gatherer = &gatherer{
		node: c.Node, pool: c.Pool, secrets: c.Secrets, follow: c.Followed,
		overlay: c.Overlay, lasting: map[stream.ID]lasting{},
		accounts: newAccounts(c, p.changed.ring), podAccounts: map[stream.Key]podAccount{},
	}
	if c.Metrics != nil {
		for _, each := range []prometheus.Collector{m.pushes, m.refused, m.failures, m.objects} {
			if err := c.Metrics.Register(each); err != nil {
				return nil, fmt.Errorf("register metrics of this node's objects: %w", err)
			}
		}
	}
	return p, nil
}

func newMetrics() metrics {
	counters := func(name, help, by string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{by})
	}
	return metrics{
		pushes: counters("yurthub_own_pushes_total",
			"Pushes of this node's own objects that the coordinator has taken.", "resource"),
		refused: counters("yurthub_own_refused_total", "Objects of this node that the coordinator has refused.", "resource"),
		failures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "yurthub_own_push_failures_total", Help: "Times that pushing this node's objects had to begin again.",
		}),
		objects: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "yurthub_own_objects", Help: "Objects of this node that the coordinator has, as far as this hub knows.",
		}),
	}
}

// Run pushes until ctx ends, whenever the coordinator can be reached, and reads the ServiceAccounts of the node's Pods; and
// then returns nil.
func (p *Pusher) Run(ctx context.Context) error {
	var others sync.WaitGroup
	defer others.Wait()
	others.Go(func() { p.gatherer.accounts.run(ctx) })
	return p.push(ctx)
}

// push pushes until ctx ends.
func (p *Pusher) push(ctx context.Context) error {
	logger := klog.FromContext(ctx)
	failures, logged := 0, ""
	for ctx.Err() == nil {
		if _, err := p.config.Link.Wait(ctx, func(s link.State) bool { return s == link.Up }); err != nil {
			return nil //nolint:nilerr // only the context ends it
		}
		progress, err := p.session(ctx)
		p.have, p.tag = nil, ""
		p.metrics.objects.Set(0)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // as above
		}
		if progress {
			failures, logged = 0, ""
		}
		p.metrics.failures.Inc()
		pause := pauseAfter(err, failures)
		failures++
		if text := err.Error(); text != logged && pause > 0 {
			logged = text
			logger.Info("Pushing this node's objects to the coordinator begins again", "pause", pause.Round(time.Millisecond),
				"err", err)
		}
		_ = run.Pause(ctx, pause)
	}
	return nil
}

// pauseAfter says how long to wait after the n-th failure in a row.
func pauseAfter(err error, n int) time.Duration {
	if errors.Is(err, errElse) && n == 0 {
		return 0
	}
	most, least := backoffMax, time.Duration(0)
	if why := (*answered)(nil); errors.As(err, &why) {
		least = why.retryAfter
		if why.code < http.StatusInternalServerError {
			most = refusedMax
		}
	}
	pause := min(backoffMin<<min(n, 10), most)
	return max(pause/2+rand.N(pause/2), least)
}

// session asks what the coordinator has, and brings it to what it is to have, until something goes wrong. It reports
// whether anything was pushed.
func (p *Pusher) session(ctx context.Context) (progress bool, err error) {
	if err := p.ask(ctx); err != nil {
		return false, err
	}
	for {
		pushed, err := p.round(ctx)
		progress = progress || pushed
		if err != nil {
			return progress, err
		}
		p.metrics.objects.Set(float64(len(p.have)))
		if !pushed {
			p.await(ctx)
		}
		if ctx.Err() != nil {
			return progress, context.Cause(ctx)
		}
		if time.Since(p.asked) >= askEvery {
			if err := p.ask(ctx); err != nil {
				return progress, err
			}
		}
	}
}

// Changed says that Config.Followed would return something else than before, or that a replica of it or the overlay has
// changed. It does not block.
func (p *Pusher) Changed() { p.changed.ring() }

// await waits until it is worth to look again at what there is to push. An idle node has a few changes a minute, and would
// look some hundred times.
func (p *Pusher) await(ctx context.Context) {
	cloud, linked := p.config.CloudLink.Watch()
	_ = run.Pause(ctx, lookEvery)
	if cloud != link.Up || p.config.Overlay.Cut(time.Now()) {
		return // what was said in a cut goes by time
	}
	next := p.asked.Add(askEvery)
	for _, r := range p.refused {
		if again := r.at.Add(refusedPause); again.Before(next) {
			next = again
		}
	}
	timer := time.NewTimer(time.Until(next))
	defer timer.Stop()
	select {
	case <-p.changed:
	case <-linked:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// ask brings what is known of the coordinator up to date.
func (p *Pusher) ask(ctx context.Context) error {
	has, tag, err := p.coordinator.ask(ctx, p.tag)
	if err != nil {
		return err
	}
	if has != nil {
		p.have = has
		p.config.Later(has.latest())
		p.adopt.Do(func() {
			for i, at := range has {
				if i.Resource == events {
					p.config.Overlay.AdoptEvent(i.Key, at.Moment)
				}
			}
		})
	}
	p.tag, p.asked = tag, time.Now()
	return nil
}

// round pushes the difference between what there is now and what the coordinator has, and reports whether there was one.
func (p *Pusher) round(ctx context.Context) (pushed bool, err error) {
	forget(p.refused, time.Now())
	wanted := p.gatherer.gather(ctx)
	for _, b := range plan(wanted, p.have, p.refused, time.Now()) {
		reasons, tag, err := p.coordinator.push(ctx, p.tag, b)
		if err != nil {
			return pushed, err
		}
		pushed = true
		p.asked, p.tag = time.Now(), tag
		p.have.note(b, wanted, p.refused, reasons, time.Now())
		p.metrics.pushes.WithLabelValues(b.of.resource).Inc()
		p.metrics.refused.WithLabelValues(b.of.resource).Add(float64(len(reasons)))
		for key, why := range reasons {
			klog.FromContext(ctx).V(1).Info("The coordinator does not take an object of this node", "resource", b.of.resource,
				"object", key, "why", why)
		}
		if tag == "" { // something else came about, too
			if err := p.ask(ctx); err != nil {
				return pushed, err
			}
			break
		}
	}
	p.gatherer.keep(wanted, p.have, p.refused)
	return pushed, nil
}

// bell is rung when something has changed, and heard once, however often it was rung before.
type bell chan struct{}

func newBell() bell { return make(bell, 1) }

func (b bell) ring() {
	select {
	case b <- struct{}{}:
	default: // it is ringing
	}
}
