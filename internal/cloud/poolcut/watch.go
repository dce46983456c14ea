package poolcut

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"yurtcoordinator/apis/apps/v1alpha1"
	"yurtcoordinator/internal/cloud/control"
	"yurtcoordinator/internal/cloud/heartbeat"
	"yurtcoordinator/internal/edge"
)

const (
	// index finds the Nodes and the YurtCoordinators of a pool in the cache.
	index = "poolcut.pool"

	// noPool stands for no pool. Its members are the Nodes that have left a held pool. It is not a valid name.
	noPool edge.PoolName = "-"

	// workers is how many pools are written at a time.
	workers = 8

	// reconcileTimeout bounds the writes of one reconcile: two for each node of a pool, of a few milliseconds each.
	reconcileTimeout = time.Minute

	// retryMax is the longest wait before a failed reconcile is tried again, before jitter. It is short because only seconds
	// may pass between the verdict and the first taint.
	retryMax = 2 * time.Second

	// settle is how long a change of a node waits for others of its pool, and for our own writes to come back.
	settle = 200 * time.Millisecond
)

// AddTo registers the controller with a manager. It runs while the manager leads. It watches even before that, so that a
// replica that takes over knows which nodes were alive. The manager's cache needs the options of heartbeat.Cached.
func (c *Controller) AddTo(mgr manager.Manager) error {
	k := mgr.GetCache()
	watch := []source.Source{
		source.Kind(k, &coordinationv1.Lease{}, c.leaseHandler()),
		source.Kind(k, &corev1.Node{}, c.nodeHandler()),
		source.Kind(k, newNodePool(), c.poolHandler()),
	}
	find := []client.Object{&corev1.Node{}}
	if c.unless > 0 {
		watch = append(watch, source.Kind(k, &v1alpha1.YurtCoordinator{}, c.coordinatorHandler()))
		find = append(find, &v1alpha1.YurtCoordinator{})
	}
	for _, kind := range find {
		if err := mgr.GetFieldIndexer().IndexField(context.Background(), kind, index, indexed); err != nil {
			return fmt.Errorf("index %T by pool: %w", kind, err)
		}
	}
	return control.Controller{
		Name: "poolcut", Reconciler: c, Workers: workers, Timeout: reconcileTimeout, RetryMax: retryMax, Warm: true,
		Chance: c.ends.Chance,
		Watch:  watch,
	}.AddTo(mgr)
}

func indexed(o client.Object) []string {
	switch o := o.(type) {
	case *corev1.Node:
		if pool := poolNameOf(o); pool != "" {
			return []string{string(pool)}
		}
	case *v1alpha1.YurtCoordinator:
		return []string{o.Spec.NodePool}
	}
	return nil
}

// poolNameOf returns the pool under which a Node is reconciled; empty means none.
func poolNameOf(node *corev1.Node) edge.PoolName {
	if name := edge.PoolName(node.Labels[edge.LabelNodePool]); name != "" {
		return name
	}
	if heartbeat.ConditionOf(node, edge.ConditionEvictionsHeld).Status == corev1.ConditionTrue {
		return noPool
	}
	return ""
}

// leaseHandler records every change of a Lease, but enqueues the node's pool only if the finding changed.
func (c *Controller) leaseHandler() handler.TypedFuncs[*coordinationv1.Lease, reconcile.Request] {
	saw := func(ctx context.Context, lease *coordinationv1.Lease, q control.Queue) {
		news := c.sightings.Saw(lease)
		pool, _ := edge.ReportOf(lease.Name) // a policy keeps Nodes from having such a name
		if pool == "" && news {
			pool, _ = c.poolOfNode(ctx, lease.Name)
		}
		enqueue(q, pool, 0)
	}
	return handler.TypedFuncs[*coordinationv1.Lease, reconcile.Request]{
		CreateFunc: func(ctx context.Context, e event.TypedCreateEvent[*coordinationv1.Lease], q control.Queue) {
			saw(ctx, e.Object, q)
		},
		UpdateFunc: func(ctx context.Context, e event.TypedUpdateEvent[*coordinationv1.Lease], q control.Queue) {
			saw(ctx, e.ObjectNew, q)
		},
		DeleteFunc: func(ctx context.Context, e event.TypedDeleteEvent[*coordinationv1.Lease], q control.Queue) {
			news := c.sightings.Lost(e.Object)
			pool, found := c.poolOfNode(ctx, e.Object.Name)
			if news {
				enqueue(q, pool, 0)
			}
			if !found {
				c.sightings.Forget(edge.NodeName(e.Object.Name))
			}
		},
	}
}

