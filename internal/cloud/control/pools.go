package control

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"yurtcoordinator/internal/edge"
)

// IndexPool is the index of Nodes by their pool.
const IndexPool = "openyurt.io/pool"

// PoolOf returns the content of IndexPool for an object.
func PoolOf(obj client.Object) []string {
	if pool := obj.GetLabels()[edge.LabelNodePool]; pool != "" {
		return []string{pool}
	}
	return nil
}

// IndexNodes makes the index that NodesOf needs, once for all controllers of a manager.
func IndexNodes(mgr manager.Manager) error {
	if err := mgr.GetFieldIndexer().IndexField(context.Background(), &corev1.Node{}, IndexPool, PoolOf); err != nil {
		return fmt.Errorf("index Nodes by their pool: %w", err)
	}
	return nil
}

// NodesOf returns a pool's Nodes from the cache. They must not be changed.
func NodesOf[Pool ~string](ctx context.Context, c client.Reader, pool Pool) ([]corev1.Node, error) {
	found := &corev1.NodeList{}
	if err := c.List(ctx, found, client.MatchingFields{IndexPool: string(pool)}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list the Nodes of pool %s: %w", pool, err)
	}
	return found.Items, nil
}
