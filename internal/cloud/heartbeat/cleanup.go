package heartbeat

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yurtcoordinator/internal/ends"
)

// CleanUp removes what this controller has put on a Node, except its condition, as if the node's own heartbeat had just come.
// Without the controller nobody else would, and the node would never get Pods again. kube-controller-manager judges whether the
// node is dead.
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
