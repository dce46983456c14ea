package coordinator

import (
	"strings"
	"testing"

	"yurtcoordinator/apis/apps/v1alpha1"
)

// What fails is said where people look, and no more once it has passed.
func TestErrorsAreSaid(t *testing.T) {
	for _, test := range []struct {
		refuses, failing string
		kind             v1alpha1.YurtCoordinatorConditionType
	}{
		{"Secret", "Pending=False/Deployed CertsReady=Unknown/ReconcileError Ready=False/PodNotReady on p1-n1",
			v1alpha1.YurtCoordinatorCertsReady},
		{"Role", "Pending=False/Deployed CertsReady=Unknown/ReconcileError Ready=False/PodNotReady on p1-n1",
			v1alpha1.YurtCoordinatorCertsReady},
		{"YurtAppSet", "Pending=False/Deployed CertsReady=False/NotScheduled Ready=False/ReconcileError",
			v1alpha1.YurtCoordinatorReady},
		{"Service", "Pending=False/Deployed CertsReady=False/NotScheduled Ready=False/ReconcileError",
			v1alpha1.YurtCoordinatorReady},
	} {
		t.Run(test.refuses, func(t *testing.T) {
			w := newWorld(t)
			w.refuses = test.refuses
			w.pool("p1", 3)
			w.coordinator("c1", "p1")
			var err error
			for range 4 {
				err = w.round()
				w.passes()
			}
			if err == nil {
				t.Error("nothing counts as an error")
			}
			if got := w.status("c1"); got != test.failing {
				t.Errorf("says %s, want %s", got, test.failing)
			}
			if got := w.message("c1", test.kind); !strings.Contains(got, "a policy says no") {
				t.Errorf("says %q", got)
			}
			w.refuses = ""
			w.turns(9)
			if got := w.status("c1"); got != allReady+"p1-n1" {
				t.Errorf("says %s once it has passed", got)
			}
		})
	}
}
