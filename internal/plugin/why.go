package plugin

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"yurtcoordinator/internal/edge"
)

// Subject is a node and all that is known about it.
type Subject struct {
	Name string
	// Node is nil if the server has no Node of that name.
	Node *corev1.Node
	// Lease is the node's heartbeat; nil means none.
	Lease *coordinationv1.Lease
	// Pool is the node's pool; nil means none.
	Pool *Pool
	// Events are the Events about the node, in any order.
	Events []corev1.Event
	// Evictors are the ConfigMaps of deschedulers that evict for our taint, as NAMESPACE/NAME.
	Evictors []string
	// Within says that a coordinator was asked, not the cloud.
	Within bool
}

// Explanation says why a node is in its state.
type Explanation struct {
	Node string `json:"node"`
	Pool string `json:"pool,omitempty"`
	// State is one of the words below.
	State string `json:"state"`
	// Because gives the reason in a sentence, and says what to look at.
	Because string `json:"because"`
	// Evidence is what the state was concluded from. History is what happened to the node, oldest first.
	Evidence []Item `json:"evidence"`
	History  []Item `json:"history"`
}

// Item is one piece of evidence, or one thing that happened.
type Item struct {
	What string `json:"what"`
	Says string `json:"says"`
	// Since is when it was said or began; nil means unknown.
	Since *time.Time `json:"since,omitempty"`
}

// States of a node.
const (
	StateConnected = "Connected" // the node renews its Lease itself
	StateDelegated = "Delegated" // the pool says that the node lives; the node's link to the cloud is down
	StateSilent    = "Silent"    // no heartbeat for longer than one may take
	StateUnknown   = "Unknown"   // no heartbeat to judge by
	StateNotFound  = "NotFound"  // no such node
)

// Explain returns a node's state and the reason for it.
func Explain(s Subject, now time.Time) Explanation {
	e := Explanation{Node: s.Name, Evidence: []Item{}, History: history(s.Events)}
	if s.Pool != nil {
		e.Pool = s.Pool.Name
	}
	e.State, e.Because = conclude(s, now)
	if s.Lease != nil {
		e.Evidence = append(e.Evidence, heartbeat(s))
	}
	if s.Pool != nil {
		e.Evidence = append(e.Evidence, poolEvidence(s)...)
	}
	if s.Node == nil {
		return e
	}
	for i := range s.Node.Status.Conditions {
		if c := &s.Node.Status.Conditions[i]; tells(c) {
			e.Evidence = append(e.Evidence, Item{What: "Condition " + string(c.Type) + "=" + string(c.Status),
				Says: sentence(c.Reason, c.Message), Since: since(c.LastTransitionTime.Time)})
		}
	}
	for _, t := range s.Node.Spec.Taints {
		item := Item{What: "Taint " + t.ToString(), Says: taintSays(t)}
		if t.TimeAdded != nil {
			item.Since = since(t.TimeAdded.Time)
		}
		e.Evidence = append(e.Evidence, item)
	}
	return e
}

// conclude returns a node's state and the reason. From the cloud it uses the condition CloudLinkDown, because
// coordinator-controller judges all nodes by one clock. Without that condition, and at a coordinator, it uses the Lease. A Node
// without a Lease is StateUnknown in any case.
func conclude(s Subject, now time.Time) (state, because string) {
	switch {
	case s.Node == nil && s.Lease == nil:
		return StateNotFound, "There is neither a Node nor a heartbeat of that name here."
	case s.Lease == nil:
		return StateUnknown, "It has no Lease in kube-node-lease: its kubelet has never made one, or somebody deleted it."
	}
	if s.Within {
		return concludeWithin(s, now)
	}
	if s.Node != nil {
		if c := conditionOf(s.Node, edge.ConditionCloudLinkDown); c != nil {
			return concludeFrom(s, c)
		}
	}
	if old := age(s.Lease, now); old > patience(s.Lease) {
		return StateSilent, fmt.Sprintf("Its Lease was last renewed %s ago. coordinator-controller says nothing about it: "+
			"is it running?", short(old))
	}
	if delegated(s.Lease) {
		return StateDelegated, behind(s)
	}
	return StateConnected, "It renews its Lease itself."
}

