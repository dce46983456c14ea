package heartbeat

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yurtcoordinator/internal/edge"
)

const (
	none    = corev1.ConditionStatus("")
	yes     = corev1.ConditionTrue
	no      = corev1.ConditionFalse
	unknown = corev1.ConditionUnknown
)

// aNode is a Node with or without our taint, amid others, and with our condition if status is not empty.
func aNode(tainted bool, status corev1.ConditionStatus, reason string) *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: "n1", UID: "u1", Labels: map[string]string{edge.LabelNodePool: "p1"},
	}}
	node.Spec.Taints = foreignTaints()
	if tainted {
		node.Spec.Taints = append(node.Spec.Taints, ourTaint())
	}
	node.Status.Conditions = []corev1.NodeCondition{{
		Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: kubeletReady, Message: "kubelet is posting ready status",
		LastHeartbeatTime: metav1.Unix(1_000_000, 0), LastTransitionTime: metav1.Unix(900_000, 0),
	}}
	if status != none {
		node.Status.Conditions = append(node.Status.Conditions,
			corev1.NodeCondition{Type: edge.ConditionCloudLinkDown, Status: status, Reason: reason})
	}
	return node
}

// evictingTaint is kube-controller-manager's on a node that is silent.
func evictingTaint() corev1.Taint {
	return corev1.Taint{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute}
}

// foreignTaints must outlive everything, the second of them in spite of its key.
func foreignTaints() []corev1.Taint {
	return []corev1.Taint{
		{Key: "dedicated", Value: "ovens", Effect: corev1.TaintEffectNoSchedule},
		{Key: edge.TaintUnschedulable, Effect: corev1.TaintEffectNoExecute},
	}
}

func TestPlan(t *testing.T) {
	for _, tt := range []struct {
		name      string
		finding   Finding
		tainted   bool
		was       corev1.ConditionStatus
		wasReason string
		taint     Edit
		status    corev1.ConditionStatus // none: not written
		reason    string
		event     string
		eventType string
	}{
		{"first sight of a healthy node", Finding{Verdict: Direct}, false, none, "",
			Keep, no, ReasonDirect, "", ""},
		{"link down", Finding{Verdict: Delegated}, false, no, ReasonDirect,
			Add, yes, ReasonDelegated, EventCloudLinkDown, "Warning"},
		{"first known as delegated", Finding{Verdict: Delegated}, false, none, "",
			Add, yes, ReasonDelegated, EventCloudLinkDown, "Warning"},
		{"down and said so", Finding{Verdict: Delegated}, true, yes, ReasonDelegated, Keep, none, "", "", ""},
		{"somebody took the taint", Finding{Verdict: Delegated}, false, yes, ReasonDelegated, Add, none,
			"", "", ""},
		{"link up", Finding{Verdict: Direct}, true, yes, ReasonDelegated,
			Remove, no, ReasonDirect, EventCloudLinkRestored, "Normal"},
		{"up and said so", Finding{Verdict: Direct}, false, no, ReasonDirect, Keep, none, "", "", ""},
		{"link down, relayed", Finding{Verdict: Delegated, Relayed: true}, false, no, ReasonDirect,
			Add, yes, ReasonRelayed, EventCloudLinkDown, "Warning"},
		{"link down, relayed, and to take new Pods", Finding{Verdict: Delegated, Relayed: true, NewPods: true}, false, no,
			ReasonDirect, Keep, yes, ReasonRelayed, EventCloudLinkDown, "Warning"},
		{"relayed, to take new Pods, after delegated", Finding{Verdict: Delegated, Relayed: true, NewPods: true}, true, yes,
			ReasonDelegated, Remove, yes, ReasonRelayed, "", ""},
		{"start: relayed, to take new Pods", Finding{Verdict: Unobserved, Annotated: true, Relayed: true, NewPods: true}, true,
			yes, ReasonRelayed, Remove, none, "", "", ""},
		{"relayed after delegated", Finding{Verdict: Delegated, Relayed: true}, true, yes, ReasonDelegated,
			Keep, yes, ReasonRelayed, "", ""},
		{"relayed and said so", Finding{Verdict: Delegated, Relayed: true}, true, yes, ReasonRelayed, Keep, none, "", "", ""},
		{"delegated after relayed", Finding{Verdict: Delegated}, true, yes, ReasonRelayed,
			Keep, yes, ReasonDelegated, "", ""},
		{"link up after relayed", Finding{Verdict: Direct}, true, yes, ReasonRelayed,
			Remove, no, ReasonDirect, EventCloudLinkRestored, "Normal"},
		{"silent after relayed", Finding{Verdict: Silent}, true, yes, ReasonRelayed,
			Keep, unknown, ReasonDelegationStopped, EventDelegationStopped, "Warning"},
		{"silent after direct", Finding{Verdict: Silent}, false, no, ReasonDirect,
			Keep, unknown, ReasonNone, EventHeartbeatsStopped, "Warning"},
		{"silent after delegated", Finding{Verdict: Silent}, true, yes, ReasonDelegated,
			Keep, unknown, ReasonDelegationStopped, EventDelegationStopped, "Warning"},
		{"Lease deleted while delegated", Finding{Verdict: Silent, Gone: true}, true, yes, ReasonDelegated,
			Keep, unknown, ReasonDelegationStopped, EventDelegationStopped, "Warning"},
		{"silent from the start", Finding{Verdict: Silent}, false, none, "", Keep, unknown, ReasonNone, "", ""},
		{"silent, annotated, taint taken", Finding{Verdict: Silent, Annotated: true}, false, unknown, ReasonNone,
			Keep, none, "", "", ""},
		{"silent and said so", Finding{Verdict: Silent}, true, unknown, ReasonDelegationStopped, Keep, none,
			"", "", ""},
		{"back, direct, after it died delegated", Finding{Verdict: Direct}, true, unknown, ReasonDelegationStopped,
			Remove, no, ReasonDirect, EventCloudLinkRestored, "Normal"},
		{"back, direct", Finding{Verdict: Direct}, false, unknown, ReasonNone,
			Keep, no, ReasonDirect, EventHeartbeatsResumed, "Normal"},
		{"back, delegated", Finding{Verdict: Delegated}, false, unknown, ReasonNone,
			Add, yes, ReasonDelegated, EventCloudLinkDown, "Warning"},
		{"start: annotated", Finding{Verdict: Unobserved, Annotated: true}, false, no, ReasonDirect,
			Add, none, "", "", ""},
		{"start: annotated and tainted", Finding{Verdict: Unobserved, Annotated: true}, true, yes, ReasonDelegated,
			Keep, none, "", "", ""},
		{"start: left over taint", Finding{Verdict: Unobserved}, true, yes, ReasonDelegated, Remove, none,
			"", "", ""},
		{"no Lease", Finding{}, true, yes, ReasonDelegated, Keep, none, "", "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			node := aNode(tt.tainted, tt.was, tt.wasReason)
			before := node.DeepCopy()
			tt.finding.Patience = 40 * time.Second
			c := Plan(node, tt.finding, ShowReady)
			if !equality.Semantic.DeepEqual(node, before) {
				t.Error("Plan changed the Node")
			}
			if c.Taint != tt.taint || c.Was != tt.was {
				t.Errorf("taint %v, was %q; want %v, %q", c.Taint, c.Was, tt.taint, tt.was)
			}
			var status corev1.ConditionStatus
			var reason string
			if c.Condition != nil {
				status, reason = c.Condition.Status, c.Condition.Reason
				if c.Condition.Message == "" {
					t.Error("condition without a message")
				}
			}
			if status != tt.status || reason != tt.reason {
				t.Errorf("condition %q %q, want %q %q", status, reason, tt.status, tt.reason)
			}
			var event Event
			if c.Event != nil {
				event = *c.Event
			}
			if event.Reason != tt.event || event.Type != tt.eventType {
				t.Errorf("event %q %q, want %q %q", event.Type, event.Reason, tt.eventType, tt.event)
			}
			if zero := tt.taint == Keep && tt.status == none; c.IsZero() != zero {
				t.Errorf("IsZero() = %t for %+v", c.IsZero(), c)
			}

			node.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
			if c := Plan(node, tt.finding, ShowReady); !c.IsZero() {
				t.Errorf("a Node that is being deleted: %+v, want nothing", c)
			}
		})
	}
}

