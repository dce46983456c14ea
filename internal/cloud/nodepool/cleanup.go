package nodepool

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yurtcoordinator/apis/apps/v1beta2"
	"yurtcoordinator/internal/cloud/objects"
)

// CleanUp takes from a Node what it has from its NodePool.
func CleanUp(ctx context.Context, c client.Client, node *corev1.Node) error {
	if node.Annotations[AnnotationAttributes] == "" && node.Annotations[AnnotationTaints] == "" {
		return nil
	}
	n := &nodes{cfg: Config{Client: c}}
	return n.write(ctx, node, Wanted{})
}

// Release takes our finalizer from all NodePools.
func Release(ctx context.Context, c client.Client) error {
	return objects.Release(ctx, c, &v1beta2.NodePoolList{}, Finalizer, FieldOwner)
}
