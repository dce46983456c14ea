package edge

import corev1 "k8s.io/api/core/v1"

// Whole-pool cut: while all nodes of a pool are silent at once, their Pods are not evicted.
const (
	// AnnotationHoldEvictions on a NodePool says for how long: a Go duration above zero, up to MaxHoldEvictionsHours.
	// Without it nothing is held.
	AnnotationHoldEvictions = "apps.openyurt.io/hold-evictions"

	// MaxHoldEvictionsHours is the longest time that AnnotationHoldEvictions may ask for: a week.
	MaxHoldEvictionsHours = 168

	// ConditionEvictionsHeld is a Node condition. While it is True, kube-controller-manager does not taint the node in
	// a way that evicts its Pods.
	ConditionEvictionsHeld corev1.NodeConditionType = "EvictionsHeld"
)
