package poolcut

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"yurtcoordinator/apis/apps/v1alpha1"
	"yurtcoordinator/apis/apps/v1beta2"
	"yurtcoordinator/internal/cloud/heartbeat"
	"yurtcoordinator/internal/cloud/objects"
	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/ends"
)

// conflictDelay is the least wait before a pool is retried after a conflict on a Node; jitter up to doubles it.
const conflictDelay = 100 * time.Millisecond

// Reasons of the Events on a NodePool.
const (
	// EventCut (Warning): a hold begins.
	EventCut = "WholePoolCut"
	// EventPoolSpeaks (Normal): a hold ended because a node spoke.
	EventPoolSpeaks = "PoolSpeaks"
	// EventExpired (Normal): a hold ended because its time was over.
	EventExpired = "HoldExpired"
	// EventWithdrawn (Normal): a hold ended because nothing asks for it any more.
	EventWithdrawn = "HoldWithdrawn"
	// EventEmptied (Normal): a hold ended because nothing was left to hold.
	EventEmptied = "HoldEmptied"
	// EventUnreadable (Warning): the annotation can't be read.
	EventUnreadable = "InvalidHoldEvictions"
)

// Config is what a Controller needs. All fields but Default are required.
type Config struct {
	// Client reads from a cache and writes to the API server. It reads Nodes, the Leases in which leaders report, the metadata of
	// NodePools and, if Default is set, YurtCoordinators.
	Client client.Client
	// Events receives the Events on NodePools, and bounds their rate.
	Events events.EventRecorder
	// Ends measure how long Leases are silent and holds last, date conditions and spread retries.
	Ends ends.Ends
	// SilenceAfter is the heartbeat policy's. It is less than kube-controller-manager's node-monitor-grace-period.
	SilenceAfter time.Duration
	// Default is how long evictions are held in a pool that has a coordinator, if its NodePool says nothing. Zero means that
	// they are not held.
	Default time.Duration
}

// Controller is the controller. Make one with New and hand it to a manager with AddTo.
type Controller struct {
	client    client.Client
	events    events.EventRecorder
	ends      ends.Ends
	limits    Limits
	unless    time.Duration // see Config.Default
	sightings *heartbeat.Sightings
	metrics   metrics

	mu    sync.Mutex
	pools map[edge.PoolName]*pool
}

// pool is what is remembered about a pool. Only its reconcile touches it.
type pool struct {
	hold *inProgress
	// complained is the last Problem that was announced.
	complained string
}

// inProgress is a hold in progress.
type inProgress struct {
	// since is the beginning by the wall clock, as the conditions say.
	since time.Time
	// found is when we began the hold or, after a restart, found it. before is how long it had lasted then.
	found  ends.Moment
	before time.Duration
	length time.Duration
	spoke  time.Time // since when nodes speak, by the running clock; zero means that none does
	// announced says that the beginning was announced, by us or by the leader that began it.
	announced bool
}

func (h *inProgress) at(now ends.Moment) *Hold {
	if h == nil {
		return nil
	}
	hold := &Hold{For: h.length, Elapsed: h.before + now.Running.Sub(h.found.Running)}
	if !h.spoke.IsZero() {
		hold.Healing, hold.Healed = true, now.Running.Sub(h.spoke)
	}
	return hold
}

// included reports whether a node with this condition was held until it spoke.
func (h *inProgress) included(is corev1.NodeCondition) bool {
	return h != nil && is.Reason == ReasonNodeSpeaks && !is.LastTransitionTime.Time.Before(h.since)
}

// until returns the end, by the wall clock as it was when the hold was found.
func (h *inProgress) until() string {
	return h.found.Wall.Add(h.length - h.before).UTC().Format(time.RFC3339)
}

// New returns a Controller that has seen nothing yet. The package comment explains its threshold.
func New(c Config) *Controller {
	l := Limits{Silence: c.SilenceAfter * 3 / 4, Grace: c.SilenceAfter}
	return &Controller{
		client: c.Client, events: c.Events, ends: c.Ends, limits: l, unless: c.Default,
		sightings: heartbeat.NewSightings(c.Ends.Clock, l.Silence),
		metrics:   newMetrics(), pools: make(map[edge.PoolName]*pool),
	}
}

// Metrics returns the Controller's metrics. The caller registers them.
func (c *Controller) Metrics() []prometheus.Collector {
	return []prometheus.Collector{c.metrics.held, c.metrics.begun, c.metrics.ends}
}

