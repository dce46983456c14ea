package heartbeat

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yurtcoordinator/internal/ends"
)

// CleanUp removes what this controller has put on a Node, except the condition CloudLinkDown, as if the node's own heartbeat had
// just come. Nothing else would remove the taint once the controller is gone, and the node would never get Pods again. Whether
// the node is dead is left to kube-controller-manager.
func CleanUp(ctx context.Context, c client.Client, at ends.Clock, node *corev1.Node) error {
	p := &Policy{client: c, ends: ends.Ends{Clock: at}}
	change := plan(node, Finding{Verdict: Direct}, wish{show: ShowReady})
	if change.edits() {
		if err := p.writeNode(ctx, node, change); err != nil {
			return err
		}
	}
	if change.Condition = nil; change.Ready != nil {
		return p.writeStatus(ctx, node, change)
	}
	return nil
}
