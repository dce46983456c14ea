package autonomy

import (
	"fmt"
	"math"
	"time"

	corev1 "k8s.io/api/core/v1"

	"yurtcoordinator/internal/edge"
)

// Seconds is how long a taint is tolerated.
type Seconds int64

// Forever means without end. As the largest number it compares correctly.
const Forever Seconds = math.MaxInt64

// Rule is what a Node's annotations ask for.
type Rule string

const (
	// Ordinary means that there is no annotation. The Pods keep their owners' tolerations.
	Ordinary Rule = ""

	// Kept means that the Pods are kept for Terms.For.
	Kept Rule = "Kept"

	// Unreadable means that the duration can't be read. The Pods stay as they are. So a typing error neither evicts Pods that
	// were kept nor keeps others.
	Unreadable Rule = "Unreadable"
)

// Terms are what one Node's annotations ask for.
type Terms struct {
	Rule Rule

	// For is how long the Pods of a Kept node are kept.
	For Seconds

	// Problem says what is wrong with an Unreadable duration.
	Problem string
}

// maxQuoted bounds how much of an annotation messages quote.
const maxQuoted = 64

// TermsOf reads OpenYurt's annotations of a Node. Autonomy without end takes precedence over a duration, and a duration of zero
// or less means without end. Unlike OpenYurt, TermsOf rounds fractions of a second up, and returns Unreadable for a text that is
// no duration.
func TermsOf(node *corev1.Node) Terms {
	if node.Annotations[edge.AnnotationAutonomy] == edge.AutonomyOn {
		return Terms{Rule: Kept, For: Forever}
	}
	text, found := node.Annotations[edge.AnnotationAutonomyDuration]
	if !found {
		return Terms{}
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		if len(text) > maxQuoted {
			text = text[:maxQuoted] + "..."
		}
		return Terms{Rule: Unreadable, Problem: fmt.Sprintf(
			"The annotation %s is %q: it must be a duration such as 90s, 2h or 1h30m, or 0s for ever. "+
				"Until then the Pods are left as they are.", edge.AnnotationAutonomyDuration, text)}
	}
	if d <= 0 {
		return Terms{Rule: Kept, For: Forever}
	}
	whole := d / time.Second
	if d%time.Second != 0 {
		whole++
	}
	return Terms{Rule: Kept, For: Seconds(whole)}
}

// Reasons of the PodsKept condition.
const (
	// ReasonAutonomous (status True): the Pods are kept.
	ReasonAutonomous = "Autonomous"

	// ReasonOrdinary (status False): the Pods are evicted as any other node's.
	ReasonOrdinary = "NotAutonomous"

	// ReasonUnreadable (status Unknown): the duration can't be read.
	ReasonUnreadable = "InvalidDuration"
)

// condition returns the condition for the Node, without times.
func (t Terms) condition() corev1.NodeCondition {
	c := corev1.NodeCondition{Type: edge.ConditionPodsKept}
	switch t.Rule {
	case Ordinary:
		c.Status, c.Reason = corev1.ConditionFalse, ReasonOrdinary
		c.Message = "The node's Pods are evicted when it is unreachable, each after its own tolerationSeconds."
	case Kept:
		c.Status, c.Reason = corev1.ConditionTrue, ReasonAutonomous
		c.Message = "The node's Pods are kept for as long as it is unreachable."
		if t.For != Forever {
			c.Message = fmt.Sprintf("The node's Pods are kept for %v after it became unreachable.",
				time.Duration(t.For)*time.Second)
		}
	case Unreadable:
		c.Status, c.Reason, c.Message = corev1.ConditionUnknown, ReasonUnreadable, t.Problem
	}
	return c
}

// conditionOf returns the Node's PodsKept condition, or the zero condition.
func conditionOf(node *corev1.Node) corev1.NodeCondition {
	for _, c := range node.Status.Conditions {
		if c.Type == edge.ConditionPodsKept {
			return c
		}
	}
	return corev1.NodeCondition{}
}

// says reports whether a condition is already as wanted.
func says(was, wanted corev1.NodeCondition) bool {
	return was.Status == wanted.Status && was.Reason == wanted.Reason && was.Message == wanted.Message
}

// mayBeMarked reports whether the Node's condition allows its Pods to carry our marks.
func mayBeMarked(c corev1.NodeCondition) bool {
	return c.Status == corev1.ConditionTrue || c.Status == corev1.ConditionUnknown
}
