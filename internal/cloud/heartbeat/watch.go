package heartbeat

import (
	"context"
	"errors"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"yurtcoordinator/internal/cloud/control"
	"yurtcoordinator/internal/edge"
)

const (
	controllerName = "heartbeat"

	// workers is how many Nodes are written at a time. Each write waits a few milliseconds for the API server. 16 workers write
	// well over 1000 Nodes a second, more than the client's own limit allows.
	workers = 16

	// conditionsLast is the queue priority of a Node whose taint is right but whose condition must still be written. All Nodes
	// whose taints are due come before it, also those found at the start (handler.LowPriority). After the cut of a region the
	// API server may take a minute for all of them. The taints are more urgent, because they keep Pods off.
	conditionsLast = handler.LowPriority - 1

	// reconcileTimeout bounds the writes of one reconcile; the API server's own limit for a request is a minute.
	reconcileTimeout = 15 * time.Second

	// retryMax is the longest wait before a failed reconcile is tried again, before jitter.
	retryMax = 30 * time.Second

	// undoneDelay is how long a Node waits after somebody undid what we wrote. So somebody who undoes our writes again and again
	// causes at most four writes of the Node a second.
	undoneDelay = 250 * time.Millisecond

	// echoLost is how long the second half of a change waits, at most, until the watch shows the first half.
	echoLost = 5 * time.Second
)

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// AddTo registers the controllers with a manager. They run while the manager leads. The first one watches even before that, so
// that a replica that takes over knows at once which nodes are delegated. The manager's cache needs the options of Cached.
func (p *Policy) AddTo(mgr manager.Manager) error {
	return errors.Join(
		control.Controller{
			Name: controllerName, Reconciler: p, Workers: workers, Timeout: reconcileTimeout, RetryMax: retryMax, Warm: true,
			Chance: p.ends.Chance,
			Watch: []source.Source{
				source.Kind(mgr.GetCache(), &coordinationv1.Lease{}, p.leaseHandler()),
				source.Kind(mgr.GetCache(), &corev1.Node{}, p.nodeHandler()),
				source.Func(p.queue.begin),
			},
		}.AddTo(mgr),
		shownRoll().AddTo(mgr, p.ends.Chance))
}

// leaseHandler records every change of a Lease, but enqueues the node only if its finding changed. So renewals alone enqueue
// nothing, even if 1000 nodes send one every 10 s.
func (p *Policy) leaseHandler() handler.TypedFuncs[*coordinationv1.Lease, reconcile.Request] {
	return handler.TypedFuncs[*coordinationv1.Lease, reconcile.Request]{
		CreateFunc: func(_ context.Context, e event.TypedCreateEvent[*coordinationv1.Lease], q control.Queue) {
			if p.sightings.Saw(e.Object) {
				q.Add(control.Request(e.Object.Name))
			}
		},
		UpdateFunc: func(_ context.Context, e event.TypedUpdateEvent[*coordinationv1.Lease], q control.Queue) {
			if p.sightings.Saw(e.ObjectNew) {
				q.Add(control.Request(e.ObjectNew.Name))
			}
		},
		DeleteFunc: func(_ context.Context, e event.TypedDeleteEvent[*coordinationv1.Lease], q control.Queue) {
			if p.sightings.Lost(e.Object) {
				q.Add(control.Request(e.Object.Name))
			}
		},
	}
}

// nodeHandler enqueues new Nodes, deleted Nodes, and those that no longer say what they should.
func (p *Policy) nodeHandler() handler.TypedFuncs[*corev1.Node, reconcile.Request] {
	return handler.TypedFuncs[*corev1.Node, reconcile.Request]{
		CreateFunc: func(_ context.Context, e event.TypedCreateEvent[*corev1.Node], q control.Queue) {
			q.Add(control.Request(e.Object.Name))
		},
		UpdateFunc: func(_ context.Context, e event.TypedUpdateEvent[*corev1.Node], q control.Queue) {
			name := edge.NodeName(e.ObjectNew.Name)
			finding, _ := p.sightings.Judge(name)
			finding = p.damper.peek(name, finding, p.ends.Running())
			change := p.plan(e.ObjectNew, finding)
			switch {
			case e.ObjectOld.UID != e.ObjectNew.UID, poolOf(e.ObjectOld) != poolOf(e.ObjectNew):
				q.Add(control.Request(e.ObjectNew.Name))
			case GivenUp(ConditionOf(e.ObjectNew, corev1.NodeReady)) && !GivenUp(ConditionOf(e.ObjectOld, corev1.NodeReady)):
				q.Add(control.Request(e.ObjectNew.Name)) // compareGrace looks at it
			case change.IsZero():
			case !change.edits() && p.plan(e.ObjectOld, finding).edits():
				addLast(q, control.Request(e.ObjectNew.Name)) // our own taint; its condition is due
			default:
				q.AddAfter(control.Request(e.ObjectNew.Name), undoneDelay)
			}
		},
		DeleteFunc: func(_ context.Context, e event.TypedDeleteEvent[*corev1.Node], q control.Queue) {
			q.Add(control.Request(e.Object.Name))
		},
	}
}

