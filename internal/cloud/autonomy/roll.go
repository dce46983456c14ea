package autonomy

import (
	corev1 "k8s.io/api/core/v1"

	"yurtcoordinator/internal/cloud/roll"
	"yurtcoordinator/internal/edge"
)

// autonomousRoll lists the pools that have an autonomous node, each with the name of one such node. The admission policy on new
// YurtCoordinators reads it.
func autonomousRoll() roll.Roll[*corev1.Node] {
	return roll.Roll[*corev1.Node]{
		Name: "autonomy-roll", ConfigMap: edge.ConfigMapAutonomousPools, Object: &corev1.Node{}, List: &corev1.NodeList{},
		Of: func(n *corev1.Node) (roll.Entry, bool) {
			pool := n.Labels[edge.LabelNodePool]
			return roll.Entry{Key: pool, Value: n.Name}, pool != "" && TermsOf(n).Rule != Ordinary
		},
	}
}
