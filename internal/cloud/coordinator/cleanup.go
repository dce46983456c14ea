package coordinator

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"yurtcoordinator/apis/apps/v1alpha1"
	"yurtcoordinator/internal/edge"
)

// Release takes our finalizer from all YurtCoordinators: without this controller nobody else would, and none could be deleted.
// The objects made for a YurtCoordinator have it as their owner, so they are deleted with it.
func Release(ctx context.Context, c client.Client) error {
	var all v1alpha1.YurtCoordinatorList
	if err := c.List(ctx, &all); err != nil {
		return fmt.Errorf("list YurtCoordinators: %w", err)
	}
	r := &Reconciler{cfg: Config{Client: c}}
	var failed []error
	for i := range all.Items {
		if yc := &all.Items[i]; controllerutil.ContainsFinalizer(yc, Finalizer) {
			err := r.finalize(ctx, yc, controllerutil.RemoveFinalizer)
			failed = append(failed, client.IgnoreNotFound(err))
		}
	}
	return errors.Join(failed...)
}

// CleanUp takes from a Node the label that says that a coordinator is to run there next.
func CleanUp(ctx context.Context, c client.Client, node *corev1.Node) error {
	if _, marked := node.Labels[edge.LabelCoordinatorNode]; !marked {
		return nil
	}
	return label(ctx, c, node.Name, nil)
}

// unmark takes that label from a pool's nodes.
func (r *Reconciler) unmark(ctx context.Context, pool edge.PoolName) error {
	var nodes corev1.NodeList
	in := client.MatchingFields{indexPool: string(pool)}
	if err := r.cfg.Client.List(ctx, &nodes, in, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list Nodes of pool %s: %w", pool, err)
	}
	var failed []error
	for i := range nodes.Items {
		failed = append(failed, CleanUp(ctx, r.cfg.Client, &nodes.Items[i]))
	}
	return errors.Join(failed...)
}