func concludeFrom(s Subject, c *corev1.NodeCondition) (state, because string) {
	switch c.Status {
	case corev1.ConditionTrue:
		return StateDelegated, behind(s)
	case corev1.ConditionFalse:
		if readyOf(s.Node) != corev1.ConditionTrue {
			return StateConnected, "It renews its Lease itself, so the link is fine; its kubelet says that it is not Ready: " +
				"see the condition below."
		}
		return StateConnected, "It renews its Lease itself; link and node are fine."
	}
	const course = " Kubernetes evicts its Pods as usual."
	if h := conditionOf(s.Node, conditionEvictionsHeld); h != nil && h.Status == corev1.ConditionTrue {
		return StateSilent, "Its whole pool fell silent at once, so probably the link is down: evictions are " +
			"held; its condition EvictionsHeld says until when, and how to end the hold."
	}
	if delegated(s.Lease) {
		return StateSilent, "It stopped while its pool still reported for it: it is dead, or cut off from its pool too." + course
	}
	return StateSilent, "It stopped renewing its Lease, and nobody in its pool reported for it: it is dead, or there was no " +
		"coordinator or no leader." + course
}

// conditionEvictionsHeld is on the nodes of a pool that fell silent as a whole.
const conditionEvictionsHeld corev1.NodeConditionType = "EvictionsHeld"

func concludeWithin(s Subject, now time.Time) (state, because string) {
	switch old := age(s.Lease, now); {
	case old > patience(s.Lease):
		return StateSilent, fmt.Sprintf("Its hub last renewed its Lease here %s ago: it is dead, or does not reach the "+
			"coordinator.", short(old))
	case relayedBy(s.Lease) != "":
		return StateDelegated, "Its own link to the cloud is down; its hub reaches it over the link of " +
			relayedBy(s.Lease) + "."
	case delegated(s.Lease):
		return StateDelegated, "Its hub renews its Lease here and says that its own link to the cloud is down."
	}
	return StateConnected, "Its hub renews its Lease here and reaches the cloud itself."
}

func behind(s Subject) string {
	if by := relayedBy(s.Lease); by != "" {
		return "Its own link to the cloud is down; it reports itself over the link of " + by + ". Its Pods are kept."
	}
	by := "another node of its pool"
	switch {
	case ledUntilNow(s):
		by = "it led its pool until then, and the node that leads now"
	case s.Pool != nil && s.Pool.Leader != "" && len(s.Pool.OtherLeaders) == 0:
		by = s.Pool.Leader + ", the leader of its pool,"
	}
	return "Its own link to the cloud is down; " + by + " forwards its heartbeats. Its Pods are kept, new ones go elsewhere."
}

// ledUntilNow reports whether the pool's report still names a node as leader although that node's link is down. A leader whose
// link fails gives up the lead at once, but the report may be older. The node's heartbeats are forwarded, which a leader never
// does with its own, so another hub leads by now.
func ledUntilNow(s Subject) bool {
	return !s.Within && s.Pool != nil && s.Pool.Leader == s.Name && delegated(s.Lease) && relayedBy(s.Lease) == ""
}

// heartbeat returns what the Lease says, and who wrote it last.
func heartbeat(s Subject) Item {
	i := Item{What: "Last heartbeat", Says: "renewed by the node itself"}
	if by := relayedBy(s.Lease); by != "" {
		i.Says += ", over the link of " + by
	} else if delegated(s.Lease) {
		i.Says = "forwarded by another node of its pool"
		if s.Within {
			i.Says = "renewed by its hub, marked as one whose link to the cloud is down"
		}
	}
	if w := writer(s.Lease); w != "" {
		i.Says += ", written by " + w
	}
	if t := s.Lease.Spec.RenewTime; t != nil {
		i.Since = since(t.Time)
	}
	return i
}

// writer returns the program that changed the Lease last, as the API server recorded it.
func writer(l *coordinationv1.Lease) string {
	var name string
	var last time.Time
	for _, m := range l.ManagedFields {
		if m.Time != nil && !m.Time.Time.Before(last) {
			name, last = m.Manager, m.Time.Time
		}
	}
	return name
}

