package coordinator

import (
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yurtcoordinator/internal/edge"
)

// TestVigil: each step is two seconds and what of the nodes a and b changes in it: r renews, d is no place any more, u is one
// again; a letter counts for the node it stands behind. The answer is who is found, by step.
func TestVigil(t *testing.T) {
	const back = int(backFor / (2 * time.Second))
	wait := func(n int, step string) []string { return slices.Repeat([]string{step}, n) }
	isBack := slices.Concat([]string{"", "ad bd"}, wait(9, ""), []string{"au ar"})
	for name, c := range map[string]struct {
		steps []string
		want  edge.NodeName // in the last step, and none before
	}{
		"the others go on":                       {[]string{"", "", "br"}, "b"},
		"silence":                                {wait(100, ""), ""},
		"the whole pool goes down":               {[]string{"", "", "ad", "bd", "", ""}, ""},
		"one was heard before the vigil began":   {[]string{"ar", "", "", "ad bd", ""}, ""},
		"back for a moment":                      {slices.Concat(isBack, wait(back-1, "ar")), ""},
		"back for long":                          {slices.Concat(isBack, wait(back, "ar")), "a"},
		"Ready for long, and not heard":          {slices.Concat([]string{"", "ad bd", "au ar"}, wait(2*back, "")), ""},
		"a node that is no place is heard":       {slices.Concat([]string{"", "ad bd"}, wait(50, "ar br")), ""},
		"a new node must be there for long, too": {slices.Concat([]string{"", "ad bd", "cu cr"}, wait(back-1, "cr")), ""},
		"first by name":                          {[]string{"", "br ar"}, "a"},
	} {
		t.Run(name, func(t *testing.T) {
			v, now := &vigil{pod: "uid"}, start
			nodes := map[string]*member{"a": {name: "a", place: true}, "b": {name: "b", place: true}}
			for i, step := range c.steps {
				for _, what := range strings.Fields(step) {
					m := nodes[what[:1]]
					if m == nil {
						m = &member{name: edge.NodeName(what[:1])}
						nodes[what[:1]] = m
					}
					switch what[1] {
					case 'r':
						m.renewed++
					case 'd':
						m.place = false
					case 'u':
						m.place = true
					}
				}
				var others []member
				for _, m := range nodes {
					others = append(others, *m)
				}
				got, want := v.observe(others, now), edge.NodeName("")
				if i == len(c.steps)-1 {
					want = c.want
				}
				if got != want {
					t.Fatalf("step %d (%s): %q, want %q", i, step, got, want)
				}
				now = now.Add(2 * time.Second)
			}
		})
	}
}

// ready has a Node Ready or not, with the taint that a dead one gets, and its Lease renewed if it is.
func (w *world) ready(name string, is bool) {
	w.t.Helper()
	var n corev1.Node
	w.get("", name, &n)
	taints, status := []corev1.Taint(nil), corev1.ConditionTrue
	if !is {
		status = corev1.ConditionUnknown
		taints = []corev1.Taint{{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute}}
	}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status}}
	w.updateStatus(&n)
	n.Spec.Taints = taints
	w.update(&n)
	if !is {
		return
	}
	var lease coordinationv1.Lease
	w.get(corev1.NamespaceNodeLease, name, &lease)
	lease.Spec.RenewTime = &metav1.MicroTime{Time: w.clock.Now()}
	w.update(&lease)
}

func TestACoordinatorLeavesADeadNode(t *testing.T) {
	w := newWorld(t)
	w.pool("p1", 3)
	for _, n := range []string{"p1-n1", "p1-n2", "p1-n3"} {
		w.ready(n, true)
	}
	w.coordinator("c1", "p1")
	w.turns(7)
	w.complete("c1", "p1", "p1-n1", "192.0.2.1")
	pod := func() *corev1.Pod {
		t.Helper()
		var pods corev1.PodList
		if w.list(&pods); len(pods.Items) != 1 {
			t.Fatalf("%d Pods", len(pods.Items))
		}
		return &pods.Items[0]
	}
	stays := func(want bool, when string) {
		t.Helper()
		if got := staysOn(pod()); got != want {
			t.Fatalf("stays %v, want %v, %s: %v", got, want, when, pod().Spec.Tolerations)
		}
	}

	w.ready("p1-n1", false)
	w.turns(3)
	stays(true, "with its node dead and nobody heard from")
	w.ready("p1-n2", false)
	w.ready("p1-n3", false)
	w.turns(50)
	stays(true, "with all of the pool cut off")
	for _, n := range []string{"p1-n3", "p1-n2", "p1-n1"} {
		w.ready(n, true)
		w.turns(3)
	}
	w.ready("p1-n2", true)
	w.turns(1)
	stays(true, "with all of the pool back")

	w.ready("p1-n1", false)
	w.turns(1)
	w.ready("p1-n3", true) // heard from
	w.turns(1)
	stays(false, "with its node dead and another heard from")
	if !slices.ContainsFunc(w.events, func(e string) bool { return strings.Contains(e, "CoordinatorMoves") }) {
		t.Error(w.events)
	}
	w.delete(pod()) // as kube-controller-manager does
	w.turns(5)
	w.complete("c1", "p1", "p1-n2", "192.0.2.2")
	stays(true, "on its new node")
	if len(w.r.vigils) != 0 {
		t.Error("the vigil goes on")
	}
}
