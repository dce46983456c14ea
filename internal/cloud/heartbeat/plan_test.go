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

	bare   = corev1.TaintEffect("")
	prefer = corev1.TaintEffectPreferNoSchedule
	never  = corev1.TaintEffectNoSchedule
)

// byDefault is how a pool wants its nodes treated that does not say so.
var byDefault = wish{show: ShowReady, relayed: prefer}

// aNode is a Node with or without our taint, amid others, and with our condition if status is not empty.
func aNode(tainted bool, status corev1.ConditionStatus, reason string) *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: "n1", UID: "u1", Labels: map[string]string{edge.LabelNodePool: "p1"},
	}}
	node.Spec.Taints = foreignTaints()
	if tainted {
		node.Spec.Taints = append(node.Spec.Taints, ourTaint(never))
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
		has       corev1.TaintEffect
		was       corev1.ConditionStatus
		wasReason string
		gets      corev1.TaintEffect
		status    corev1.ConditionStatus // none: not written
		reason    string
		event     string
		eventType string
	}{
		{"first sight of a healthy node", Finding{Verdict: Direct}, bare, none, "",
			bare, no, ReasonDirect, "", ""},
		{"link down", Finding{Verdict: Delegated}, bare, no, ReasonDirect,
			never, yes, ReasonDelegated, EventCloudLinkDown, "Warning"},
		{"first known as delegated", Finding{Verdict: Delegated}, bare, none, "",
			never, yes, ReasonDelegated, EventCloudLinkDown, "Warning"},
		{"down and said so", Finding{Verdict: Delegated}, never, yes, ReasonDelegated, never, none, "", "", ""},
		{"somebody took the taint", Finding{Verdict: Delegated}, bare, yes, ReasonDelegated, never, none,
			"", "", ""},
		{"link up", Finding{Verdict: Direct}, never, yes, ReasonDelegated,
			bare, no, ReasonDirect, EventCloudLinkRestored, "Normal"},
		{"up and said so", Finding{Verdict: Direct}, bare, no, ReasonDirect, bare, none, "", "", ""},
		{"link down, relayed", Finding{Verdict: Delegated, Relayed: true}, bare, no, ReasonDirect,
			prefer, yes, ReasonRelayed, EventCloudLinkDown, "Warning"},
		{"start: relayed", Finding{Verdict: Unobserved, Annotated: true, Relayed: true}, never, yes, ReasonRelayed,
			prefer, none, "", "", ""},
		{"start: relayed, of both effects", Finding{Verdict: Unobserved, Annotated: true, Relayed: true}, "both", yes,
			ReasonRelayed, prefer, none, "", "", ""},
		{"unsettled", Finding{Verdict: Delegated, Unsettled: true}, never, yes, ReasonDelegated, prefer, none, "", "", ""},
		{"relayed after delegated", Finding{Verdict: Delegated, Relayed: true}, never, yes, ReasonDelegated,
			prefer, yes, ReasonRelayed, "", ""},
		{"relayed and said so", Finding{Verdict: Delegated, Relayed: true}, prefer, yes, ReasonRelayed, prefer, none, "", "", ""},
		{"delegated after relayed", Finding{Verdict: Delegated}, prefer, yes, ReasonRelayed,
			never, yes, ReasonDelegated, "", ""},
		{"link up after relayed", Finding{Verdict: Direct}, prefer, yes, ReasonRelayed,
			bare, no, ReasonDirect, EventCloudLinkRestored, "Normal"},
		{"silent after relayed", Finding{Verdict: Silent}, prefer, yes, ReasonRelayed,
			prefer, unknown, ReasonDelegationStopped, EventDelegationStopped, "Warning"},
		{"silent after direct", Finding{Verdict: Silent}, bare, no, ReasonDirect,
			bare, unknown, ReasonNone, EventHeartbeatsStopped, "Warning"},
		{"silent after delegated", Finding{Verdict: Silent}, never, yes, ReasonDelegated,
			never, unknown, ReasonDelegationStopped, EventDelegationStopped, "Warning"},
		{"Lease deleted while delegated", Finding{Verdict: Silent, Gone: true}, never, yes, ReasonDelegated,
			never, unknown, ReasonDelegationStopped, EventDelegationStopped, "Warning"},
		{"silent from the start", Finding{Verdict: Silent}, bare, none, "", bare, unknown, ReasonNone, "", ""},
		{"silent, annotated, taint taken", Finding{Verdict: Silent, Annotated: true}, bare, unknown, ReasonNone,
			bare, none, "", "", ""},
		{"silent and said so", Finding{Verdict: Silent}, never, unknown, ReasonDelegationStopped, never, none,
			"", "", ""},
		{"back, direct, after it died delegated", Finding{Verdict: Direct}, never, unknown, ReasonDelegationStopped,
			bare, no, ReasonDirect, EventCloudLinkRestored, "Normal"},
		{"back, direct", Finding{Verdict: Direct}, bare, unknown, ReasonNone,
			bare, no, ReasonDirect, EventHeartbeatsResumed, "Normal"},
		{"back, delegated", Finding{Verdict: Delegated}, bare, unknown, ReasonNone,
			never, yes, ReasonDelegated, EventCloudLinkDown, "Warning"},
		{"start: annotated", Finding{Verdict: Unobserved, Annotated: true}, bare, no, ReasonDirect,
			never, none, "", "", ""},
		{"start: annotated and tainted", Finding{Verdict: Unobserved, Annotated: true}, never, yes, ReasonDelegated,
			never, none, "", "", ""},
		{"start: left over taint", Finding{Verdict: Unobserved}, never, yes, ReasonDelegated, bare, none,
			"", "", ""},
		{"no Lease", Finding{}, never, yes, ReasonDelegated, never, none, "", "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			node := aNode(false, tt.was, tt.wasReason)
			switch tt.has {
			case bare:
			case "both":
				node.Spec.Taints = append(node.Spec.Taints, ourTaint(prefer), ourTaint(never))
			default:
				node.Spec.Taints = append(node.Spec.Taints, ourTaint(tt.has))
			}
			before := node.DeepCopy()
			tt.finding.Patience = 40 * time.Second
			c := plan(node, tt.finding, byDefault)
			if !equality.Semantic.DeepEqual(node, before) {
				t.Error("Plan changed the Node")
			}
			gets := map[Edit]corev1.TaintEffect{Keep: tt.has, Remove: bare, Add: c.Effect}[c.Taint]
			if gets != tt.gets || (c.Taint == Add) != (c.Effect != "") || c.Was != tt.was {
				t.Errorf("taint %q by %v %q, was %q; want %q, %q", gets, c.Taint, c.Effect, c.Was, tt.gets, tt.was)
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
			if zero := tt.gets == tt.has && tt.status == none; c.IsZero() != zero {
				t.Errorf("IsZero() = %t for %+v", c.IsZero(), c)
			}

			node.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
			if c := plan(node, tt.finding, byDefault); !c.IsZero() {
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
				c := plan(node, f, wish{show: ShowNotReady})
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
		if got := plan(aNode(false, tt.was, ""), tt.finding, wish{show: ShowReady}).Condition.Message; got != tt.want {
			t.Errorf("message %q, want %q", got, tt.want)
		}
	}
}