// addLast adds a request behind all others.
func addLast(q queue, r reconcile.Request) {
	if ordered, ok := q.(priorityqueue.PriorityQueue[reconcile.Request]); ok {
		ordered.AddWithOpts(priorityqueue.AddOpts{Priority: new(conditionsLast)}, r)
		return
	}
	q.Add(r)
}

// Cached says what the manager's cache must hold. Of Leases it holds those of nodes, and those in which pools' leaders report. Of
// Nodes it keeps what this and other packages read, such as the addresses and the annotations whose keys the function annotations
// returns. A whole Node has some 10 KB, most of it the list of its images.
func Cached(annotations func(*corev1.Node) []string) map[client.Object]cache.ByObject {
	return map[client.Object]cache.ByObject{
		&coordinationv1.Lease{}: {
			Namespaces: map[string]cache.Config{corev1.NamespaceNodeLease: {}},
			Transform:  stripLease,
		},
		&corev1.Node{}: {Transform: stripNode(annotations)},
	}
}

// stripLease keeps what Sightings reads. If the Lease is a pool's report, it also keeps the report's author and content. It
// returns an object of another type, such as a tombstone, as it is.
func stripLease(obj any) (any, error) {
	lease, ok := obj.(*coordinationv1.Lease)
	if !ok {
		return obj, nil
	}
	stripped := &coordinationv1.Lease{
		ObjectMeta: stripMeta(&lease.ObjectMeta),
		Spec: coordinationv1.LeaseSpec{
			LeaseDurationSeconds: lease.Spec.LeaseDurationSeconds,
			RenewTime:            lease.Spec.RenewTime,
		},
	}
	if _, reports := lease.Annotations[edge.AnnotationReachedNodes]; reports {
		stripped.Spec.HolderIdentity = lease.Spec.HolderIdentity
	}
	stripped.Labels = nil
	ours := []string{
		edge.DelegateHeartbeat, edge.AnnotationRelayedBy, edge.AnnotationPutBack, edge.AnnotationHubs, edge.AnnotationHubVersion,
	}
	for _, key := range append(ours, edge.AnnotationsOfReports...) {
		if v, ok := lease.Annotations[key]; ok {
			metav1.SetMetaDataAnnotation(&stripped.ObjectMeta, key, v)
		}
	}
	return stripped, nil
}

// stripNode keeps what plan reads, these annotations, and what a patch is made from.
func stripNode(annotations func(*corev1.Node) []string) func(any) (any, error) {
	return func(obj any) (any, error) {
		node, ok := obj.(*corev1.Node)
		if !ok {
			return obj, nil
		}
		stripped := &corev1.Node{
			ObjectMeta: stripMeta(&node.ObjectMeta),
			Spec:       corev1.NodeSpec{Taints: node.Spec.Taints},
			Status:     corev1.NodeStatus{Conditions: node.Status.Conditions, Addresses: node.Status.Addresses},
		}
		for _, key := range annotations(node) {
			if v, ok := node.Annotations[key]; ok {
				metav1.SetMetaDataAnnotation(&stripped.ObjectMeta, key, v)
			}
		}
		return stripped, nil
	}
}

func stripMeta(m *metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name:              m.Name,
		Namespace:         m.Namespace,
		UID:               m.UID,
		ResourceVersion:   m.ResourceVersion,
		Labels:            m.Labels,
		DeletionTimestamp: m.DeletionTimestamp,
	}
}
