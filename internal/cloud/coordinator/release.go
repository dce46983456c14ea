package coordinator

import (
	"context"
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"yurtcoordinator/apis/apps/v1alpha1"
	"yurtcoordinator/apis/apps/v1beta2"
	"yurtcoordinator/internal/cloud/objects"
	"yurtcoordinator/internal/edge"
)

// release removes a YurtCoordinator. holds says that it is not a second one for its pool. If holds is false, release only takes
// the finalizer away. If holds is true, release first removes the ConfigMap by which hubs find coordinators. It deletes the
// workload once reconcileFleet has taken the NodePool's labels away, because the YurtAppSets' brake may hold the workload back.
// Then it removes all other objects of the pool, and last it takes the finalizer away.
func (r *Reconciler) release(ctx context.Context, c *v1alpha1.YurtCoordinator, holds bool) (reconcile.Result, error) {
	if !controllerutil.ContainsFinalizer(c, Finalizer) {
		return reconcile.Result{}, nil
	}
	// The cache may still have what is gone, and another YurtCoordinator may have the pool by now.
	var fresh v1alpha1.YurtCoordinator
	err := client.IgnoreNotFound(r.cfg.Reader.Get(ctx, client.ObjectKeyFromObject(c), &fresh))
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("read YurtCoordinator %s: %w", c.Name, err)
	}
	if fresh.UID != c.UID || !controllerutil.ContainsFinalizer(&fresh, Finalizer) {
		return reconcile.Result{}, nil
	}
	if holds {
		pool := edge.PoolName(c.Spec.NodePool)
		hint := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Namespace: edge.NamespaceSystem, Name: pool.DiscoveryConfigMap(),
		}}
		if err := r.remove(ctx, hint); err != nil {
			return reconcile.Result{}, err
		}
		waitsFor, err := r.remains(ctx, pool)
		if err != nil {
			return reconcile.Result{}, err
		}
		if waitsFor != "" {
			removing := finding{Reason: ReasonRemoving, Message: "Waiting until " + waitsFor + "."}
			err := r.say(ctx, &fresh, wantedStatus{
				pending: finding{OK: true, Reason: ReasonRemoving, Message: "It is being deleted."},
				certs:   removing, ready: removing, node: fresh.Status.NodeName, coordinators: fresh.Status.Coordinators,
			})
			return reconcile.Result{RequeueAfter: wait.Jitter(waitGone, 0.5)}, err
		}
		if err := r.clear(ctx, c); err != nil {
			return reconcile.Result{}, err
		}
	}
	r.forget(c.Name)
	err = objects.Finalize(ctx, r.cfg.Client, &fresh, controllerutil.RemoveFinalizer, Finalizer, FieldOwner)
	return reconcile.Result{}, client.IgnoreNotFound(err)
}

// remains returns what is left of a pool's workload, as the API server itself says, and deletes Deployments.
func (r *Reconciler) remains(ctx context.Context, pool edge.PoolName) (string, error) {
	var nodePool v1beta2.NodePool
	err := r.cfg.Reader.Get(ctx, client.ObjectKey{Name: string(pool)}, &nodePool)
	if client.IgnoreNotFound(err) != nil {
		return "", fmt.Errorf("read NodePool %s: %w", pool, err)
	}
	if labelled(&nodePool) > 0 {
		return "the NodePool has no label " + edge.LabelCoordinators, nil
	}
	var deployments appsv1.DeploymentList
	in := client.InNamespace(edge.NamespaceSystem)
	workloads := client.MatchingLabels{edge.LabelApp: edge.AppCoordinator, edge.LabelWorkloadPool: string(pool)}
	if err := r.cfg.Reader.List(ctx, &deployments, in, workloads); err != nil {
		return "", fmt.Errorf("list Deployments of pool %s: %w", pool, err)
	}
	if len(deployments.Items) > 0 {
		return "Deployment " + deployments.Items[0].Name + " is gone", r.endWorkloads(ctx, deployments.Items)
	}
	var pods corev1.PodList
	if err := r.cfg.Reader.List(ctx, &pods, in, ofPool(pool)); err != nil {
		return "", fmt.Errorf("list Pods of pool %s: %w", pool, err)
	}
	for _, p := range pods.Items {
		if !isMade(&p) { // not its own; it may never go
			continue
		}
		if p.DeletionTimestamp.IsZero() || r.cfg.Clock.Since(p.DeletionTimestamp.Time) < lostPod {
			return "Pod " + p.Name + " is gone", nil
		}
	}
	return "", nil
}

// endWorkloads deletes those of these Deployments that belong to a YurtAppSet of coordinators.
func (r *Reconciler) endWorkloads(ctx context.Context, all []appsv1.Deployment) error {
	var failed []error
	for i := range all {
		d := &all[i]
		owner := metav1.GetControllerOf(d)
		if owner == nil || owner.Kind != "YurtAppSet" || !d.DeletionTimestamp.IsZero() {
			continue
		}
		err := r.cfg.Client.Delete(ctx, d, client.Preconditions{UID: &d.UID},
			client.PropagationPolicy(metav1.DeletePropagationBackground))
		if client.IgnoreNotFound(err) != nil {
			failed = append(failed, fmt.Errorf("delete Deployment %s: %w", d.Name, err))
		}
	}
	return errors.Join(failed...)
}
