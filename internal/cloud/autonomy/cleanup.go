package autonomy

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yurtcoordinator/internal/edge"
)

// CleanUp gives the Pods of a Node back what they tolerated before this controller, whatever the Node's annotations ask
// for. after is when to call it again; zero means that it has finished, and the Node's condition may go.
func CleanUp(
	ctx context.Context, c client.WithWatch, now clock.PassiveClock, node *corev1.Node,
) (after time.Duration, err error) {
	if !mayBeMarked(conditionOf(node)) {
		return 0, nil
	}
	p := &Policy{pods: c, clock: now, metrics: newMetrics()}
	return p.sweep(ctx, edge.NodeName(node.Name), Terms{})
}
