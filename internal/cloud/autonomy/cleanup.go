package autonomy

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/ends"
)

// CleanUp gives a Node's Pods back the tolerations that they had before this controller, whatever the Node's annotations ask
// for. The result says when to call it again. Zero means that it has finished, and that the Node's condition may be removed.
func CleanUp(
	ctx context.Context, c client.WithWatch, at ends.Clock, node *corev1.Node,
) (after time.Duration, err error) {
	if !mayBeMarked(conditionOf(node)) {
		return 0, nil
	}
	p := &Policy{pods: c, ends: ends.Ends{Clock: at}, metrics: newMetrics()}
	return p.sweep(ctx, edge.NodeName(node.Name), Terms{})
}