// Nobody forwards the heartbeats of a node in no pool: nothing is said of it, and what was said while it had one is taken
// back, whatever its Lease says.
func TestOfANodeInNoPool(t *testing.T) {
	for _, f := range []Finding{
		{}, {Verdict: Unobserved, Annotated: true}, {Verdict: Direct}, {Verdict: Delegated}, {Verdict: Silent},
	} {
		for _, was := range []corev1.ConditionStatus{none, yes, no, unknown} {
			for _, tainted := range []bool{false, true} {
				node := aNode(tainted, was, ReasonDelegated)
				delete(node.Labels, edge.LabelNodePool)
				want := Change{Was: was}
				if tainted {
					want.Taint = Remove
				}
				c := Plan(node, f, ShowNotReady)
				if was == yes || was == unknown {
					if c.Condition == nil || c.Condition.Status != no || c.Condition.Reason != ReasonNoPool {
						t.Errorf("%v, %q: condition %+v", f.Verdict, was, c.Condition)
					}
					c.Condition = nil
				}
				if c != want {
					t.Errorf("%v, %q, tainted %t: %+v, want %+v", f.Verdict, was, tainted, c, want)
				}
			}
		}
	}
}

func TestSilenceIsExplained(t *testing.T) {
	for _, tt := range []struct {
		finding Finding
		was     corev1.ConditionStatus
		want    string
	}{
		{Finding{Verdict: Silent, Patience: 40 * time.Second}, no, "No heartbeat has come for 40s."},
		{Finding{Verdict: Silent, Patience: 90 * time.Second}, yes,
			"No heartbeat has come for 1m30s. The last ones were delegated."},
		{Finding{Verdict: Silent, Gone: true}, none, "The node's Lease was deleted."},
	} {
		if got := Plan(aNode(false, tt.was, ""), tt.finding, ShowReady).Condition.Message; got != tt.want {
			t.Errorf("message %q, want %q", got, tt.want)
		}
	}
}
