package settings

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yurtcoordinator/apis/apps/v1beta2"
	"yurtcoordinator/internal/edge"
)

// CleanUp takes from a Node what its hub has said about its pool's settings, and about its program.
func CleanUp(ctx context.Context, c client.Client, node *corev1.Node) error {
	if node.Annotations[edge.AnnotationSettings] == "" && node.Annotations[edge.AnnotationProgram] == "" {
		return nil
	}
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:null,%q:null}}}`, edge.AnnotationSettings, edge.AnnotationProgram)
	if err := c.Patch(ctx, node, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(FieldOwner)); err != nil {
		return fmt.Errorf("remove the annotations %s and %s: %w", edge.AnnotationSettings, edge.AnnotationProgram, err)
	}
	return nil
}

// Release removes what all pools are told. Their hubs then go by the nodes' own settings.
func Release(ctx context.Context, c client.Client) error {
	var all v1beta2.NodePoolList
	if err := c.List(ctx, &all); err != nil {
		return fmt.Errorf("list NodePools: %w", err)
	}
	controller := New(Config{Client: c})
	var failed []error
	for i := range all.Items {
		failed = append(failed, controller.drop(ctx, all.Items[i].Name))
	}
	return errors.Join(failed...)
}
