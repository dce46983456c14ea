package heartbeat

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"yurtcoordinator/internal/edge"
)

// Reasons of the CloudLinkDown condition.
const (
	// ReasonDelegated (status True): the heartbeats come through another node of the pool.
	ReasonDelegated = "HeartbeatsDelegated"

	// ReasonRelayed (status True): the node reports itself, over the line of another node of its pool.
	ReasonRelayed = "Relayed"

	// ReasonDirect (status False): the heartbeats come from the node itself.
	ReasonDirect = "HeartbeatsDirect"

	// ReasonNone (status Unknown): no heartbeats, after direct ones.
	ReasonNone = "NoHeartbeats"

	// ReasonNoPool (status False): the node has left its pool.
	ReasonNoPool = "NoPool"

	// ReasonDelegationStopped (status Unknown): no heartbeats, after delegated ones.
	ReasonDelegationStopped = "DelegationStopped"
)

// Reasons of the Events on a Node.
const (
	// EventCloudLinkDown (Warning): heartbeats are now delegated.
	EventCloudLinkDown = "CloudLinkDown"

	// EventCloudLinkRestored (Normal): heartbeats come from the node itself again, after delegated ones.
	EventCloudLinkRestored = "CloudLinkRestored"

	// EventDelegationStopped (Warning): the node stopped renewing its Lease while delegated.
	EventDelegationStopped = "DelegationStopped"

	// EventHeartbeatsStopped (Warning): the node stopped renewing its Lease while its link was fine.
	EventHeartbeatsStopped = "HeartbeatsStopped"

	// EventHeartbeatsResumed (Normal): direct heartbeats again, after a silence that followed direct ones.
	EventHeartbeatsResumed = "HeartbeatsResumed"

	// EventHeartbeatsFlap (Warning): the node's taint would change too often, and waits.
	EventHeartbeatsFlap = "HeartbeatsFlap"

	// EventGracePeriodTooShort (Warning): kube-controller-manager found the node silent before we did.
	EventGracePeriodTooShort = edge.ReasonGracePeriodTooShort

	// EventRenewTimePutBack (Warning): a silent node's Lease had a renewTime from the future.
	EventRenewTimePutBack = "RenewTimePutBack"
)

// Edit is what to do to a taint or a label of ours on a Node.
type Edit uint8

const (
	// Keep leaves it alone.
	Keep Edit = iota
	// Add adds it.
	Add
	// Remove removes it.
	Remove
)

// edit returns the edit that turns is into wanted.
func edit(is, wanted bool) Edit {
	switch {
	case wanted && !is:
		return Add
	case !wanted && is:
		return Remove
	}
	return Keep
}

// Condition is a new value of a condition, without times.
type Condition struct {
	Status  corev1.ConditionStatus
	Reason  string
	Message string
}

// Event is an Event to record on a Node.
type Event struct {
	Type   string // Normal or Warning
	Reason string
	Note   string
}

// Change is what to write. The zero Change writes nothing.
type Change struct {
	// Taint edits the taint, and Effect is that of one to add: it replaces a taint of ours with another effect.
	Taint  Edit
	Effect corev1.TaintEffect

	// Exclude edits the label of a node that is shown NotReady.
	Exclude Edit

	// Unevict removes the taints by which Kubernetes evicts Pods from nodes that are not ready.
	Unevict bool

	// Condition is the new CloudLinkDown, and Ready the new Ready; nil leaves it as it is.
	Condition, Ready *Condition

	// Was is the status of CloudLinkDown before; empty if the Node has none.
	Was corev1.ConditionStatus

	// Event is recorded once the conditions are written; nil means none.
	Event *Event
}

// IsZero reports whether there is nothing to write.
func (c Change) IsZero() bool { return !c.edits() && !c.reports() }

// edits reports whether the Node itself is written, reports whether its status is.
func (c Change) edits() bool   { return c.Taint != Keep || c.Exclude != Keep || c.Unevict }
func (c Change) reports() bool { return c.Condition != nil || c.Ready != nil }

// plan decides what to write to node, from what its Lease means and how its pool wants it treated. It changes nothing.
func plan(node *corev1.Node, f Finding, w wish) Change {
	if node.DeletionTimestamp != nil {
		return Change{}
	}
	if poolOf(node) == "" {
		return planLeft(node)
	}
	var c Change
	c.planTaint(node, f, w)
	was := ConditionOf(node, edge.ConditionCloudLinkDown)
	c.Was = was.Status
	if next, ok := describe(was.Status, f); ok && (next.Status != was.Status || differsBehind(was, next)) {
		c.Condition = &next
		c.Event = announce(was, next)
	}
	planShown(node, f, w.show, &c)
	return c
}

// differsBehind reports whether a node whose link is down reports itself by another way than its condition says.
func differsBehind(was corev1.NodeCondition, next Condition) bool {
	return next.Status == corev1.ConditionTrue && next.Reason != was.Reason
}

