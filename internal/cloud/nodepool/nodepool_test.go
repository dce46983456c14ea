package nodepool

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yurtcoordinator/apis/apps/v1beta2"
	"yurtcoordinator/internal/cloud/cloudtest"
	"yurtcoordinator/internal/edge"
)

func edgeSpec() v1beta2.NodePoolSpec {
	return v1beta2.NodePoolSpec{
		HostNetwork: true, Labels: map[string]string{"region": "north"}, Annotations: map[string]string{"note": "n"},
		Taints: []corev1.Taint{taint("edge", "1", "NoSchedule")},
	}
}

var edgeHas = []string{
	"label region=north", "label " + LabelHostNetwork + "=true", "annotation note=n", "taint edge=1:NoSchedule",
}

func TestANodesWay(t *testing.T) {
	w := newWorld(t)
	p := w.pool("way-a", edgeSpec())
	w.pool("way-b", v1beta2.NodePoolSpec{Labels: map[string]string{"region": "south"}})
	w.says("way-a", 0, 0)
	n := w.node("way-1", "")
	w.has("way-1")

	move(w, n, "way-a")
	w.has("way-1", edgeHas...)
	w.says("way-a", 1, 0, "way-1")

	change(w, p, func(p *v1beta2.NodePool) {
		p.Spec.Labels, p.Spec.Annotations = map[string]string{"tier": "edge"}, nil
		p.Spec.Taints = []corev1.Taint{taint("edge", "2", "NoExecute")}
	})
	w.has("way-1", "label tier=edge", "label "+LabelHostNetwork+"=true", "taint edge=2:NoExecute")
	w.says("way-a", 1, 0, "way-1")

	move(w, n, "way-b")
	w.has("way-1", "label region=south")
	w.says("way-a", 0, 0)
	w.says("way-b", 1, 0, "way-1")

	move(w, n, "")
	w.has("way-1")
	w.says("way-b", 0, 0)
	w.quiet()
}

func TestWhatIsTakenAwayComesBack(t *testing.T) {
	w := newWorld(t)
	w.pool("back", edgeSpec())
	n := w.node("back-1", "back")
	w.has("back-1", edgeHas...)
	for name, undo := range map[string]func(*corev1.Node){
		"a label":           func(n *corev1.Node) { delete(n.Labels, "region") },
		"a label's value":   func(n *corev1.Node) { n.Labels["region"] = "west" },
		"an annotation":     func(n *corev1.Node) { delete(n.Annotations, "note") },
		"all taints":        func(n *corev1.Node) { n.Spec.Taints = nil },
		"our memory":        func(n *corev1.Node) { delete(n.Annotations, AnnotationAttributes) },
		"a taint's value":   func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{taint("edge", "9", "NoSchedule")} },
		"rubbish in memory": func(n *corev1.Node) { n.Annotations[AnnotationAttributes] = "{" },
	} {
		t.Log(name)
		change(w, n, undo)
		w.has("back-1", edgeHas...)
	}
	move(w, n, "")
	w.has("back-1")
}

func TestOthersPropertyStays(t *testing.T) {
	w := newWorld(t)
	n := w.node("own-1", "")
	change(w, n, func(n *corev1.Node) {
		n.Labels["region"] = "north" // the same as the pool's
		n.Spec.Taints = []corev1.Taint{taint("edge", "1", "NoSchedule"), taint("mine", "", "NoSchedule")}
	})
	w.pool("own", edgeSpec())
	move(w, n, "own")
	w.has("own-1", append([]string{"taint mine=:NoSchedule"}, edgeHas...)...)
	w.says("own", 1, 0, "own-1")
	move(w, n, "")
	w.has("own-1", "label region=north", "taint edge=1:NoSchedule", "taint mine=:NoSchedule")
}

func TestWhatChangesWhileNobodyRuns(t *testing.T) {
	w := newWorld(t)
	p := w.pool("restart", edgeSpec())
	leaves, stays := w.node("restart-1", "restart"), w.node("restart-2", "restart")
	w.has("restart-1", edgeHas...)
	w.says("restart", 2, 0, "restart-1", "restart-2")
	w.stop()
	move(w, leaves, "")
	change(w, stays, func(n *corev1.Node) { delete(n.Labels, "region") })
	change(w, p, func(p *v1beta2.NodePool) { p.Spec.Annotations, p.Spec.Taints = nil, nil })
	w.start()
	w.has("restart-1")
	w.has("restart-2", "label region=north", "label "+LabelHostNetwork+"=true")
	w.says("restart", 1, 0, "restart-2")
	w.quiet()
	w.stop()
	w.start()
	w.quiet() // a restart alone is no reason to write
}

func TestStatusFollowsReadiness(t *testing.T) {
	w := newWorld(t)
	w.pool("ready", v1beta2.NodePoolSpec{})
	n := w.node("ready-1", "ready")
	other := w.node("ready-2", "ready")
	w.says("ready", 2, 0, "ready-1", "ready-2")
	w.report(n, corev1.ConditionUnknown)
	w.says("ready", 1, 1, "ready-1", "ready-2")
	w.must(w.Delete(t.Context(), other))
	w.says("ready", 0, 1, "ready-1")
	before := len(w.sent.Writes())
	for range 20 { // reports that change nothing
		w.report(n, corev1.ConditionUnknown)
	}
	w.quiet()
	if after := w.sent.Writes(); len(after) > before {
		t.Errorf("reports of a node's status made it write: %v", after[before:])
	}
	p := &v1beta2.NodePool{}
	w.must(w.Get(t.Context(), client.ObjectKey{Name: "ready"}, p))
	p.Status.ReadyNodeNum = 99
	w.must(w.Status().Update(t.Context(), p))
	w.says("ready", 0, 1, "ready-1")
}

