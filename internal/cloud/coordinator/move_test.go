package coordinator

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yurtcoordinator/apis/apps/v1alpha1"
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
	first := w.podsIn(0)[0].UID
	stays := func(want bool, when string) {
		t.Helper()
		if all := w.podsIn(0); len(all) != 1 || (all[0].UID == first) != want {
			t.Fatalf("stays %v, want %v, %s", !want, want, when)
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
	w.turns(5)
	w.complete("c1", "p1", "p1-n2", "192.0.2.2")
	if len(w.r.vigils) != 0 {
		t.Error("the vigil goes on")
	}
}

// joins puts a Node into a pool; an empty name takes it out of its own.
func (w *world) joins(name, pool string) {
	w.t.Helper()
	var n corev1.Node
	w.get("", name, &n)
	n.Labels[edge.LabelNodePool] = pool
	w.update(&n)
}

// stationed returns a pool of so many nodes, all Ready, whose coordinator serves on the first.
func stationed(t *testing.T, nodes int) *world {
	t.Helper()
	w := newWorld(t)
	w.pool("p1", nodes)
	for i := range nodes {
		w.ready(fmt.Sprintf("p1-n%d", i+1), true)
	}
	w.coordinator("c1", "p1")
	w.turns(7)
	w.complete("c1", "p1", "p1-n1", "192.0.2.1")
	pod := w.podsIn(0)[0]
	pod.Status.HostIP = "192.0.2.1"
	w.updateStatus(&pod)
	w.turns(1)
	return w
}

// denies puts somebody on the pool's list.
func (w *world) denies(who string) {
	w.t.Helper()
	var c v1alpha1.YurtCoordinator
	w.get("", "c1", &c)
	c.Spec.DeniedUsers = append(c.Spec.DeniedUsers, who)
	w.update(&c)
}

// TestACoordinatorsNodeLeaves: the status says so at once. The coordinator has what it needs for as long as it runs there, a year
// if nobody is heard from, and moves once another node is.
func TestACoordinatorsNodeLeaves(t *testing.T) {
	const pool = edge.PoolName("p1")
	for how, leave := range map[string]func(*world){
		"is in pool p2":        func(w *world) { w.joins("p1-n1", "p2") },
		"is in no pool":        func(w *world) { w.joins("p1-n1", "") },
		"has no Node any more": func(w *world) { w.delete(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "p1-n1"}}) },
	} {
		t.Run(how, func(t *testing.T) {
			w := stationed(t, 4)
			first := w.podsIn(0)[0].UID
			leave(w)
			w.turns(1)
			if got := w.status("c1"); got != "Pending=False/Deployed CertsReady=True/Issued Ready=False/NodeLeftPool on p1-n1" {
				t.Error(got)
			}
			if says := w.message("c1", v1alpha1.YurtCoordinatorReady); !strings.Contains(says, "p1-n1 "+how) {
				t.Error(says)
			}
			if !slices.ContainsFunc(w.events, func(e string) bool {
				return strings.HasPrefix(e, "Warning NodeLeftPool Ready is false")
			}) {
				t.Error(w.events)
			}
			w.denies("system:node:p1-n1")
			w.node("p1", 5)
			var mounted, operators corev1.Secret
			var hint corev1.ConfigMap
			for range 26 {
				w.turns(2)
				w.get(edge.NamespaceSystem, pool.CoordinatorSecret(), &mounted)
				w.get(edge.NamespaceSystem, pool.KubeconfigSecret(), &operators)
				w.operatorsWork(pool, "https://192.0.2.1:10270", &operators, &mounted)
				if t.Failed() {
					t.Fatal(w.clock.Now())
				}
				w.clock.SetTime(w.clock.Now().Add(15 * 24 * time.Hour))
			}
			w.get(edge.NamespaceSystem, pool.DiscoveryConfigMap(), &hint)
			if got := string(mounted.Data[keyPoolNodes]); got != "p1-n2\np1-n3\np1-n4\np1-n5\n" {
				t.Errorf("the pool's nodes are %q", got)
			}
			if got := string(mounted.Data[keyDenied]) + hint.Data[edge.DiscoveryDenied]; strings.Count(got, "p1-n1") != 2 {
				t.Errorf("denied is %q", got)
			}
			if hint.Data[edge.DiscoveryServer] != "https://192.0.2.1:10270" {
				t.Errorf("hubs are told %q", hint.Data[edge.DiscoveryServer])
			}
			if all := w.podsIn(0); len(all) != 1 || all[0].UID != first {
				t.Fatal("it moved, and nobody was heard from")
			}
			w.ready("p1-n2", true)
			w.turns(6)
			w.complete("c1", "p1", "p1-n2", "192.0.2.2")
			if !slices.ContainsFunc(w.events, func(e string) bool {
				return strings.Contains(e, "CoordinatorMoves") && strings.Contains(e, "p1-n1 "+how)
			}) {
				t.Error(w.events)
			}
			if len(w.r.vigils) != 0 {
				t.Error("the vigil goes on")
			}
		})
	}
}

// TestACoordinatorWithNowhereToGo runs on where it is: all nodes have left, or none is one that it asks for.
func TestACoordinatorWithNowhereToGo(t *testing.T) {
	w := stationed(t, 3)
	w.says("ssd", func(s *v1alpha1.PoolSettingsSpec) { s.Coordinator.NodeSelector = map[string]string{"disk": "ssd"} })
	w.turns(2)
	was := w.podsIn(0)[0]
	was.Spec.NodeSelector = map[string]string{"disk": "ssd"} // as if it had been made with it
	w.update(&was)
	stays := func(when string) {
		t.Helper()
		for range 3 {
			for _, n := range []string{"p1-n2", "p1-n3"} {
				w.ready(n, true)
			}
			w.turns(1)
		}
		if all := w.podsIn(0); len(all) != 1 || all[0].UID != was.UID {
			t.Fatal("it left", when)
		}
	}
	w.joins("p1-n1", "p2")
	stays("for a node that it can't run on")
	w.joins("p1-n2", "p2")
	w.joins("p1-n3", "p2")
	stays("for a node of another pool")
	if got := w.condition("c1", v1alpha1.YurtCoordinatorReady); got != "False/NodeLeftPool" {
		t.Error(got)
	}
	w.joins("p1-n1", "p1")
	w.turns(1)
	if got := w.condition("c1", v1alpha1.YurtCoordinatorReady); got != "True/Serving" || len(w.r.vigils) != 0 {
		t.Errorf("back in its pool: %s, %d vigils", got, len(w.r.vigils))
	}
}

// TestListsOfAPodWithoutANode: hubs hear who is denied while no coordinator has a node.
func TestListsOfAPodWithoutANode(t *testing.T) {
	w := stationed(t, 3)
	w.schedules = false
	pod := w.podsIn(0)[0]
	w.delete(&pod)
	w.denies("system:node:p1-n3")
	w.turns(3)
	var hint corev1.ConfigMap
	w.get(edge.NamespaceSystem, edge.PoolName("p1").DiscoveryConfigMap(), &hint)
	if hint.Data[edge.DiscoveryDenied] != "system:node:p1-n3\n" || hint.Data[edge.DiscoveryServer] != "https://192.0.2.1:10270" {
		t.Errorf("hubs are told %v", hint.Data)
	}
	if got := w.status("c1"); got != "Pending=False/Deployed CertsReady=False/NotScheduled Ready=False/NoNode" {
		t.Error(got)
	}
}