// nodeHandler enqueues the pool of a Node that comes, goes, moves to another pool, or is found silent by kube-controller-manager.
// It enqueues the pool of a held Node at each change, because the Node may be Ready again, or have a taint that it must not have.
func (c *Controller) nodeHandler() handler.TypedFuncs[*corev1.Node, reconcile.Request] {
	return handler.TypedFuncs[*corev1.Node, reconcile.Request]{
		CreateFunc: func(_ context.Context, e event.TypedCreateEvent[*corev1.Node], q control.Queue) {
			enqueue(q, poolNameOf(e.Object), settle)
		},
		UpdateFunc: func(_ context.Context, e event.TypedUpdateEvent[*corev1.Node], q control.Queue) {
			before, after := poolNameOf(e.ObjectOld), poolNameOf(e.ObjectNew)
			if before != after || e.ObjectOld.UID != e.ObjectNew.UID {
				enqueue(q, before, settle)
				enqueue(q, after, settle)
				return
			}
			delay := settle
			switch held := heartbeat.ConditionOf(e.ObjectNew, edge.ConditionEvictionsHeld).Status; {
			case held == corev1.ConditionTrue:
			case !heartbeat.GivenUp(heartbeat.ConditionOf(e.ObjectNew, corev1.NodeReady)),
				heartbeat.GivenUp(heartbeat.ConditionOf(e.ObjectOld, corev1.NodeReady)):
				return
			}
			if tainted(e.ObjectNew, corev1.TaintNodeUnreachable) || tainted(e.ObjectNew, corev1.TaintNodeNotReady) {
				delay = 0
			}
			enqueue(q, after, delay)
		},
		DeleteFunc: func(_ context.Context, e event.TypedDeleteEvent[*corev1.Node], q control.Queue) {
			c.sightings.Forget(edge.NodeName(e.Object.Name))
			enqueue(q, poolNameOf(e.Object), settle)
		},
	}
}

// poolHandler enqueues a NodePool when its annotation changes.
func (c *Controller) poolHandler() handler.TypedFuncs[*metav1.PartialObjectMetadata, reconcile.Request] {
	type pool = *metav1.PartialObjectMetadata
	return control.On(func(was, is pool) bool {
		before, had := was.Annotations[edge.AnnotationHoldEvictions]
		after, has := is.Annotations[edge.AnnotationHoldEvictions]
		return before != after || had != has
	}, func(_ context.Context, p pool, q control.Queue) { enqueue(q, edge.PoolName(p.Name), 0) })
}

// coordinatorHandler enqueues a pool that gets a coordinator or loses it.
func (c *Controller) coordinatorHandler() handler.TypedFuncs[*v1alpha1.YurtCoordinator, reconcile.Request] {
	return control.On(func(was, is *v1alpha1.YurtCoordinator) bool { return runs(was) != runs(is) },
		func(_ context.Context, y *v1alpha1.YurtCoordinator, q control.Queue) {
			enqueue(q, edge.PoolName(y.Spec.NodePool), settle)
		})
}

func enqueue(q control.Queue, pool edge.PoolName, after time.Duration) {
	switch {
	case pool == "":
	case after > 0:
		q.AddAfter(control.Request(string(pool)), after)
	default:
		q.Add(control.Request(string(pool)))
	}
}

// poolOfNode returns the pool of a Node; empty means none. found is false if the cache has no such Node. If the Node comes
// later, nodeHandler enqueues its pool.
func (c *Controller) poolOfNode(ctx context.Context, name string) (pool edge.PoolName, found bool) {
	var node corev1.Node
	if err := c.client.Get(ctx, client.ObjectKey{Name: name}, &node); err != nil {
		return "", false
	}
	return poolNameOf(&node), true
}