func poolEvidence(s Subject) []Item {
	leader := Item{What: "Leader of pool " + s.Pool.Name, Says: cmp.Or(s.Pool.leaders(), "no known leader"),
		Since: s.Pool.LeaderSaid}
	if s.Lease != nil && ledUntilNow(s) {
		leader.Says += ", by the last report; its own link is down since, so another leads, or nobody"
	}
	coordinator := Item{What: "Coordinator", Says: s.Pool.Coordinator}
	if s.Pool.CoordinatorNode != "" {
		coordinator.Says += " on " + s.Pool.CoordinatorNode
	}
	items := []Item{leader, coordinator}
	if slices.Contains(s.Pool.Outside, s.Name) {
		items = append(items, Item{What: "Outside the pool", Says: "no leader hears it at a coordinator of the pool"})
	}
	if says := kubeletSays[s.Pool.Kubelets[edge.NodeName(s.Name)]]; says != "" {
		items = append(items, Item{What: "Kubelet, at the coordinator", Says: says})
	}
	return items
}

// kubeletSays says how a coordinator knows a kubelet, whose logs it is to show.
var kubeletSays = map[edge.KubeletWay]string{
	edge.KubeletPinned:     "verified by the certificate that its hub reports",
	edge.KubeletSigned:     "verified by the cluster's authority, and by the certificate that its hub reports",
	edge.KubeletOverdue:    "verified by the cluster's authority; its certificate ends soon, and nobody has approved the next",
	edge.KubeletUnapproved: "serves nothing: it has serverTLSBootstrap, and nobody has approved its certificate",
	edge.KubeletEnded:      "serves nothing: it has serverTLSBootstrap, and its certificate has ended",
	edge.KubeletMissing:    "not verified: its certificate is not where its hub looks (yurthub check)",
	edge.KubeletUnreadable: "not verified: its hub can't read its certificate (yurthub check)",
}

// tells reports whether a condition is evidence: one about heartbeats or evictions, or one that says that something is wrong.
func tells(c *corev1.NodeCondition) bool {
	switch c.Type {
	case corev1.NodeReady, edge.ConditionCloudLinkDown, edge.ConditionPodsKept, conditionEvictionsHeld:
		return true
	}
	return c.Status == corev1.ConditionTrue
}

func taintSays(t corev1.Taint) string {
	switch t.Key {
	case edge.TaintUnschedulable:
		if t.Effect == corev1.TaintEffectPreferNoSchedule {
			return "new Pods only if they fit nowhere else, while its link is down"
		}
		return "no new Pods while its heartbeats are delegated"
	case corev1.TaintNodeUnreachable, corev1.TaintNodeNotReady:
		if t.Effect == corev1.TaintEffectNoExecute {
			return "Pods are evicted after their tolerationSeconds"
		}
		return "no new Pods while it is not Ready"
	}
	return ""
}

// history returns what the Events say, oldest first, and before that what has no time.
func history(events []corev1.Event) []Item {
	items := make([]Item, 0, len(events))
	for i := range events {
		e := &events[i]
		item := Item{What: e.Reason, Says: e.Message, Since: since(happened(e))}
		if n := times(e); n > 1 {
			item.Says += fmt.Sprintf(" (%d times)", n)
		}
		items = append(items, item)
	}
	slices.SortStableFunc(items, func(a, b Item) int {
		return ptr.Deref(a.Since, time.Time{}).Compare(ptr.Deref(b.Since, time.Time{}))
	})
	return items
}

// happened returns when an Event was last seen.
func happened(e *corev1.Event) time.Time {
	if e.Series != nil {
		return e.Series.LastObservedTime.Time
	}
	return cmp.Or(e.LastTimestamp.Time, e.EventTime.Time, e.CreationTimestamp.Time)
}

func times(e *corev1.Event) int32 {
	if e.Series != nil {
		return e.Series.Count
	}
	return e.Count
}

func age(l *coordinationv1.Lease, now time.Time) time.Duration {
	if l.Spec.RenewTime == nil {
		return now.Sub(l.CreationTimestamp.Time)
	}
	return now.Sub(l.Spec.RenewTime.Time)
}

// patience returns how old a heartbeat may be: as long as the Lease says that it is valid.
func patience(l *coordinationv1.Lease) time.Duration {
	const usual = 40 * time.Second // kubelet's nodeLeaseDurationSeconds
	if s := l.Spec.LeaseDurationSeconds; s != nil && *s > 0 {
		return time.Duration(*s) * time.Second
	}
	return usual
}

func since(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

func sentence(reason, message string) string {
	return strings.TrimSpace(strings.TrimSuffix(reason+": "+message, ": "))
}
