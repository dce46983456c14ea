package edge

import corev1 "k8s.io/api/core/v1"

// Node autonomy: a node that keeps its Pods while it is unreachable.
const (
	// AnnotationAutonomy on a Node, with the value AutonomyOn, keeps its Pods for as long as it is unreachable.
	AnnotationAutonomy = "node.beta.openyurt.io/autonomy"

	// AutonomyOn is the value of AnnotationAutonomy; any other value, and its absence, mean nothing.
	AutonomyOn = "true"

	// AnnotationAutonomyDuration on a Node says how long its Pods are kept after the node became unreachable: a Go duration.
	// Zero or less means forever, as in OpenYurt. AnnotationAutonomy takes precedence.
	AnnotationAutonomyDuration = "node.openyurt.io/autonomy-duration"

	// AnnotationOriginalNotReady and AnnotationOriginalUnreachable are on a Pod of an autonomous node. Each holds the
	// tolerationSeconds that the Pod's toleration had before, or OriginalForever.
	AnnotationOriginalNotReady    = "apps.openyurt.io/original-not-ready-toleration-duration"
	AnnotationOriginalUnreachable = "apps.openyurt.io/original-unreachable-toleration-duration"

	// OriginalForever stands for a toleration without end.
	OriginalForever = "infinite"

	// AnnotationHeldSince is on a Pod some of whose tolerations coordinator-controller has made endless, at least while it
	// changes them to another value. The annotation has the time at which that began (RFC 3339).
	AnnotationHeldSince = "apps.openyurt.io/toleration-held-since"

	// ConditionPodsKept is the Node condition that says whether, and for how long, the node's Pods are kept.
	ConditionPodsKept corev1.NodeConditionType = "PodsKept"
)
