package heartbeat

import (
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestAGracePeriodThatIsTooShort: kube-controller-manager calls a node silent before we do.
func TestAGracePeriodThatIsTooShort(t *testing.T) {
	for name, tt := range map[string]struct {
		after time.Duration // from the last heartbeat until kube-controller-manager gives the node up
		lease int32         // kubelet's nodeLeaseDurationSeconds, if it is not the usual one
		back  bool          // the node is back a second later
		want  bool
	}{
		"it is tuned for a fast failover": {after: 22 * time.Second, want: true},
		"a Lease that lasts for long":     {after: 52 * time.Second, lease: 120, want: true},
		"it fits":                         {after: 52 * time.Second},
		"the node heals":                  {after: 52 * time.Second, back: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.createNode(aNode(false, none, ""))
			w.renew("n1", false)
			w.pass(10 * time.Second)
			w.renew("n1", false)
			if tt.lease > 0 {
				w.editLease("n1", func(l *coordinationv1.Lease) { l.Spec.LeaseDurationSeconds = &tt.lease })
			}
			w.pass(tt.after)
			w.said()
			w.editNode("n1", func(n *corev1.Node) {
				n.Status.Conditions[0].Status, n.Status.Conditions[0].Reason = corev1.ConditionUnknown, "NodeStatusUnknown"
				n.Status.Conditions[0].LastTransitionTime = metav1.NewTime(w.clock.Now())
			})
			w.pass(time.Second)
			if tt.back {
				w.renew("n1", false)
			}
			w.pass(time.Minute)
			got := 0
			for _, said := range w.said() {
				if strings.HasPrefix(said, "event Warning GracePeriodTooShort") {
					got++
				}
			}
			if (got > 0) != tt.want || got > 2 {
				t.Errorf("said %d times, want it %t", got, tt.want)
			}
		})
	}
}
