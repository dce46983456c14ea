package nodepool

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"yurtcoordinator/apis/apps/v1beta2"
)

// CleanUp takes from a Node what it has from its NodePool.
func CleanUp(ctx context.Context, c client.Client, node *corev1.Node) error {
	if node.Annotations[AnnotationAttributes] == "" && node.Annotations[AnnotationTaints] == "" {
		return nil
	}
	n := &nodes{cfg: Config{Client: c}}
	return n.write(ctx, node, Wanted{})
}

// Release takes our finalizer from all NodePools: without this controller nobody would, and none could be deleted.
func Release(ctx context.Context, c client.Client) error {
	var all v1beta2.NodePoolList
	if err := c.List(ctx, &all); err != nil {
		return fmt.Errorf("list NodePools: %w", err)
	}
	p := &pools{cfg: Config{Client: c}}
	var failed []error
	for i := range all.Items {
		if pool := &all.Items[i]; controllerutil.ContainsFinalizer(pool, Finalizer) {
			err := p.patchFinalizers(ctx, pool, controllerutil.RemoveFinalizer)
			failed = append(failed, client.IgnoreNotFound(err))
		}
	}
	return errors.Join(failed...)
}