// Reconcile writes on the Nodes of the requested pool whether evictions are held. It makes at most two writes per Node, and
// none if the Node already says so.
func (c *Controller) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	name := edge.PoolName(req.Name)
	np, err := c.nodePool(ctx, name)
	if err != nil {
		return reconcile.Result{}, err
	}
	nodes, err := c.membersOf(ctx, name)
	if err != nil {
		return reconcile.Result{}, err
	}
	unless, err := c.unlessFor(ctx, np)
	if err != nil {
		return reconcile.Result{}, err
	}
	now, terms := c.ends.Now(), TermsOf(np.Annotations, unless)
	p := c.poolOf(name, nodes, now)
	members := c.observe(nodes, p.hold)
	c.complain(p, np, terms)
	if p.hold != nil && (terms.Problem == "" || p.hold.length <= 0) {
		p.hold.length = terms.For
	}
	d := Decide(members, c.reportsOf(ctx, name), terms, p.hold.at(now), c.limits)
	previous := p.hold
	c.follow(p, d, terms, now)
	c.metrics.stands(name, d.Holds(), terms.For > 0)

	again, err := c.apply(ctx, nodes, d, p.hold)
	written := err == nil && !again
	switch {
	case d.Ended == "":
	case written || d.Begins:
		c.announceEnd(np, previous, d.Ended)
	default:
		p.hold = previous // the hold ends when all of it is written
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	if again {
		return reconcile.Result{RequeueAfter: c.ends.Jitter(conflictDelay, 1)}, nil
	}
	c.announceBeginning(np, p.hold, d)
	if terms == (Terms{}) && p.hold == nil && len(nodes) == 0 {
		c.forget(name)
	}
	return reconcile.Result{RequeueAfter: d.Next}, nil
}

// follow updates the memory of a hold after a decision.
func (c *Controller) follow(p *pool, d Decision, t Terms, now ends.Moment) {
	if d.Ended != "" {
		p.hold = nil
	}
	if d.Begins {
		p.hold = &inProgress{
			since: now.Wall.Add(-d.Since).Truncate(time.Second), found: now, before: d.Since, length: t.For,
		}
	}
	switch {
	case p.hold == nil:
	case !d.Speaking:
		p.hold.spoke = time.Time{}
	case p.hold.spoke.IsZero():
		p.hold.spoke = now.Running
	}
}

// nodePool returns the NodePool's metadata. If there is no NodePool, they are those of one without annotations.
func (c *Controller) nodePool(ctx context.Context, name edge.PoolName) (*metav1.PartialObjectMetadata, error) {
	np := newNodePool()
	if name == noPool {
		return np, nil
	}
	if err := c.client.Get(ctx, client.ObjectKey{Name: string(name)}, np); err != nil && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("read NodePool %s: %w", name, err)
	}
	return np, nil
}

// unlessFor returns how long the pool is held if its NodePool says nothing.
func (c *Controller) unlessFor(ctx context.Context, np *metav1.PartialObjectMetadata) (time.Duration, error) {
	if np.Name == "" || c.unless <= 0 {
		return 0, nil
	}
	var all v1alpha1.YurtCoordinatorList
	err := c.client.List(ctx, &all, client.MatchingFields{index: np.Name}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return 0, fmt.Errorf("list the YurtCoordinators of pool %s: %w", np.Name, err)
	}
	if slices.ContainsFunc(all.Items, func(y v1alpha1.YurtCoordinator) bool { return runs(&y) }) {
		return c.unless, nil
	}
	return 0, nil
}

// runs reports whether this YurtCoordinator gives its pool a coordinator. It does if it has its finalizer and is not being
// deleted. The coordinator need not be reachable, because it can't be while its pool is cut off.
func runs(y *v1alpha1.YurtCoordinator) bool {
	return y.DeletionTimestamp.IsZero() && slices.Contains(y.Finalizers, edge.FinalizerCoordinator)
}

func newNodePool() *metav1.PartialObjectMetadata {
	np := &metav1.PartialObjectMetadata{}
	np.SetGroupVersionKind(v1beta2.GroupVersion.WithKind("NodePool"))
	return np
}

// membersOf returns a pool's Nodes that are not being deleted, from the cache. They must not be changed.
func (c *Controller) membersOf(ctx context.Context, name edge.PoolName) ([]corev1.Node, error) {
	var found corev1.NodeList
	err := c.client.List(ctx, &found, client.MatchingFields{index: string(name)}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, fmt.Errorf("list the nodes of pool %s: %w", name, err)
	}
	return slices.DeleteFunc(slices.Clone(found.Items), func(n corev1.Node) bool { return n.DeletionTimestamp != nil }), nil
}

