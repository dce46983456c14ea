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
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"yurtcoordinator/internal/edge"
)

// FieldOwner is the field manager of all writes to Nodes.
const FieldOwner = "coordinator-controller"

// conflictDelay is the least time until a Node that was written with an outdated copy is tried again, jittered up to
// twice of it. The cache has the newer copy within milliseconds; a tenth of the second that a taint may take is ample.
const conflictDelay = 100 * time.Millisecond

// Recorder records Events. It is events.EventRecorder of client-go.
type Recorder interface {
	Eventf(regarding, related runtime.Object, eventType, reason, action, note string, args ...any)
}

// Config is what a Policy needs. All fields are required.
type Config struct {
	// Client reads Nodes from a cache and writes to the API server.
	Client client.Client

	// Events takes the Events on Nodes. It bounds their rate.
	Events Recorder

	// Clock measures how long a Lease is silent; it must be monotonic. It also dates conditions.
	Clock clock.PassiveClock

	// SilenceAfter is how long a Lease may go unrenewed before the node's link is called unknown. See Judge.
	SilenceAfter time.Duration
}

// Policy is the controller. Make one with New and hand it to a manager with AddTo.
type Policy struct {
	client    client.Client
	events    Recorder
	clock     clock.PassiveClock
	sightings *Sightings
	metrics   *metrics
}

// New returns a Policy that has seen nothing yet.
func New(c Config) *Policy {
	return &Policy{
		client:    c.Client,
		events:    c.Events,
		clock:     c.Clock,
		sightings: NewSightings(c.Clock, c.SilenceAfter),
		metrics:   newMetrics(),
	}
}

// Metrics returns the Policy's metrics, to be registered by the caller.
func (p *Policy) Metrics() prometheus.Collector { return p.metrics }

// Reconcile makes the Node that the request names say what its Lease means. It makes at most two writes, and none when
// the Node says so already.
func (p *Policy) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	name := edge.NodeName(req.Name)
	var node corev1.Node
	if err := p.client.Get(ctx, client.ObjectKey{Name: req.Name}, &node); err != nil {
		if !apierrors.IsNotFound(err) {
			return reconcile.Result{}, fmt.Errorf("read Node %s: %w", name, err)
		}
		p.metrics.forget(name)
		p.sightings.Forget(name)
		return reconcile.Result{}, nil
	}
	finding, holds := p.sightings.Judge(name)
	p.metrics.stands(name, standing{poolOf(&node), finding.Verdict == Delegated})

	err := p.apply(ctx, &node, Plan(&node, finding))
	switch {
	case apierrors.IsConflict(err):
		klog.FromContext(ctx).V(2).Info("Node changed since it was read; trying again", "node", klog.KRef("", req.Name))
		return reconcile.Result{RequeueAfter: wait.Jitter(conflictDelay, 1)}, nil
	case apierrors.IsNotFound(err): // deleted meanwhile: the watch will say so
		return reconcile.Result{}, nil
	case err != nil:
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: holds}, nil
}

// apply writes c to node, the taint first: it is what keeps Pods off. An error leaves the rest to the next reconcile,
// which plans anew.
func (p *Policy) apply(ctx context.Context, node *corev1.Node, c Change) error {
	if c.IsZero() {
		return nil
	}
	log := klog.FromContext(ctx).WithValues("node", klog.KRef("", node.Name))
	if c.Taint != TaintKeep {
		if err := p.writeTaint(ctx, node, c.Taint); err != nil {
			return err
		}
		log.Info("Wrote taint", "taint", edge.TaintUnschedulable, "present", c.Taint == TaintAdd)
	}
	if c.Condition == nil {
		return nil
	}
	if err := p.writeCondition(ctx, node, *c.Condition); err != nil {
		return err
	}
	log.Info("Wrote condition", "condition", edge.ConditionCloudLinkDown,
		"from", c.Was, "to", c.Condition.Status, "reason", c.Condition.Reason)
	p.metrics.changed(c.Was, c.Condition.Status)
	if c.Event != nil {
		p.events.Eventf(regarding(node), nil, c.Event.Type, c.Event.Reason, "JudgeHeartbeat", "%s", c.Event.Note)
	}
	return nil
}

// writeTaint replaces the list of taints, which Kubernetes treats as one value: the resourceVersion in the patch makes
// it fail where anybody else changed the Node meanwhile.
func (p *Policy) writeTaint(ctx context.Context, node *corev1.Node, change TaintChange) error {
	base := node.DeepCopy()
	node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, isOurs)
	if change == TaintAdd {
		node.Spec.Taints = append(node.Spec.Taints, ourTaint())
	}
	patch := client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{})
	if err := p.client.Patch(ctx, node, patch, client.FieldOwner(FieldOwner)); err != nil {
		return fmt.Errorf("patch taints of Node %s: %w", base.Name, err)
	}
	return nil
}

// writeCondition merges one condition into the status, by its type. The resourceVersion in the patch keeps an outdated
// reconcile from announcing a transition that another one has written already.
func (p *Policy) writeCondition(ctx context.Context, node *corev1.Node, c Condition) error {
	base := node.DeepCopy()
	now := metav1.NewTime(p.clock.Now())
	next := corev1.NodeCondition{
		Type:               edge.ConditionCloudLinkDown,
		Status:             c.Status,
		Reason:             c.Reason,
		Message:            c.Message,
		LastHeartbeatTime:  now,
		LastTransitionTime: now,
	}
	ours := func(c corev1.NodeCondition) bool { return c.Type == next.Type }
	if i := slices.IndexFunc(node.Status.Conditions, ours); i >= 0 {
		node.Status.Conditions[i] = next
	} else {
		node.Status.Conditions = append(node.Status.Conditions, next)
	}
	patch := client.StrategicMergeFrom(base, client.MergeFromWithOptimisticLock{})
	if err := p.client.Status().Patch(ctx, node, patch, client.FieldOwner(FieldOwner)); err != nil {
		return fmt.Errorf("patch condition %s of Node %s: %w", next.Type, base.Name, err)
	}
	return nil
}

// regarding names the Node of an Event. Without a resourceVersion: the recorder folds Events that are alike into one,
// and with it no two would be.
func regarding(node *corev1.Node) *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}
}

func poolOf(node *corev1.Node) edge.PoolName { return edge.PoolName(node.Labels[edge.LabelNodePool]) }
