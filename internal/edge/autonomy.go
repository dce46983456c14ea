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

	// AnnotationOriginalNotReady and AnnotationOriginalUnreachable are on a Pod of an autonomous node. They hold the
	// tolerationSeconds that the Pod itself asked for, or OriginalForever.
	AnnotationOriginalNotReady    = "apps.openyurt.io/original-not-ready-toleration-duration"
	AnnotationOriginalUnreachable = "apps.openyurt.io/original-unreachable-toleration-duration"

	// OriginalForever stands for a toleration without end.
	OriginalForever = "infinite"

	// AnnotationHeldSince is the time, in RFC 3339, at which coordinator-controller made a Pod's tolerations endless. They stay
	// endless for good, or until coordinator-controller sets other tolerationSeconds.
	AnnotationHeldSince = "apps.openyurt.io/toleration-held-since"

	// ConditionPodsKept is the Node condition that says whether, and for how long, the node's Pods are kept.
	ConditionPodsKept corev1.NodeConditionType = "PodsKept"
)
