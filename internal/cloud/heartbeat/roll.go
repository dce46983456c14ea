package heartbeat

import (
	corev1 "k8s.io/api/core/v1"

	"yurtcoordinator/internal/cloud/roll"
	"yurtcoordinator/internal/edge"
)

// shownRoll names the nodes that are shown NotReady, and their pools, for the policy that keeps their Pods ready: what it is
// asked about is a Pod.
func shownRoll() roll.Roll[*corev1.Node] {
	return roll.Roll[*corev1.Node]{
		Name: "heartbeat-roll", ConfigMap: edge.ConfigMapShownNotReady, Object: &corev1.Node{}, List: &corev1.NodeList{},
		Of: func(n *corev1.Node) (roll.Entry, bool) {
			return roll.Entry{Key: n.Name, Value: string(poolOf(n))}, isShown(n)
		},
	}
}
