package heartbeat

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yurtcoordinator/apis/apps/v1alpha1"
	"yurtcoordinator/internal/edge"
)

// effect is that of our taint on a node; empty means that there is none.
func (w *world) effect(node string) (found corev1.TaintEffect) {
	w.t.Helper()
	for _, t := range w.node(node).Spec.Taints {
		if t.Key != edge.TaintUnschedulable || t.Effect == corev1.TaintEffectNoExecute { // see foreignTaints
			continue
		}
		if found != "" {
			w.t.Errorf("%s has our taint twice: %v", node, w.node(node).Spec.Taints)
		}
		found = t.Effect
	}
	return found
}

// speaks is a heartbeat: by "itself", "relayed" by a neighbour's link, which takes all or "heartbeats" alone, or "forwarded".
func (w *world) speaks(node, how string) {
	w.renew(node, how != "itself")
	by := map[string]string{"relayed": "n2", "heartbeats": "n2/heartbeats"}[how]
	if by != "" {
		w.editLease(node, func(l *coordinationv1.Lease) {
			l.Spec.RenewTime = &metav1.MicroTime{Time: l.Spec.RenewTime.Add(time.Microsecond)}
			l.Annotations[edge.AnnotationRelayedBy] = by
		})
	}
}

// A node whose kubelet hears deletions lets the replacements in, and one of which heartbeats alone take a neighbour's line hears
// none: a DaemonSet's controller deletes the Pods of a tainted node as of any other, and makes none where a taint says NoSchedule
// (NodeShouldRunDaemonPod).
func TestWhoHearsDeletionsLetsReplacementsIn(t *testing.T) {
	for _, tt := range []struct {
		wish v1alpha1.RelayedNodeScheduling
		want map[string]corev1.TaintEffect
	}{
		{"", map[string]corev1.TaintEffect{"itself": bare, "relayed": prefer, "forwarded": never, "heartbeats": never}},
		{"PreferNoSchedule", map[string]corev1.TaintEffect{
			"itself": bare, "relayed": prefer, "forwarded": never, "heartbeats": never,
		}},
		{"Enabled", map[string]corev1.TaintEffect{"itself": bare, "relayed": bare, "forwarded": never, "heartbeats": never}},
		{"Disabled", map[string]corev1.TaintEffect{"itself": bare, "relayed": never, "forwarded": never, "heartbeats": never}},
	} {
		w := newWorld(t)
		w.calm = time.Minute
		w.show("p1", v1alpha1.DelegatedReady)
		w.coordinators["p1"].Spec.RelayedNodeScheduling = tt.wish
		w.start()
		w.createNode(aNode(false, none, ""))
		for _, how := range []string{
			"itself", "itself", "forwarded", "relayed", "itself", "relayed", "forwarded", "itself", "heartbeats", "itself",
		} {
			w.speaks("n1", how)
			w.pass(time.Second)
			if got := w.effect("n1"); got != tt.want[how] {
				t.Errorf("relayedNodeScheduling %q: a node whose heartbeats are %s has a taint %q, want %q", tt.wish, how, got,
					tt.want[how])
			}
			w.pass(24 * time.Second)
		}
	}
}
