// Package oversee has followers check that their leader forwards heartbeats. A leader that does not, by a fault or because its
// machine is in a thief's hands, would let every delegated node of the pool be evicted while others could speak for it.
//
// A follower with a link to the cloud picks one delegated node at a time, at random. It reads the node's Lease in the cloud as
// the pool's forwarding identity, waits until it has seen the node renew twice at the coordinator, gives the leader half an
// interval more, and reads again. If the renewTime in the cloud has not advanced, it accuses the leader, and the coordinator
// ends that term.
//
// Invariants: a follower counts only renewals that it saw happen in this term. It accuses on two missing ones, the first of which
// is too old to be forwarded by then. It says nothing if it can't read the cloud. While nobody is delegated it asks the cloud
// nothing; otherwise it reads two Leases in about 25 s, however many nodes are delegated.
//
// The alternative was to check the leader's own word (its report in the cloud). A liar reports.
package oversee

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
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
	"k8s.io/utils/ptr"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/hub/leasewatch"
	"yurtcoordinator/internal/hub/link"
	"yurtcoordinator/internal/hub/role"
	"yurtcoordinator/internal/live"
)

const (
	// missing is how many renewals must be missing in the cloud.
	missing = 2

	// defaultEvery is how often kubelet renews by default, and the longest that this package waits for one.
	defaultEvery = 10 * time.Second

	// pause is the time between two checks, before jitter of the same length.
	pause = 5 * time.Second

	// callTimeout bounds one request.
	callTimeout = 5 * time.Second
)

var errOver = errors.New("there is no leader to oversee")

// Config is what an Overseer needs. All fields are required unless it says otherwise.
type Config struct {
	Node edge.NodeName
	// Coordinator is a client of the coordinator. The hub must be allowed to list and watch the Leases in kube-node-lease there.
	Coordinator coordinationv1client.LeasesGetter
	// Cloud is a client of the cloud with the pool's forwarding identity.
	Cloud coordinationv1client.LeasesGetter
	// CloudLink is the state of the link that Cloud uses.
	CloudLink *live.Value[link.State]
	// Standing is this hub's place in its pool.
	Standing *live.Value[role.Standing]
	// Accuse asks the coordinator to end this term of the leader.
	Accuse func(ctx context.Context, term role.Standing) error
	// Metrics takes the metrics of checks. nil means that nobody sees them.
	Metrics prometheus.Registerer
}

// Overseer checks on its leader while it follows. Make one with New.
type Overseer struct {
	cfg    Config
	checks *prometheus.CounterVec
}

// New returns an Overseer. It registers its metrics.
func New(c Config) *Overseer {
	return &Overseer{cfg: c, checks: promauto.With(c.Metrics).NewCounterVec(prometheus.CounterOpts{
		Name: "yurthub_leader_checks_total",
		Help: "Checks on the leader by this hub while it follows: whether delegated heartbeats were forwarded, were missing in " +
			"the cloud, or could not be read there.",
	}, []string{"result"})}
}

// Run checks on leaders until ctx ends; it returns nil.
func (o *Overseer) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		if term, err := o.cfg.Standing.Wait(ctx, o.overseen); err == nil {
			o.oversee(ctx, term)
		}
	}
	return nil
}

// overseen reports whether a standing has a leader that this hub can check on.
func (o *Overseer) overseen(s role.Standing) bool {
	return s.Role == role.Follower && s.Leader != "" && s.Leader != o.cfg.Node
}

// oversee checks on the leader of a term, while the link is up, until the term is over.
func (o *Overseer) oversee(ctx context.Context, term role.Standing) {
	ctx, stop := o.cfg.Standing.While(ctx, func(s role.Standing) bool { return s == term }, errOver)
	defer stop()
	for ctx.Err() == nil {
		if _, err := o.cfg.CloudLink.Wait(ctx, isUp); err != nil {
			return
		}
		linked, stop := o.cfg.CloudLink.While(ctx, isUp, errOver)
		o.watch(linked, term)
		stop()
	}
}

func isUp(s link.State) bool { return s == link.Up }

// watch follows the marked Leases and checks on one after another, until ctx ends.
func (o *Overseer) watch(ctx context.Context, term role.Standing) {
	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel()
	news := make(chan func(*marked))
	watching.Go(func() {
		follow := leasewatch.Config{
			Leases:        o.cfg.Coordinator.Leases(corev1.NamespaceNodeLease),
			LabelSelector: labels.Set{edge.DelegateHeartbeat: edge.DelegateHeartbeatOn}.String(),
		}
		sink := relay{leasewatch.Relay[*marked]{Ctx: ctx, To: news}}
		_ = leasewatch.Follow(ctx, follow, sink) // it returns only the end of ctx
	})
	m := marked{nodes: map[edge.NodeName]*coordinationv1.Lease{}}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		timer.Reset(m.until(time.Now()))
		select {
		case <-ctx.Done():
			return
		case take := <-news:
			take(&m)
		case <-timer.C:
			o.check(ctx, &m, term)
		}
	}
}