// planLeft takes back what was said about a node that is in no pool any more, because nobody can forward its heartbeats. It
// writes nothing on a node that never was in a pool.
func planLeft(node *corev1.Node) Change {
	direct := Finding{Verdict: Direct}
	var c Change
	c.planTaint(node, direct, wish{})
	c.Was = ConditionOf(node, edge.ConditionCloudLinkDown).Status
	if c.Was != "" && c.Was != corev1.ConditionFalse {
		c.Condition = &Condition{corev1.ConditionFalse, ReasonNoPool,
			"The node is in no pool, so nobody forwards its heartbeats."}
	}
	planShown(node, direct, ShowReady, &c)
	return c
}

func (c *Change) planTaint(node *corev1.Node, f Finding, w wish) {
	var ours []corev1.TaintEffect
	for _, t := range node.Spec.Taints {
		if isOurs(t) {
			ours = append(ours, t.Effect)
		}
	}
	var wanted []corev1.TaintEffect
	switch delegated, ok := f.delegated(); {
	case !ok: // a dead node must not get Pods either: the taint stays until the node renews its Lease
		return
	case delegated && w.effect(f) != "":
		wanted = append(wanted, w.effect(f))
	}
	switch {
	case slices.Equal(ours, wanted):
	case len(wanted) == 0:
		c.Taint = Remove
	default:
		c.Taint, c.Effect = Add, wanted[0]
	}
}

// describe returns the condition that f calls for, or false if f supports no claim.
func describe(was corev1.ConditionStatus, f Finding) (Condition, bool) {
	switch f.Verdict {
	case Direct:
		return Condition{corev1.ConditionFalse, ReasonDirect, "The node renews its Lease itself."}, true
	case Delegated:
		if f.Relayed {
			return Condition{corev1.ConditionTrue, ReasonRelayed,
				"The node's own link to the cloud is down; it reports itself over the link of another node of its pool."}, true
		}
		return Condition{corev1.ConditionTrue, ReasonDelegated,
			"The node's own link to the cloud is down; another node of its pool forwards its heartbeats."}, true
	case Silent:
		c := Condition{corev1.ConditionUnknown, ReasonNone, fmt.Sprintf("No heartbeat has come for %v.", f.Patience)}
		if f.Gone {
			c.Message = "The node's Lease was deleted."
		}
		if was == corev1.ConditionTrue {
			c.Reason = ReasonDelegationStopped
			c.Message += " The last ones were delegated."
		}
		return c, true
	case NoLease, Unobserved:
	}
	return Condition{}, false
}

// announce returns the Event for a transition of the condition; nil means none. A Node's first condition gets an Event only if it
// says that the link is down. If a node is silent from the start, kube-controller-manager announces that.
func announce(was corev1.NodeCondition, next Condition) *Event {
	const normal, warning = corev1.EventTypeNormal, corev1.EventTypeWarning
	const yes, no, unknown = corev1.ConditionTrue, corev1.ConditionFalse, corev1.ConditionUnknown
	restored := Event{normal, EventCloudLinkRestored,
		"The node renews its Lease itself again; it takes new Pods"}
	switch {
	case next.Status == yes && was.Status == yes:
		return nil // it is behind a link that is down as before
	case next.Status == yes && next.Reason == ReasonRelayed:
		return &Event{warning, EventCloudLinkDown,
			"The link to the cloud is down: the node reports itself over the link of another node of its pool"}
	case next.Status == yes:
		return &Event{warning, EventCloudLinkDown,
			"Heartbeats come through another node of the pool: the link to the cloud is down. " +
				"Pods are kept, none are added"}
	case was.Status == yes && next.Status == no:
		return &restored
	case was.Status == yes && next.Status == unknown:
		return &Event{warning, EventDelegationStopped,
			"The node stopped renewing its Lease while delegated: it is dead, or also cut off from its pool"}
	case was.Status == no && next.Status == unknown:
		return &Event{warning, EventHeartbeatsStopped,
			"The node stopped renewing its Lease: it is dead, or nobody in its pool can forward its heartbeats"}
	case was.Status == unknown && next.Status == no:
		if was.Reason == ReasonDelegationStopped {
			return &restored
		}
		return &Event{normal, EventHeartbeatsResumed, "The node renews its Lease again"}
	}
	return nil
}

// ourTaint is the taint that keeps new Pods off a node whose link is down.
func ourTaint(e corev1.TaintEffect) corev1.Taint {
	return corev1.Taint{Key: edge.TaintUnschedulable, Effect: e}
}

// isOurs reports whether a taint is ours. It compares key and effect, which together are unique on a Node. A taint with our key
// and the third effect, NoExecute, is not ours.
func isOurs(t corev1.Taint) bool {
	return t.Key == edge.TaintUnschedulable &&
		(t.Effect == corev1.TaintEffectNoSchedule || t.Effect == corev1.TaintEffectPreferNoSchedule)
}

// ConditionOf returns a condition of a Node, or the zero condition.
func ConditionOf(node *corev1.Node, kind corev1.NodeConditionType) corev1.NodeCondition {
	for _, c := range node.Status.Conditions {
		if c.Type == kind {
			return c
		}
	}
	return corev1.NodeCondition{}
}
