package nodepool

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"yurtcoordinator/apis/apps/v1beta2"
	"yurtcoordinator/internal/cloud/control"
	"yurtcoordinator/internal/cloud/objects"
	"yurtcoordinator/internal/edge"
)

// Finalizer holds back the deletion of a NodePool that has nodes.
const Finalizer = "apps.openyurt.io/nodepool"

// pools is the controller that writes NodePools.
type pools struct {
	cfg     Config
	metrics *metrics
}

// Reconcile corrects a NodePool's finalizer and status. It makes at most two writes, and none if they are right.
func (p *pools) Reconcile(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
	pool := &v1beta2.NodePool{}
	if err := p.cfg.Client.Get(ctx, r.NamespacedName, pool); err != nil {
		if apierrors.IsNotFound(err) {
			p.metrics.forget(r.Name)
			return reconcile.Result{}, nil
		}
		return reconcile.Result{}, fmt.Errorf("read NodePool %s: %w", r.Name, err)
	}
	members, err := control.NodesOf(ctx, p.cfg.Client, r.Name)
	if err != nil {
		return reconcile.Result{}, err
	}
	status := statusOf(pool, members, metav1.NewTime(p.cfg.Clock.Now()))
	p.metrics.stands(r.Name, status)
	return reconcile.Result{}, client.IgnoreNotFound(p.write(ctx, pool, status))
}

func (p *pools) write(ctx context.Context, pool *v1beta2.NodePool, status v1beta2.NodePoolStatus) error {
	if pool.DeletionTimestamp != nil && len(status.Nodes) == 0 {
		return p.release(ctx, pool)
	}
	if pool.DeletionTimestamp == nil && !controllerutil.ContainsFinalizer(pool, Finalizer) {
		if err := objects.Finalize(ctx, p.cfg.Client, pool, controllerutil.AddFinalizer, Finalizer, FieldOwner); err != nil {
			return err
		}
	}
	p.announce(pool, status)
	if equal(pool.Status, status) {
		return nil
	}
	pool.Status = status
	// A patch would leave out counts that are zero before and after, but the API server requires them.
	if err := p.cfg.Client.Status().Update(ctx, pool, client.FieldOwner(FieldOwner)); err != nil {
		return fmt.Errorf("update status of NodePool %s: %w", pool.Name, err)
	}
	return nil
}

func equal(a, b v1beta2.NodePoolStatus) bool {
	return a.ObservedGeneration == b.ObservedGeneration && a.ReadyNodeNum == b.ReadyNodeNum &&
		a.UnreadyNodeNum == b.UnreadyNodeNum && slices.Equal(a.Nodes, b.Nodes) &&
		slices.EqualFunc(a.Conditions, b.Conditions, func(a, b v1beta2.NodePoolCondition) bool {
			return a.Type == b.Type && a.Status == b.Status && a.Reason == b.Reason && a.Message == b.Message
		})
}

// release lets a NodePool be deleted if the API server knows of no node in it. It asks the API server because the cache may not
// have the newest node yet.
func (p *pools) release(ctx context.Context, pool *v1beta2.NodePool) error {
	if !controllerutil.ContainsFinalizer(pool, Finalizer) {
		return nil
	}
	found := &metav1.PartialObjectMetadataList{}
	found.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NodeList"))
	if err := p.cfg.Reader.List(ctx, found, client.MatchingLabels{edge.LabelNodePool: pool.Name}, client.Limit(1)); err != nil {
		return fmt.Errorf("look for nodes of NodePool %s: %w", pool.Name, err)
	}
	if len(found.Items) > 0 {
		return nil // the cache will get it, which enqueues the pool again
	}
	if err := objects.Finalize(ctx, p.cfg.Client, pool, controllerutil.RemoveFinalizer, Finalizer, FieldOwner); err != nil {
		return err
	}
	klog.FromContext(ctx).Info("Released a NodePool without nodes that was deleted", "pool", pool.Name)
	return nil
}

// announce says why a deletion waits, and what is left out. The recorder merges equal Events.
func (p *pools) announce(pool *v1beta2.NodePool, status v1beta2.NodePoolStatus) {
	warn := func(reason, action, note string, args ...any) {
		p.cfg.Events.Eventf(objects.Regarding(pool, kindPool), nil, corev1.EventTypeWarning, reason, action, note, args...)
	}
	if pool.DeletionTimestamp != nil {
		warn("NodePoolHasNodes", "DeleteNodePool",
			"The NodePool is deleted once it has no nodes. It still has %s: kubectl label node NAME %s- removes one.",
			edge.Some(status.Nodes), edge.LabelNodePool)
		return
	}
	if keys := reservedAttributes(pool); len(keys) > 0 {
		warn("AttributesLeftOut", "WriteNode",
			"A NodePool may not set Kubernetes' own labels and annotations, or those that say in which pool or where a node is. "+
				"%s are left out: remove them from the NodePool, and set them on nodes if you may.", edge.Some(keys))
	}
	if taints := reservedTaints(pool); len(taints) > 0 {
		warn("TaintsLeftOut", "WriteNode",
			"A NodePool may not set Kubernetes' own taints, or those of other controllers. %s are left out: remove them "+
				"from the NodePool.", edge.Some(taints))
	}
}

// poolHandler enqueues a NodePool at each change, so that what somebody else writes into its status is overwritten. Changes
// outside the spec wait a moment (settle). Most of them are our own writes, and the cache may not show the latest of these yet.
func (p *pools) poolHandler() handler.TypedFuncs[*v1beta2.NodePool, reconcile.Request] {
	type pool = *v1beta2.NodePool
	add := func(p pool, q control.Queue) { q.Add(control.Request(p.Name)) }
	return handler.TypedFuncs[pool, reconcile.Request]{
		CreateFunc: func(_ context.Context, e event.TypedCreateEvent[pool], q control.Queue) { add(e.Object, q) },
		UpdateFunc: func(_ context.Context, e event.TypedUpdateEvent[pool], q control.Queue) {
			was, is := e.ObjectOld, e.ObjectNew
			if was.Generation != is.Generation || was.UID != is.UID || !was.DeletionTimestamp.Equal(is.DeletionTimestamp) {
				add(is, q)
			} else {
				q.AddAfter(control.Request(is.Name), settle)
			}
		},
		DeleteFunc: func(_ context.Context, e event.TypedDeleteEvent[pool], q control.Queue) { add(e.Object, q) },
	}
}

// nodeHandler enqueues a pool when a node changes in a way that shows in the pool's status. The pool waits a moment (settle),
// because more nodes may change.
func (p *pools) nodeHandler() handler.TypedFuncs[*corev1.Node, reconcile.Request] {
	return control.On(func(was, is *corev1.Node) bool { return ready(was) != ready(is) || changed(was, is) },
		func(_ context.Context, node *corev1.Node, q control.Queue) {
			if pool := poolOf(node); pool != "" {
				q.AddAfter(control.Request(pool), settle)
			}
		})
}
