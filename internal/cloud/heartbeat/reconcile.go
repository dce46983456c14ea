package heartbeat

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"yurtcoordinator/internal/cloud/objects"
	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/ends"
)

// FieldOwner is the field manager of all writes to Nodes.
const FieldOwner = "coordinator-controller"

// Config is what a Policy needs. All fields are required unless it says otherwise.
type Config struct {
	// Client reads Nodes from a cache and writes to the API server.
	Client client.Client

	// Events receives the Events on Nodes, and bounds their rate.
	Events events.EventRecorder

	// Ends measure how long a Lease is silent, date conditions and spread retries.
	Ends ends.Ends

	// SilenceAfter is how long a Lease may stay unrenewed before the state of the node's link is unknown. See Judge.
	SilenceAfter time.Duration

	// Calm is the time within which the source of a node's heartbeats may change three times (changesMost). A node whose source
	// changes more often is Unsettled until the source has stayed the same for that time. Zero means that changes are not
	// limited.
	Calm time.Duration
}

// Policy is the controller. Make one with New and hand it to a manager with AddTo.
type Policy struct {
	client    client.Client
	events    events.EventRecorder
	ends      ends.Ends
	sightings *Sightings
	damper    *damper
	options   *options
	metrics   metrics
	queue     lateQueue
}

// New returns a Policy that has seen nothing yet.
func New(c Config) *Policy {
	return &Policy{
		client:    c.Client,
		events:    c.Events,
		ends:      c.Ends,
		sightings: NewSightings(c.Ends.Clock, c.SilenceAfter),
		damper:    newDamper(c.Calm),
		options:   newOptions(),
		metrics:   newMetrics(),
	}
}

// Metrics returns the Policy's metrics. The caller registers them.
func (p *Policy) Metrics() []prometheus.Collector {
	return []prometheus.Collector{p.metrics.transitions, p.metrics.flapping, p.metrics.putBack}
}

// Reconcile writes on the requested Node what its Lease means, in one write, or none if the Node already says so. If taints and
// conditions are due, it writes the taints, because they keep Pods off. The next reconcile writes the conditions, after the
// taints of all waiting nodes. Reconcile also puts back a renewTime from the future (putBack).
func (p *Policy) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	name := edge.NodeName(req.Name)
	var node corev1.Node
	if err := p.client.Get(ctx, client.ObjectKey{Name: req.Name}, &node); err != nil {
		if !apierrors.IsNotFound(err) {
			return reconcile.Result{}, fmt.Errorf("read Node %s: %w", name, err)
		}
		p.damper.forget(name)
		p.sightings.Forget(name)
		return reconcile.Result{}, nil
	}
	finding, holds := p.sightings.Judge(name)
	p.compareGrace(&node, finding)
	finding, damped, begins := p.damper.settle(name, finding, p.ends.Running())
	if damped > 0 && (holds == 0 || damped < holds) {
		holds = damped
	}
	if begins {
		p.metrics.flapping.WithLabelValues(string(poolOf(&node))).Inc()
		p.tell(&node, Event{corev1.EventTypeWarning, EventHeartbeatsFlap, fmt.Sprintf(
			"Heartbeats keep changing between the node's own and forwarded ones: its link comes and goes, or a node of its pool "+
				"forwards what it should not. Until they have stayed the same for %v, it gets only new Pods that fit nowhere "+
				"else",
			p.damper.within)})
	}
	change := p.plan(&node, finding)
	err := p.apply(ctx, &node, change)
	if err == nil {
		err = p.putBack(ctx, &node, finding)
	}
	switch {
	case apierrors.IsNotFound(err): // deleted meanwhile; the watch will tell
		return reconcile.Result{}, nil
	case err != nil:
		return reconcile.Result{}, err
	case change.edits() && change.reports() && (holds == 0 || holds > echoLost):
		return reconcile.Result{RequeueAfter: echoLost, Priority: new(conditionsLast)}, nil
	}
	return reconcile.Result{RequeueAfter: holds}, nil
}

// clocksDiffer is how far the clocks of kube-controller-manager and of ours may be apart.
const clocksDiffer = 5 * time.Second

// compareGrace records an Event if kube-controller-manager has found a node silent, and this controller has not yet. Then what
// this controller does at silence, such as a hold, comes after the evicting taint. compareGrace skips a node whose heartbeats
// have come back since.
func (p *Policy) compareGrace(node *corev1.Node, f Finding) {
	ready, seen := ConditionOf(node, corev1.NodeReady), p.sightings.Observe(edge.NodeName(node.Name))
	if speaks := f.Verdict == Direct || f.Verdict == Delegated; !speaks || !GivenUp(ready) {
		return
	}
	grace := seen.Age - p.ends.Wall().Sub(ready.LastTransitionTime.Time)
	if grace < clocksDiffer {
		return
	}
	p.tell(node, Event{corev1.EventTypeWarning, EventGracePeriodTooShort, fmt.Sprintf(
		"kube-controller-manager found the node silent %v after its last heartbeat, and coordinator-controller would after %v: "+
			"holds of evictions come too late. Set controller.silenceAfter of the chart (--silence-after) below "+
			"--node-monitor-grace-period, and the kubelets' nodeLeaseDurationSeconds to no more than that",
		grace.Round(time.Second), f.Patience)})
}

