package autonomy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"yurtcoordinator/internal/cloud/objects"
	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/ends"
)

// FieldOwner is the field manager of all writes to Nodes and Pods.
const FieldOwner = "coordinator-controller"

// fieldNode selects Pods by their node. The API server has an index for it.
const fieldNode = "spec.nodeName"

// Reasons of the Events on a Node.
const (
	// EventAutonomous (Normal): the node's Pods are kept from now on, or their time has changed.
	EventAutonomous = "NodeAutonomous"

	// EventOrdinary (Normal): all Pods of the node have their owners' tolerations again.
	EventOrdinary = "NodeAutonomyEnded"

	// EventUnreadable (Warning): the duration can't be read.
	EventUnreadable = "InvalidAutonomyDuration"
)

// Config is what a Policy needs. All fields are required.
type Config struct {
	// Nodes reads Nodes from a cache and writes to the API server.
	Nodes client.Client

	// Pods reads, watches and writes Pods on the API server, without a cache.
	Pods client.WithWatch

	// Events receives the Events on Nodes, and bounds their rate.
	Events events.EventRecorder

	// Ends date conditions and the beginnings of holds, and spread retries.
	Ends ends.Ends
}

// Policy is the controller. Make one with New and hand it to a manager with AddTo.
type Policy struct {
	nodes    client.Client
	pods     client.WithWatch
	events   events.EventRecorder
	ends     ends.Ends
	registry *registry
	metrics  *metrics
}

// New returns a Policy that has seen nothing yet.
func New(c Config) *Policy {
	return &Policy{
		nodes: c.Nodes, pods: c.Pods, events: c.Events, ends: c.Ends,
		registry: newRegistry(), metrics: newMetrics(),
	}
}

// Metrics returns the Policy's metrics. The caller registers them.
func (p *Policy) Metrics() prometheus.Collector { return p.metrics }

// Annotations returns the keys of a Node's annotations that this package reads.
func Annotations() []string {
	return []string{edge.AnnotationAutonomy, edge.AnnotationAutonomyDuration}
}

// reconcileNode first writes what a Node's annotations ask for into the Node's condition, and then updates all Pods of the
// Node. If the annotations ask for nothing any more, it updates the Pods first and writes the condition last.
func (p *Policy) reconcileNode(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	name := edge.NodeName(req.Name)
	_, put := p.registry.get(name) // before the Node is read: any later change is another put
	var node corev1.Node
	if err := p.nodes.Get(ctx, client.ObjectKey{Name: req.Name}, &node); err != nil {
		if !apierrors.IsNotFound(err) {
			return reconcile.Result{}, fmt.Errorf("read Node %s: %w", name, err)
		}
		p.metrics.forget(name)
		p.registry.drop(name, put)
		return reconcile.Result{}, nil
	}
	terms := TermsOf(&node)
	p.metrics.stands(name, edge.PoolName(node.Labels[edge.LabelNodePool]), terms.Rule)
	if put == 0 {
		return reconcile.Result{}, nil
	}
	if terms.Rule != Ordinary {
		if err := p.say(ctx, &node, terms); err != nil {
			return reconcile.Result{}, client.IgnoreNotFound(err)
		}
	}
	after, err := p.sweep(ctx, name, terms)
	switch {
	case err != nil:
		return reconcile.Result{}, client.IgnoreNotFound(err)
	case terms.Rule != Ordinary, after > 0:
		return reconcile.Result{RequeueAfter: after}, nil
	}
	if mayBeMarked(conditionOf(&node)) {
		if err := p.say(ctx, &node, terms); err != nil {
			return reconcile.Result{}, client.IgnoreNotFound(err)
		}
	}
	p.registry.drop(name, put)
	return reconcile.Result{}, nil
}

// sweep settles all Pods of a Node; one failure does not stop the others. It returns when to look again.
func (p *Policy) sweep(ctx context.Context, node edge.NodeName, terms Terms) (time.Duration, error) {
	var pods corev1.PodList
	if err := p.pods.List(ctx, &pods, client.MatchingFields{fieldNode: string(node)}); err != nil {
		return 0, fmt.Errorf("list the Pods of Node %s: %w", node, err)
	}
	var soonest time.Duration
	var failed []error
	for i := range pods.Items {
		after, err := p.settle(ctx, &pods.Items[i], terms)
		switch {
		case err != nil:
			failed = append(failed, err)
		case after > 0 && (soonest == 0 || after < soonest):
			soonest = after
		}
	}
	if len(failed) > 0 {
		return 0, errors.Join(failed...)
	}
	return soonest, nil
}

