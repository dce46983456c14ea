package coordinator

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yurtcoordinator/apis/apps/v1alpha1"
	"yurtcoordinator/internal/edge"
)

// A YurtCoordinator says that its pool is held from the first such time on, and when it is over.
func TestHeldIsSaid(t *testing.T) {
	w := newWorld(t)
	w.pool("p1", 3)
	w.coordinator("c1", "p1")
	w.turns(7)
	w.complete("c1", "p1", "p1-n1", "192.0.2.1")
	w.turns(2)
	if got := w.status("c1"); strings.Contains(got, "EvictionsHeld") {
		t.Errorf("nothing was ever held, and it says %s", got)
	}
	say := func(node string, status corev1.ConditionStatus, message string) {
		var n corev1.Node
		w.get("", node, &n)
		base := client.MergeFrom(n.DeepCopy())
		n.Status.Conditions = []corev1.NodeCondition{{Type: edge.ConditionEvictionsHeld, Status: status, Message: message}}
		if err := w.api.Status().Patch(t.Context(), &n, base); err != nil {
			t.Fatal(err)
		}
	}
	say("p1-n1", corev1.ConditionTrue, "No Pod is evicted until tomorrow.")
	say("p1-n2", corev1.ConditionTrue, "No Pod is evicted until tomorrow.")
	w.turns(2)
	if got := w.status("c1"); !strings.Contains(got, " EvictionsHeld=True/WholePoolCut") {
		t.Errorf("held, and it says %s", got)
	}
	if m := w.message("c1", v1alpha1.YurtCoordinatorEvictionsHeld); m != "Of 2 of 3 nodes. No Pod is evicted until tomorrow." {
		t.Errorf("it says %q", m)
	}
	say("p1-n1", corev1.ConditionFalse, "The node speaks.")
	say("p1-n2", corev1.ConditionFalse, "The node speaks.")
	w.turns(2)
	if got := w.status("c1"); !strings.Contains(got, " EvictionsHeld=False/NotHeld") {
		t.Errorf("over, and it says %s", got)
	}
}