// check does what is due: begin to look at a node, or judge.
func (o *Overseer) check(ctx context.Context, m *marked, term role.Standing) {
	log := klog.FromContext(ctx)
	q := m.asked
	node, due := m.due(time.Now())
	if !due {
		return
	}
	cloud, err := o.read(ctx, node)
	switch {
	case ctx.Err() != nil:
		return
	case err != nil:
		log.V(1).Info("Can't check on the leader", "leader", term.Leader, "of", node, "err", err)
		o.checks.WithLabelValues("unread").Inc()
		m.rest(time.Now())
	case q == nil:
		m.begin(node, cloud, time.Now())
	case cloud.After(q.stamp):
		o.checks.WithLabelValues("forwarded").Inc()
		m.rest(time.Now())
	default:
		o.checks.WithLabelValues("missing").Inc()
		m.rest(time.Now())
		err := o.cfg.Accuse(ctx, term)
		log.Error(err, "The leader forwards no heartbeats: accused it", "leader", term.Leader, "transitions", term.Transitions,
			"of", node, "renewals", q.renewals)
	}
}

// read returns the renewTime of a node's Lease in the cloud; zero if it has none.
func (o *Overseer) read(ctx context.Context, node edge.NodeName) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	lease, err := o.cfg.Cloud.Leases(corev1.NamespaceNodeLease).Get(ctx, string(node), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return time.Time{}, nil
	case err != nil:
		return time.Time{}, fmt.Errorf("read Lease %s in the cloud: %w", node, err)
	}
	return renewTime(lease), nil
}

func renewTime(lease *coordinationv1.Lease) time.Time {
	return ptr.Deref(lease.Spec.RenewTime, metav1.MicroTime{}).Time
}

// relay hands what the watch finds to who checks: a leasewatch.Sink.
type relay struct{ leasewatch.Relay[*marked] }

// Baseline implements leasewatch.Sink.
func (r relay) Baseline(leases []coordinationv1.Lease) {
	r.Send(func(m *marked) { m.baseline(leases) })
}

// Changed implements leasewatch.Sink.
func (r relay) Changed(kind watch.EventType, lease *coordinationv1.Lease) {
	now := time.Now()
	r.Send(func(m *marked) { m.changed(kind, lease, now) })
}

// marked are the delegated nodes, and the one that is looked at. It does no I/O and asks no clock.
type marked struct {
	nodes map[edge.NodeName]*coordinationv1.Lease // their copies at the coordinator
	asked *question                               // nil: none
	next  time.Time                               // when to begin with another
}

// question is whether one node's renewals arrive in the cloud.
type question struct {
	node     edge.NodeName
	stamp    time.Time // the cloud's renewTime when it was asked
	began    time.Time
	every    time.Duration // how often the node renews
	renewals int           // seen since
	last     time.Time     // when the last was
}

// baseline takes what a list found: nobody knows when it was written, so it is no renewal.
func (m *marked) baseline(leases []coordinationv1.Lease) {
	clear(m.nodes)
	for i := range leases {
		m.nodes[edge.NodeName(leases[i].Name)] = &leases[i]
	}
	if m.asked != nil && m.nodes[m.asked.node] == nil {
		m.asked = nil
	}
}

func (m *marked) changed(kind watch.EventType, lease *coordinationv1.Lease, now time.Time) {
	node := edge.NodeName(lease.Name)
	if kind == watch.Deleted {
		delete(m.nodes, node)
		if m.asked != nil && m.asked.node == node {
			m.asked = nil
		}
		return
	}
	before := m.nodes[node]
	m.nodes[node] = lease
	renewed := before != nil && !renewTime(before).Equal(renewTime(lease))
	if q := m.asked; q != nil && q.node == node && renewed {
		q.renewals++
		q.last = now
	}
}

// until is how long there is nothing to do.
func (m *marked) until(now time.Time) time.Duration {
	switch q := m.asked; {
	case q != nil && q.renewals >= missing:
		return q.last.Add(q.every / 2).Sub(now)
	case q != nil:
		return q.began.Add((missing + 2) * q.every).Sub(now)
	case len(m.nodes) > 0:
		return m.next.Sub(now)
	}
	return time.Hour
}

// due returns the node whose Lease in the cloud is to be read now; false if there is none.
func (m *marked) due(now time.Time) (edge.NodeName, bool) {
	switch q := m.asked; {
	case m.until(now) > 0:
		return "", false
	case q != nil && q.renewals >= missing:
		return q.node, true
	case q != nil: // it has fallen silent
		m.rest(now)
		return "", false
	}
	all := slices.Collect(maps.Keys(m.nodes))
	return all[rand.IntN(len(all))], true
}

func (m *marked) begin(node edge.NodeName, stamp, now time.Time) {
	every := defaultEvery
	if d := ptr.Deref(m.nodes[node].Spec.LeaseDurationSeconds, 0); d > 0 {
		every = min(time.Duration(d)*time.Second/4, defaultEvery)
	}
	m.asked = &question{node: node, stamp: stamp, began: now, every: every}
}

// rest ends a question, and leaves some time until the next.
func (m *marked) rest(now time.Time) {
	m.asked, m.next = nil, now.Add(pause+rand.N(pause))
}