// report is what kubelet does every few seconds.
func (w *world) report(n *corev1.Node, ready corev1.ConditionStatus) {
	w.t.Helper()
	w.must(w.Get(w.t.Context(), client.ObjectKeyFromObject(n), n))
	for i := range n.Status.Conditions {
		c := &n.Status.Conditions[i]
		if c.LastHeartbeatTime = metav1.NewTime(c.LastHeartbeatTime.Add(1e9)); c.Type == corev1.NodeReady {
			c.Status = ready
		}
	}
	w.must(w.Status().Update(w.t.Context(), n))
}

func TestAPoolWithNodesIsHeld(t *testing.T) {
	w := newWorld(t)
	p := w.pool("held", edgeSpec())
	n := w.node("held-1", "held")
	w.says("held", 1, 0, "held-1")
	if c, _ := w.controller.pools.metrics.of("held"); c != (counts{ready: 1}) {
		t.Errorf("the metrics count %+v", c)
	}
	w.must(w.Delete(t.Context(), p))
	w.event("held", "NodePoolHasNodes", "held-1: kubectl label node NAME "+edge.LabelNodePool+"-")
	w.has("held-1", edgeHas...)
	other := w.node("held-2", "held")
	w.says("held", 2, 0, "held-1", "held-2")
	move(w, n, "")
	w.says("held", 1, 0, "held-2")
	w.stop()
	w.start() // in the middle
	w.says("held", 1, 0, "held-2")
	w.must(w.Delete(t.Context(), other))
	w.gone(p)
	w.has("held-1")
	cloudtest.Eventually(t, "the metrics forget a pool that is gone", func() error {
		if c, found := w.controller.pools.metrics.of("held"); found {
			return fmt.Errorf("they know %+v", c)
		}
		return nil
	})
	empty := w.pool("empty", v1beta2.NodePoolSpec{})
	w.says("empty", 0, 0)
	w.must(w.Delete(t.Context(), empty))
	w.gone(empty)
}

func TestANodeOfNoPool(t *testing.T) {
	w := newWorld(t)
	n := w.node("lost-1", "lost")
	w.event("lost-1", "NodePoolNotFound", "there is no NodePool of that name")
	for range 3 {
		change(w, n, func(n *corev1.Node) { n.Labels["own"] += "x" })
	}
	w.quiet()
	if events := w.events("lost-1", "NodePoolNotFound", ""); len(events) != 1 {
		t.Errorf("it says so in more than one Event: %v", events)
	}
	w.pool("lost", edgeSpec())
	cleanly := append([]string{}, edgeHas...)
	change(w, n, func(n *corev1.Node) { n.Labels["own"] = "x" })
	w.has("lost-1", cleanly...)
	w.says("lost", 1, 0, "lost-1")
}

func TestWhatANodeRefuses(t *testing.T) {
	w := newWorld(t)
	p := w.pool("bad", v1beta2.NodePoolSpec{Labels: map[string]string{"not a label": "x"}})
	w.node("bad-1", "bad")
	w.event("bad", "NodeRefused", "on Node bad-1")
	w.has("bad-1")
	change(w, p, func(p *v1beta2.NodePool) {
		p.Spec.Labels = map[string]string{"a": "b"}
		p.Spec.Taints = []corev1.Taint{taint("node.kubernetes.io/not-ready", "", "NoExecute")}
	})
	w.has("bad-1", "label a=b")
	w.says("bad", 1, 0, "bad-1")
	w.event("bad", "TaintsLeftOut", "node.kubernetes.io/not-ready")
	change(w, p, func(p *v1beta2.NodePool) {
		p.Spec.Labels = map[string]string{"a": "c", "node-role.kubernetes.io/control-plane": "", "kubernetes.io/hostname": "vip"}
	})
	w.has("bad-1", "label a=c")
	w.event("bad", "AttributesLeftOut", "kubernetes.io/hostname, node-role.kubernetes.io/control-plane are left out")
}

func TestADeletedNodeDoesNotComeBack(t *testing.T) {
	w := newWorld(t)
	w.stop()
	n := w.node("dead-1", "")
	old := n.DeepCopy()
	w.must(w.Delete(t.Context(), n))
	c := &nodes{cfg: Config{Client: w}}
	if err := c.writeAttributes(t.Context(), old, WantedBy(&v1beta2.NodePool{Spec: edgeSpec()})); err == nil {
		t.Error("it is written")
	}
	w.gone(old)
	again := w.node("dead-1", "") // of the same name
	if err := c.writeAttributes(t.Context(), old, WantedBy(&v1beta2.NodePool{Spec: edgeSpec()})); err == nil {
		t.Error("another node is taken for it")
	}
	if again.UID == old.UID {
		t.Error("this test tests nothing")
	}
	w.has("dead-1")
}
