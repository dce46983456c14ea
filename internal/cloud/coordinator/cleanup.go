package coordinator

import (
	"context"
	"errors"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"yurtcoordinator/apis/apps/v1alpha1"
)

// Release takes our finalizer from all YurtCoordinators: without this controller nobody would, and none could be
// deleted. What was made for them belongs to them, and goes when they do.
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
