package heartbeat

import (
	"context"
	"errors"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
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

	// workers is how many Nodes are written at a time. A reconcile that writes waits for two round trips of a few
	// milliseconds each: 16 workers write to well over 1000 Nodes a second, more than the client's own limit allows.
	workers = 16

	// reconcileTimeout bounds the writes of one reconcile; the API server's own limit for a request is a minute.
	reconcileTimeout = 15 * time.Second

	// retryMax is the longest wait before a failed reconcile is tried again, before jitter.
	retryMax = 30 * time.Second

	// echoDelay is how long a change of a Node that calls for a write waits. Most are the first half of our own two
	// writes, seen before the second half is. What is left is somebody undoing our work, which can wait this long.
	echoDelay = 250 * time.Millisecond
)

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// AddTo registers the controllers with a manager, to run while the manager leads. The first watches before that, so that a
// replica that takes over knows at once which nodes are delegated. The manager's cache needs the options of Cached.
func (p *Policy) AddTo(mgr manager.Manager) error {
	return errors.Join(
		control.Controller{
			Name: controllerName, Reconciler: p, Workers: workers, Timeout: reconcileTimeout, RetryMax: retryMax, Warm: true,
			Watch: []source.Source{
				source.Kind(mgr.GetCache(), &coordinationv1.Lease{}, p.leaseHandler()),
				source.Kind(mgr.GetCache(), &corev1.Node{}, p.nodeHandler()),
				source.Func(p.queue.begin),
			},
		}.AddTo(mgr),
		(&roll{client: p.client}).addTo(mgr))
}

// leaseHandler takes in every change of a Lease and enqueues the node only when the finding changed by it: 1000 nodes
// that renew every 10 s enqueue nothing.
func (p *Policy) leaseHandler() handler.TypedFuncs[*coordinationv1.Lease, reconcile.Request] {
	return handler.TypedFuncs[*coordinationv1.Lease, reconcile.Request]{
		CreateFunc: func(_ context.Context, e event.TypedCreateEvent[*coordinationv1.Lease], q queue) {
			if p.sightings.Saw(e.Object) {
				q.Add(requestFor(e.Object.Name))
			}
		},
		UpdateFunc: func(_ context.Context, e event.TypedUpdateEvent[*coordinationv1.Lease], q queue) {
			if p.sightings.Saw(e.ObjectNew) {
				q.Add(requestFor(e.ObjectNew.Name))
			}
		},
		DeleteFunc: func(_ context.Context, e event.TypedDeleteEvent[*coordinationv1.Lease], q queue) {
			if p.sightings.Lost(e.Object) {
				q.Add(requestFor(e.Object.Name))
			}
		},
	}
}

// nodeHandler enqueues new Nodes, deleted ones, and those that no longer say what they should.
func (p *Policy) nodeHandler() handler.TypedFuncs[*corev1.Node, reconcile.Request] {
	return handler.TypedFuncs[*corev1.Node, reconcile.Request]{
		CreateFunc: func(_ context.Context, e event.TypedCreateEvent[*corev1.Node], q queue) {
			q.Add(requestFor(e.Object.Name))
		},
		UpdateFunc: func(_ context.Context, e event.TypedUpdateEvent[*corev1.Node], q queue) {
			name := edge.NodeName(e.ObjectNew.Name)
			finding, _ := p.sightings.Judge(name)
			switch {
			case e.ObjectOld.UID != e.ObjectNew.UID, poolOf(e.ObjectOld) != poolOf(e.ObjectNew):
				q.Add(requestFor(e.ObjectNew.Name))
			case !Plan(e.ObjectNew, finding, p.options.show(poolOf(e.ObjectNew))).IsZero():
				q.AddAfter(requestFor(e.ObjectNew.Name), echoDelay)
			}
		},
		DeleteFunc: func(_ context.Context, e event.TypedDeleteEvent[*corev1.Node], q queue) {
			q.Add(requestFor(e.Object.Name))
		},
	}
}

func requestFor(node string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Name: node}}
}

// Cached says what the manager's cache must hold: the Leases of the nodes and no others, and of Leases and Nodes only
// what is read here, and what others read of both: the addresses of Nodes, and their annotations of these keys; what a
// pool's leader reports. (A Node is some 10 KB, most of it the list of its images.)
func Cached(annotations func(*corev1.Node) []string) map[client.Object]cache.ByObject {
	return map[client.Object]cache.ByObject{
		&coordinationv1.Lease{}: {
			Namespaces: map[string]cache.Config{corev1.NamespaceNodeLease: {}},
			Transform:  stripLease,
		},
		&corev1.Node{}: {Transform: stripNode(annotations)},
	}
}

// stripLease keeps what Sightings reads. An object of another type (a tombstone) passes as it is.
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
	stripped.Labels = nil
	for _, key := range []string{edge.DelegateHeartbeat, edge.AnnotationReachedNodes} {
		if v, ok := lease.Annotations[key]; ok {
			metav1.SetMetaDataAnnotation(&stripped.ObjectMeta, key, v)
		}
	}
	return stripped, nil
}

// stripNode keeps what Plan reads, these annotations, and what a patch is made from.
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
