package coordinator

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"yurtcoordinator/internal/edge"
)

// Reasons of the condition EvictionsHeld.
const (
	// ReasonPoolCut: the whole pool is cut off, and no Pod is evicted for that. The Nodes' condition has the same reason.
	ReasonPoolCut = "WholePoolCut"
	// ReasonNotHeld: no eviction is held.
	ReasonNotHeld = "NotHeld"
)

// heldIn says of a pool what its Nodes' conditions EvictionsHeld say.
func heldIn(nodes []corev1.Node) finding {
	count, first := 0, ""
	for i := range nodes {
		if says := heldSays(&nodes[i]); says != "" {
			if count++; first == "" || says < first {
				first = says
			}
		}
	}
	if count == 0 {
		return finding{Reason: ReasonNotHeld, Message: "No eviction from the pool's nodes is held."}
	}
	return finding{OK: true, Reason: ReasonPoolCut, Message: fmt.Sprintf("Of %d of %s. %s", count,
		edge.Count(len(nodes), "node", "nodes"), first)}
}

// heldSays returns what a Node says of evictions that are held; nothing means that none are.
func heldSays(node *corev1.Node) string {
	i := slices.IndexFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == edge.ConditionEvictionsHeld && c.Status == corev1.ConditionTrue
	})
	if i < 0 {
		return ""
	}
	return node.Status.Conditions[i].Message
}
