package edge

import corev1 "k8s.io/api/core/v1"

// Whole-pool cut: evictions are held while all nodes of a pool are silent at once.
const (
	// AnnotationHoldEvictions on a NodePool says for how long: a Go duration, more than zero, up to MaxHoldEvictionsHours.
	// Without it nothing is held.
	AnnotationHoldEvictions = "apps.openyurt.io/hold-evictions"

	// MaxHoldEvictionsHours is the longest that AnnotationHoldEvictions may ask for: a week.
	MaxHoldEvictionsHours = 168

	// ConditionEvictionsHeld is the Node condition that, while it is True, keeps kube-controller-manager from tainting the
	// node in a way that evicts its Pods.
	ConditionEvictionsHeld corev1.NodeConditionType = "EvictionsHeld"
)
