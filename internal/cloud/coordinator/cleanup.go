package coordinator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yurtcoordinator/apis/apps/v1alpha1"
	"yurtcoordinator/internal/cloud/control"
	"yurtcoordinator/internal/cloud/objects"
	"yurtcoordinator/internal/edge"
)

// Release takes our finalizer from all YurtCoordinators. A YurtCoordinator owns the objects that were made for it, so they are
// deleted with it.
func Release(ctx context.Context, c client.Client) error {
	return objects.Release(ctx, c, &v1alpha1.YurtCoordinatorList{}, Finalizer, FieldOwner)
}

// CleanUp takes from a Node the label of a node that coordinators prefer.
func CleanUp(ctx context.Context, c client.Client, node *corev1.Node) error {
	if _, marked := node.Labels[edge.LabelCoordinatorNode]; !marked {
		return nil
	}
	return label(ctx, c, node.Name, nil)
}

// prefer labels the nodes that the pool's settings prefer, with their ranks, and takes the label from all others.
func (r *Reconciler) prefer(ctx context.Context, v view) error {
	var failed []error
	for i := range v.nodes {
		n := &v.nodes[i]
		rank := slices.Index(v.settings.PreferredNodes, n.Name)
		if is := strconv.Itoa(rank); rank < 0 {
			failed = append(failed, CleanUp(ctx, r.cfg.Client, n))
		} else if n.Labels[edge.LabelCoordinatorNode] != is {
			failed = append(failed, label(ctx, r.cfg.Client, n.Name, &is))
		}
	}
	return errors.Join(failed...)
}

// label puts the label on a Node, or takes it away.
func label(ctx context.Context, c client.Client, node string, rank *string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"labels": map[string]any{edge.LabelCoordinatorNode: rank},
	}})
	if err != nil {
		return err
	}
	n := &corev1.Node{}
	n.Name = node
	err = c.Patch(ctx, n, client.RawPatch(mergePatch, patch), client.FieldOwner(FieldOwner))
	if err := client.IgnoreNotFound(err); err != nil {
		return fmt.Errorf("label node %s: %w", node, err)
	}
	return nil
}

// unmark takes that label from a pool's nodes.
func (r *Reconciler) unmark(ctx context.Context, pool edge.PoolName) error {
	nodes, err := control.NodesOf(ctx, r.cfg.Client, pool)
	if err != nil {
		return err
	}
	var failed []error
	for i := range nodes {
		failed = append(failed, CleanUp(ctx, r.cfg.Client, &nodes[i]))
	}
	return errors.Join(failed...)
}