// reportsOf returns the last reports of a pool's leaders. A Lease that cannot be read is none.
func (c *Controller) reportsOf(ctx context.Context, name edge.PoolName) (all []Report) {
	for _, slot := range edge.Slots() {
		var lease coordinationv1.Lease
		key := client.ObjectKey{Namespace: corev1.NamespaceNodeLease, Name: name.ReportLease(slot)}
		if err := c.client.Get(ctx, key, &lease); err != nil {
			continue
		}
		seen := c.sightings.Observe(edge.NodeName(key.Name))
		all = append(all, Report{
			Fresh:   seen.Renewed && !seen.Gone && seen.Age < c.limits.Grace,
			Leader:  edge.NodeName(ptr.Deref(lease.Spec.HolderIdentity, "")),
			Reached: edge.SplitNodes(lease.Annotations[edge.AnnotationReachedNodes]),
		})
	}
	return all
}

// observe returns what is known about the nodes of a pool with this hold; nil means none.
func (c *Controller) observe(nodes []corev1.Node, h *inProgress) []Member {
	members := make([]Member, len(nodes))
	for i := range nodes {
		n := &nodes[i]
		was, ready := heartbeat.ConditionOf(n, edge.ConditionEvictionsHeld), heartbeat.ConditionOf(n, corev1.NodeReady)
		var lost time.Duration
		if heartbeat.GivenUp(ready) {
			lost = max(1, c.ends.Wall().Sub(ready.LastTransitionTime.Time))
		}
		members[i] = Member{
			Name: edge.NodeName(n.Name), Lease: c.sightings.Observe(edge.NodeName(n.Name)),
			Ready:   ready.Status,
			Lost:    lost,
			Held:    was.Status == corev1.ConditionTrue,
			Within:  was.Status == corev1.ConditionTrue || h.included(was),
			Spent:   was.Status == corev1.ConditionFalse && spends(was.Reason),
			Refused: tainted(n, corev1.TaintNodeNotReady),
		}
	}
	return members
}

// poolOf returns what is remembered about a pool. On the first call it reads that from the Nodes, which may show a hold that
// another process has begun.
func (c *Controller) poolOf(name edge.PoolName, nodes []corev1.Node, now ends.Moment) *pool {
	c.mu.Lock()
	defer c.mu.Unlock()
	p, known := c.pools[name]
	if known {
		return p
	}
	p = &pool{}
	c.pools[name] = p
	if name == noPool {
		return p
	}
	for i := range nodes {
		held := heartbeat.ConditionOf(&nodes[i], edge.ConditionEvictionsHeld)
		if since := held.LastTransitionTime.Time; held.Status == corev1.ConditionTrue &&
			(p.hold == nil || since.Before(p.hold.since)) {
			p.hold = &inProgress{since: since, found: now, before: max(0, now.Wall.Sub(since)), announced: true}
		}
	}
	return p
}

func (c *Controller) forget(name edge.PoolName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.pools, name)
}

// apply writes the decision to the Nodes. An error on one Node does not stop the others. again says that a write met a conflict,
// so that the caller must try again.
func (c *Controller) apply(ctx context.Context, nodes []corev1.Node, d Decision, h *inProgress) (again bool, err error) {
	var errs []error
	for i := range nodes {
		if d.Changes[i] == (Change{}) {
			continue
		}
		err := c.write(ctx, nodes[i].DeepCopy(), d.Changes[i], h)
		switch {
		case apierrors.IsConflict(err):
			again = true
		case err != nil && !apierrors.IsNotFound(err):
			errs = append(errs, err)
		}
	}
	return again, errors.Join(errs...)
}

// write writes the decision to one Node. First it writes the condition, which makes the policy refuse the evicting taint. Then
// it removes an evicting taint that is already there.
func (c *Controller) write(ctx context.Context, node *corev1.Node, change Change, h *inProgress) error {
	was := heartbeat.ConditionOf(node, edge.ConditionEvictionsHeld)
	next := c.condition(was, change, h)
	log := klog.FromContext(ctx).WithValues("node", klog.KRef("", node.Name))
	if was.Status != next.Status || was.Reason != next.Reason || was.Message != next.Message ||
		!was.LastTransitionTime.Time.Equal(next.LastTransitionTime.Time) {
		base := node.DeepCopy()
		heartbeat.SetCondition(node, next)
		patch := client.StrategicMergeFrom(base, client.MergeFromWithOptimisticLock{})
		if err := c.client.Status().Patch(ctx, node, patch, client.FieldOwner(heartbeat.FieldOwner)); err != nil {
			return fmt.Errorf("patch condition %s of Node %s: %w", next.Type, base.Name, err)
		}
		log.Info("Wrote condition", "condition", next.Type, "from", was.Status, "to", next.Status, "reason", next.Reason)
	}
	if change.Status != corev1.ConditionTrue || !slices.ContainsFunc(node.Spec.Taints, heartbeat.Evicts) {
		return nil
	}
	base := node.DeepCopy()
	node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, heartbeat.Evicts)
	patch := client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{})
	if err := c.client.Patch(ctx, node, patch, client.FieldOwner(heartbeat.FieldOwner)); err != nil {
		return fmt.Errorf("remove the evicting taint of Node %s: %w", base.Name, err)
	}
	log.Info("Removed an evicting taint that was already there")
	return nil
}

