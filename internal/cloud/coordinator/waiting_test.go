package coordinator

import (
	"strings"
	"testing"

	"yurtcoordinator/apis/apps/v1alpha1"
)

// TestSayWaiting: the reason is where people look; what was found out before stays, and the fleet's state is Pending.
func TestSayWaiting(t *testing.T) {
	w := newWorld(t)
	w.coordinator("new", "p1")
	w.coordinator("serves", "p2")
	var serves v1alpha1.YurtCoordinator
	w.get("", "serves", &serves)
	serves.Status.NodeName = "n1"
	serves.Status.Conditions = []v1alpha1.YurtCoordinatorCondition{
		{Type: v1alpha1.YurtCoordinatorReady, Status: v1alpha1.ConditionTrue, Reason: ReasonServing},
	}
	if err := w.api.Status().Update(t.Context(), &serves); err != nil {
		t.Fatal(err)
	}
	if err := w.r.SayWaiting(t.Context(), []string{"apps.openyurt.io/v1beta2 NodePool"}); err != nil {
		t.Fatal(err)
	}
	for name, ready := range map[string]v1alpha1.ConditionStatus{
		"new": v1alpha1.ConditionFalse, "serves": v1alpha1.ConditionTrue,
	} {
		var c v1alpha1.YurtCoordinator
		w.get("", name, &c)
		got := make(map[v1alpha1.YurtCoordinatorConditionType]v1alpha1.YurtCoordinatorCondition)
		for _, has := range c.Status.Conditions {
			got[has.Type] = has
		}
		pending := got[v1alpha1.YurtCoordinatorPending]
		if pending.Status != v1alpha1.ConditionTrue || pending.Reason != ReasonKindNotServed ||
			!strings.Contains(pending.Message, "v1beta2 NodePool") || got[v1alpha1.YurtCoordinatorReady].Status != ready {
			t.Errorf("%s says %+v", name, c.Status.Conditions)
		}
		if name == "serves" && c.Status.NodeName != "n1" {
			t.Errorf("its node is %q", c.Status.NodeName)
		}
	}
}