// plan plans as the node's pool wants it.
func (p *Policy) plan(node *corev1.Node, f Finding) Change {
	return plan(node, f, p.options.of(poolOf(node)))
}

// apply writes one half of c to node.
func (p *Policy) apply(ctx context.Context, node *corev1.Node, c Change) error {
	log := klog.FromContext(ctx).WithValues("node", klog.KRef("", node.Name))
	if c.edits() {
		if err := p.writeNode(ctx, node, c); err != nil {
			return err
		}
		log.Info("Wrote taints and label", "taint", edge.TaintUnschedulable, "taintEdit", c.Taint, "effect", c.Effect,
			"label", edge.LabelExcludeDisruption, "labelEdit", c.Exclude, "evictingTaintsRemoved", c.Unevict)
		return nil
	}
	if !c.reports() {
		return nil
	}
	if err := p.writeStatus(ctx, node, c); err != nil {
		return err
	}
	if c.Condition != nil {
		log.Info("Wrote condition", "condition", edge.ConditionCloudLinkDown,
			"from", c.Was, "to", c.Condition.Status, "reason", c.Condition.Reason)
		p.metrics.changed(c.Was, c.Condition.Status)
	}
	if c.Ready != nil {
		log.Info("Wrote condition", "condition", corev1.NodeReady, "to", c.Ready.Status, "reason", c.Ready.Reason)
	}
	if c.Event != nil {
		p.tell(node, *c.Event)
	}
	return nil
}

func (p *Policy) tell(node *corev1.Node, e Event) {
	about := objects.Regarding(node, corev1.SchemeGroupVersion.WithKind("Node"))
	p.events.Eventf(about, nil, e.Type, e.Reason, "JudgeHeartbeat", "%s", e.Note)
}

// writeNode writes taints and label. It replaces the whole list of taints, because Kubernetes treats the list as one value. The
// patch has the resourceVersion, so it fails with a conflict if anybody else has changed the Node.
func (p *Policy) writeNode(ctx context.Context, node *corev1.Node, c Change) error {
	base := node.DeepCopy()
	if c.Unevict {
		node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, Evicts)
	}
	if c.Taint != Keep {
		node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, isOurs)
	}
	if c.Taint == Add {
		node.Spec.Taints = append(node.Spec.Taints, ourTaint(c.Effect))
	}
	switch c.Exclude {
	case Add:
		metav1.SetMetaDataLabel(&node.ObjectMeta, edge.LabelExcludeDisruption, edge.ExcludedCloudLinkDown)
	case Remove:
		delete(node.Labels, edge.LabelExcludeDisruption)
	case Keep:
	}
	patch := client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{})
	if err := p.client.Patch(ctx, node, patch, client.FieldOwner(FieldOwner)); err != nil {
		return fmt.Errorf("patch taints and labels of Node %s: %w", base.Name, err)
	}
	return nil
}

// writeStatus merges conditions into the status by their types. The patch has the resourceVersion, so a reconcile that has read
// an outdated Node fails with a conflict. Otherwise it could announce a transition twice, or overwrite a newer condition of
// kubelet or kube-controller-manager.
func (p *Policy) writeStatus(ctx context.Context, node *corev1.Node, c Change) error {
	base := node.DeepCopy()
	now := metav1.NewTime(p.ends.Wall())
	if c.Condition != nil {
		SetCondition(node, c.Condition.at(now, edge.ConditionCloudLinkDown, now))
	}
	if c.Ready != nil {
		// LastHeartbeatTime stays: kube-controller-manager takes a new one as a sign of life.
		SetCondition(node, c.Ready.at(now, corev1.NodeReady, ConditionOf(node, corev1.NodeReady).LastHeartbeatTime))
	}
	patch := client.StrategicMergeFrom(base, client.MergeFromWithOptimisticLock{})
	if err := p.client.Status().Patch(ctx, node, patch, client.FieldOwner(FieldOwner)); err != nil {
		return fmt.Errorf("patch conditions of Node %s: %w", base.Name, err)
	}
	return nil
}

// SetCondition gives a Node's condition a new value.
func SetCondition(node *corev1.Node, is corev1.NodeCondition) {
	i := slices.IndexFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == is.Type })
	if i < 0 {
		node.Status.Conditions = append(node.Status.Conditions, is)
		return
	}
	node.Status.Conditions[i] = is
}

// at returns a Node's condition that has changed now, last confirmed at another time.
func (c Condition) at(now metav1.Time, kind corev1.NodeConditionType, confirmed metav1.Time) corev1.NodeCondition {
	return corev1.NodeCondition{
		Type: kind, Status: c.Status, Reason: c.Reason, Message: c.Message, LastTransitionTime: now, LastHeartbeatTime: confirmed,
	}
}

func poolOf(node *corev1.Node) edge.PoolName { return edge.PoolName(node.Labels[edge.LabelNodePool]) }
