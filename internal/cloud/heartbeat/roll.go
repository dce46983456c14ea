package heartbeat

import (
	corev1 "k8s.io/api/core/v1"

	"yurtcoordinator/internal/cloud/roll"
	"yurtcoordinator/internal/edge"
)

// shownRoll lists the nodes that are shown NotReady, with their pools. The admission policy that keeps their Pods ready reads
// this list, because a policy on Pods can't read Nodes.
func shownRoll() roll.Roll[*corev1.Node] {
	return roll.Roll[*corev1.Node]{
		Name: "heartbeat-roll", ConfigMap: edge.ConfigMapShownNotReady, Object: &corev1.Node{}, List: &corev1.NodeList{},
		Of: func(n *corev1.Node) (roll.Entry, bool) {
			return roll.Entry{Key: n.Name, Value: string(poolOf(n))}, isShown(n)
		},
	}
}