// condition returns what a Node must say.
func (c *Controller) condition(was corev1.NodeCondition, change Change, h *inProgress) corev1.NodeCondition {
	now := metav1.NewTime(c.ends.Wall().Truncate(time.Second)) // as the API server returns it
	next := corev1.NodeCondition{
		Type: edge.ConditionEvictionsHeld, Status: change.Status, Reason: change.Reason,
		LastHeartbeatTime: now, LastTransitionTime: now,
	}
	switch change.Reason {
	case ReasonCut:
		next.LastTransitionTime = metav1.NewTime(h.since)
		next.Message = fmt.Sprintf("All nodes of the pool fell silent together: probably its link is down. "+
			"No Pod is evicted for that until %s, or until the pool reports. If the site is dead, the annotation %s=0s on its "+
			"NodePool ends it.", h.until(), edge.AnnotationHoldEvictions)
		return next
	case ReasonNodeSpeaks:
		next.Message = "The node renews its Lease again."
	case ReasonPoolSpeaks:
		next.Message = "Other nodes of the pool report again, but this one does not: Kubernetes evicts as usual."
	case ReasonExpired:
		next.Message = "The time of the hold is over: Kubernetes evicts as usual."
	case ReasonWithdrawn:
		next.Message = "The hold was withdrawn: Kubernetes evicts as usual."
	case ReasonLeft:
		next.Message = "The node is not in a held pool."
	}
	if was.Status == next.Status {
		next.LastTransitionTime = was.LastTransitionTime
	}
	return next
}

// announceEnd announces how a hold ended, if its beginning was announced.
func (c *Controller) announceEnd(np *metav1.PartialObjectMetadata, h *inProgress, o Outcome) {
	if h.announced {
		c.metrics.ends.WithLabelValues(string(o)).Inc()
		c.event(np, corev1.EventTypeNormal, endings[o].reason, endings[o].note)
	}
}

// announceBeginning announces that a hold has begun, once the Nodes say so.
func (c *Controller) announceBeginning(np *metav1.PartialObjectMetadata, h *inProgress, d Decision) {
	if h == nil || h.announced {
		return
	}
	h.announced = true
	c.metrics.begun.Inc()
	nodes := 0
	for _, change := range d.Changes {
		if change.Status == corev1.ConditionTrue {
			nodes++
		}
	}
	c.event(np, corev1.EventTypeWarning, EventCut, fmt.Sprintf("All nodes of the pool fell silent together: probably its "+
		"link is down. No Pod of %s is evicted for that for %v, or until the pool reports",
		edge.Count(nodes, "node", "nodes"), h.length))
}

// endings are the Events at a hold's end. Each has its own reason, because the recorder merges Events of the same reason for some
// minutes and keeps the first one's note.
var endings = map[Outcome]struct{ reason, note string }{
	Spoke: {EventPoolSpeaks, "A node of the pool reports again: Kubernetes evicts as usual from nodes that do not"},
	Expired: {EventExpired,
		"The time of the hold is over: Kubernetes evicts as usual"},
	Withdrawn: {EventWithdrawn, "The hold was withdrawn: Kubernetes evicts as usual"},
	Emptied:   {EventEmptied, "No held node is left in the pool"},
}

// complain announces once that the annotation can't be read.
func (c *Controller) complain(p *pool, np *metav1.PartialObjectMetadata, t Terms) {
	if t.Problem != "" && t.Problem != p.complained {
		c.event(np, corev1.EventTypeWarning, EventUnreadable, t.Problem)
	}
	p.complained = t.Problem
}

// event records an Event on a NodePool that exists.
func (c *Controller) event(np *metav1.PartialObjectMetadata, eventType, reason, note string) {
	if np.Name == "" {
		return
	}
	about := objects.Regarding(np, v1beta2.GroupVersion.WithKind("NodePool"))
	c.events.Eventf(about, nil, eventType, reason, "HoldEvictions", "%s", strings.TrimSuffix(note, "."))
}

func tainted(node *corev1.Node, key string) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == key && heartbeat.Evicts(t) })
}