// reconcilePod gives one Pod what its Node asks for.
func (p *Policy) reconcilePod(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	var pod corev1.Pod
	if err := p.pods.Get(ctx, req.NamespacedName, &pod); err != nil {
		if apierrors.IsNotFound(err) {
			return reconcile.Result{}, nil
		}
		return reconcile.Result{}, fmt.Errorf("read Pod %s: %w", req, err)
	}
	var node corev1.Node
	if err := p.nodes.Get(ctx, client.ObjectKey{Name: pod.Spec.NodeName}, &node); err != nil {
		if apierrors.IsNotFound(err) { // not bound, or its Node is gone and Kubernetes collects the Pod
			return reconcile.Result{}, nil
		}
		return reconcile.Result{}, fmt.Errorf("read Node %s: %w", pod.Spec.NodeName, err)
	}
	after, err := p.settle(ctx, &pod, TermsOf(&node))
	if err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	return reconcile.Result{RequeueAfter: after}, nil
}

// settle writes what a Pod needs now, and returns when to look again. A Pod that is gone needs nothing.
func (p *Policy) settle(ctx context.Context, pod *corev1.Pod, terms Terms) (time.Duration, error) {
	change, after := Plan(pod, terms, p.ends.Wall())
	if change.Step == Leave {
		return after, nil
	}
	// The resourceVersion, which no two states of an object share, limits the patch to this Pod as it was read.
	patch, err := json.Marshal(append([]Operation{{"replace", "/metadata/resourceVersion", pod.ResourceVersion}},
		change.Patch...))
	if err != nil {
		return 0, fmt.Errorf("encode the patch of Pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	name := klog.KObj(pod)
	err = p.pods.Patch(ctx, pod, client.RawPatch(types.JSONPatchType, patch), client.FieldOwner(FieldOwner))
	switch {
	case apierrors.IsNotFound(err):
		return 0, nil
	case err != nil:
		if !apierrors.IsConflict(err) {
			p.metrics.failed()
		}
		return 0, fmt.Errorf("patch the tolerations of Pod %s: %w", name, err)
	}
	p.metrics.patched(change.Step)
	klog.FromContext(ctx).V(2).Info("Patched tolerations", "pod", name, "step", change.Step)
	return after, nil
}

// say writes the condition into the Node and records an Event, unless the Node already has this condition. The patch carries the
// resourceVersion. So a reconcile that has read an outdated Node fails with a conflict, and records no Event twice.
func (p *Policy) say(ctx context.Context, node *corev1.Node, terms Terms) error {
	next := terms.condition()
	was := conditionOf(node)
	if says(was, next) || node.DeletionTimestamp != nil {
		return nil
	}
	base := node.DeepCopy()
	now := metav1.NewTime(p.ends.Wall())
	next.LastHeartbeatTime, next.LastTransitionTime = now, now
	if was.Status == next.Status {
		next.LastTransitionTime = was.LastTransitionTime
	}
	isOurs := func(c corev1.NodeCondition) bool { return c.Type == next.Type }
	if i := slices.IndexFunc(node.Status.Conditions, isOurs); i >= 0 {
		node.Status.Conditions[i] = next
	} else {
		node.Status.Conditions = append(node.Status.Conditions, next)
	}
	patch := client.StrategicMergeFrom(base, client.MergeFromWithOptimisticLock{})
	if err := p.nodes.Status().Patch(ctx, node, patch, client.FieldOwner(FieldOwner)); err != nil {
		return fmt.Errorf("patch condition %s of Node %s: %w", next.Type, base.Name, err)
	}
	klog.FromContext(ctx).Info("Wrote condition", "node", klog.KRef("", base.Name), "condition", next.Type,
		"from", was.Status, "to", next.Status, "message", next.Message)
	eventType, reason := corev1.EventTypeNormal, EventOrdinary
	switch terms.Rule {
	case Ordinary:
	case Kept:
		reason = EventAutonomous
	case Unreadable:
		eventType, reason = corev1.EventTypeWarning, EventUnreadable
	}
	about := objects.Regarding(base, corev1.SchemeGroupVersion.WithKind("Node"))
	p.events.Eventf(about, nil, eventType, reason, "KeepPods", "%s", next.Message)
	return nil
}
