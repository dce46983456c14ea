package edge

import corev1 "k8s.io/api/core/v1"

// Whole-pool cut: while all nodes of a pool are silent at once, their Pods are not evicted.
const (
	// AnnotationHoldEvictions on a NodePool says for how long evictions are held: a Go duration, up to MaxHoldEvictionsHours.
	// Zero means not at all. Without the annotation, coordinator-controller's own setting applies if the pool has a coordinator.
	// Otherwise evictions are not held.
	AnnotationHoldEvictions = "apps.openyurt.io/hold-evictions"

	// FinalizerCoordinator is on a YurtCoordinator as long as its pool has objects made for it.
	FinalizerCoordinator = "apps.openyurt.io/yurtcoordinator"

	// MaxHoldEvictionsHours is the longest time that AnnotationHoldEvictions may ask for: a week.
	MaxHoldEvictionsHours = 168

	// ConditionEvictionsHeld is a Node condition. While it is True, the policy hold-evictions keeps kube-controller-manager from
	// tainting the node in a way that evicts its Pods.
	ConditionEvictionsHeld corev1.NodeConditionType = "EvictionsHeld"
)
