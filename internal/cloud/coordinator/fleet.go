package coordinator

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"yurtcoordinator/apis/apps/v1alpha1"
	"yurtcoordinator/apis/apps/v1beta1"
	"yurtcoordinator/internal/cloud/objects"
	"yurtcoordinator/internal/edge"
)

// What all coordinators share is reconciled under this request.
var appRequest = reconcile.Request{NamespacedName: client.ObjectKey{
	Namespace: edge.NamespaceSystem, Name: edge.AppCoordinator,
}}

// reconcileFleet keeps what all coordinators share. If it can't, each YurtCoordinator says so: nobody looks at what has no
// status of its own.
func (r *Reconciler) reconcileFleet(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	result, err := r.keepFleet(ctx)
	if apierrors.IsConflict(err) || ctx.Err() != nil {
		return result, err
	}
	r.mu.Lock()
	was := r.fleet
	r.fleet = err
	r.mu.Unlock()
	if (was == nil) != (err == nil) {
		select {
		case r.fleetTurned <- event.GenericEvent{Object: &v1alpha1.YurtCoordinator{}}:
		default: // all are to be looked at already
		}
	}
	return result, err
}

// fleetTrouble returns why what all coordinators share could not be kept, or nil.
func (r *Reconciler) fleetTrouble() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.fleet
}

// keepFleet keeps the Service, and the YurtAppSet with the pools that must have a coordinator. It decides about each
// pool again, except that a pool which is already in it stays.
func (r *Reconciler) keepFleet(ctx context.Context) (reconcile.Result, error) {
	if err := r.keepService(ctx); err != nil {
		return reconcile.Result{}, err
	}
	have, err := r.appSet(ctx, r.cfg.Client)
	if err != nil {
		return reconcile.Result{}, err
	}
	pools, err := r.wanted(ctx, have)
	if err != nil {
		return reconcile.Result{}, err
	}
	want, err := AppSet(r.cfg, pools)
	if err != nil {
		return reconcile.Result{}, err
	}
	if have == nil || toJSON(have.Spec) != toJSON(want.Spec) {
		if err := r.apply(ctx, want); err != nil {
			return reconcile.Result{}, err
		}
	}
	names := make([]edge.PoolName, len(pools))
	for i, p := range pools {
		names[i] = p.Pool
	}
	return reconcile.Result{RequeueAfter: wait.Jitter(r.cfg.Resync, 0.1)}, r.dropShared(ctx, names)
}

// wanted returns the pools that must have a coordinator. Their YurtCoordinators already have the finalizer, so none can
// go without its workload.
func (r *Reconciler) wanted(ctx context.Context, app *v1beta1.YurtAppSet) ([]Wanted, error) {
	var all v1alpha1.YurtCoordinatorList
	if err := r.cfg.Client.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list YurtCoordinators: %w", err)
	}
	pools := make(map[edge.PoolName]bool)
	for i := range all.Items {
		pools[edge.PoolName(all.Items[i].Spec.NodePool)] = true
	}
	var wanted []Wanted
	for _, pool := range slices.Sorted(maps.Keys(pools)) {
		v, err := r.census(ctx, pool, app)
		if err != nil {
			return nil, err
		}
		if verdict := Judge(v.census); verdict.Run && controllerutil.ContainsFinalizer(verdict.Holder, Finalizer) {
			wanted = append(wanted, Wanted{Pool: pool, Image: r.cfg.image(verdict.Holder.Spec.Version), Taints: v.taints})
		}
	}
	return wanted, nil
}

func (r *Reconciler) keepService(ctx context.Context) error {
	want := Service()
	var have corev1.Service
	err := r.cfg.Client.Get(ctx, client.ObjectKeyFromObject(want), &have)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read %s: %w", objects.Describe(want), err)
	}
	if err == nil && toJSON(have.Spec.Selector) == toJSON(want.Spec.Selector) &&
		toJSON(have.Spec.Ports) == toJSON(want.Spec.Ports) && have.Spec.Type == want.Spec.Type &&
		have.Annotations[edge.AnnotationTopologyKeys] == edge.TopologyNodePool {
		return nil
	}
	return r.apply(ctx, want)
}
