package heartbeat

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"yurtcoordinator/internal/edge"
)

// Show is how a pool wants its nodes shown while their heartbeats are delegated.
type Show uint8

const (
	// ShowUnknown: not known yet. Nodes stay shown as they are.
	ShowUnknown Show = iota
	// ShowReady: as the kubelet said.
	ShowReady
	// ShowNotReady: Ready is Unknown, for ReasonCloudLinkDown.
	ShowNotReady
)

// Messages of a node's Ready condition while it is shown NotReady, and afterwards until the kubelet speaks.
const (
	shownMessage = "The node is alive, but its own link to the cloud is down: another node of its pool forwards its " +
		"heartbeats. Its Pods and endpoints are kept."

	// kubeletReady is the kubelet's own reason.
	kubeletReady     = "KubeletReady"
	withdrawnMessage = "This is the kubelet's last report."

	// revivedMessage goes with ReasonDelegated.
	revivedMessage = "The node is alive: it was silent, and now another node of its pool forwards its heartbeats. Its " +
		"kubelet's last report is not known."
)

// Reasons of the Events for a change that only shows the node in another way.
const (
	// EventShownNotReady (Normal): a node whose heartbeats are delegated is now shown NotReady.
	EventShownNotReady = "ShownNotReady"
	// EventShownReady (Normal): it no longer is.
	EventShownReady = "ShownReady"
)

// GivenUp reports whether kube-controller-manager found the node silent and overwrote the kubelet's last Ready condition. Only
// the kubelet restores that condition, and a kubelet whose heartbeats are delegated can't. Kubernetes then evicts the Pods of a
// living node, unless somebody restores the condition.
func GivenUp(ready corev1.NodeCondition) bool {
	const lostByKubernetes = "NodeStatusUnknown"
	return ready.Status == corev1.ConditionUnknown && ready.Reason == lostByKubernetes
}

// planShown plans the Ready condition of a node. While the node's heartbeats are delegated, it replaces two values: True, if the
// pool wants such nodes shown NotReady, and Unknown, if kube-controller-manager had given the node up. It leaves any other value.
//
// It restores the kubelet's True if the Lease is renewed directly, if the node is Silent or relayed, and if the pool no longer
// wants NotReady. kube-controller-manager handles a Silent node, and needs the kubelet's value for that. A relayed node's kubelet
// reports by itself, and would overwrite our value each time. An Unobserved Lease changes nothing, because the node may be alive
// or dead.
func planShown(node *corev1.Node, f Finding, s Show, c *Change) {
	ready := ConditionOf(node, corev1.NodeReady)
	is := isShown(node)
	shown, revived := is, false
	switch f.Verdict {
	case Delegated:
		if f.Relayed {
			shown = false // its kubelet says by itself how it is
			break
		}
		if s != ShowUnknown {
			shown = s == ShowNotReady && (is || ready.Status == corev1.ConditionTrue || GivenUp(ready))
		}
		revived = s != ShowNotReady && GivenUp(ready) // ShowUnknown may last: there may be no YurtCoordinators at all
	case Unobserved:
	case NoLease, Direct, Silent:
		shown = false
	}
	if shown != is {
		next := Condition{corev1.ConditionTrue, kubeletReady, withdrawnMessage}
		event := Event{corev1.EventTypeNormal, EventShownReady, "The node is shown as its kubelet left it"}
		if shown {
			next = Condition{corev1.ConditionUnknown, edge.ReasonCloudLinkDown, shownMessage}
			event = Event{corev1.EventTypeNormal, EventShownNotReady,
				"The node is shown NotReady while its heartbeats are delegated; its Pods and endpoints are kept"}
		}
		c.Ready = &next
		switch {
		case c.Event == nil:
			c.Event = &event
		case shown:
			c.Event.Note += ". The node is shown NotReady"
		}
	}
	if revived {
		c.Ready = &Condition{corev1.ConditionTrue, ReasonDelegated, revivedMessage}
		if c.Event == nil {
			c.Event = &Event{corev1.EventTypeNormal, EventShownReady,
				"The node is heard of again, through another node of its pool"}
		}
	}
	c.Exclude = planExclude(node, shown)
	c.Unevict = (shown || revived) && slices.ContainsFunc(node.Spec.Taints, Evicts)
}

// planExclude edits the label that excludes a node from the count of a zone's losses. A node that is shown NotReady must have
// it. If a large part of a zone's nodes is lost, but not all, kube-controller-manager evicts more slowly, even from dead nodes.
// In a zone of up to 50 nodes it then stops.
func planExclude(node *corev1.Node, shown bool) Edit {
	value, labelled := node.Labels[edge.LabelExcludeDisruption]
	if labelled && value != edge.ExcludedCloudLinkDown {
		return Keep
	}
	return edit(labelled, shown)
}

// isShown reports whether we show a node NotReady.
func isShown(node *corev1.Node) bool {
	ready := ConditionOf(node, corev1.NodeReady)
	return ready.Status == corev1.ConditionUnknown && ready.Reason == edge.ReasonCloudLinkDown
}

// Evicts reports whether a taint evicts Pods from nodes that are not ready. kube-controller-manager sets it on a silent node.
func Evicts(t corev1.Taint) bool {
	return t.Effect == corev1.TaintEffectNoExecute && (t.Key == corev1.TaintNodeNotReady || t.Key == corev1.TaintNodeUnreachable)
}
