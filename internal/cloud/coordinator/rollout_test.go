package coordinator

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"yurtcoordinator/apis/apps/v1alpha1"
	"yurtcoordinator/apis/apps/v1beta1"
	"yurtcoordinator/internal/edge"
)

// fleet makes pools that have coordinators, and brings a new controller of a release.
func (w *world) fleet(pools ...string) {
	w.t.Helper()
	for _, pool := range pools {
		w.pool(pool, 3)
		w.coordinator("c-"+pool, pool)
	}
	w.turns(9)
	for _, pool := range pools {
		if got := w.status("c-" + pool); got != allReady+pool+"-n1" {
			w.t.Fatalf("%s: %s", pool, got)
		}
	}
}

// upgrade has a newer controller take over.
func (w *world) upgrade(release string) {
	w.release = release
	w.restart()
}

// pullers are the Pods that pull, as "p1-n2 v0.2.1-k1.0.0".
func (w *world) pullers() (all []string) {
	w.t.Helper()
	var pods corev1.PodList
	w.list(&pods)
	for _, p := range pods.Items {
		if p.Labels[edge.LabelApp] == appPull {
			all = append(all, p.Spec.NodeName+" "+tagOf(imageOf(&p)))
		}
	}
	slices.Sort(all)
	return all
}

// pulled has all Pods that pull come to an end.
func (w *world) pulled(is corev1.ContainerState) {
	w.t.Helper()
	var pods corev1.PodList
	w.list(&pods)
	for i := range pods.Items {
		if p := &pods.Items[i]; p.Labels[edge.LabelApp] == appPull {
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: containerName, State: is}}
			w.updateStatus(p)
		}
	}
}

func ended() corev1.ContainerState {
	return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		Reason: "Completed", StartedAt: metav1.NewTime(start),
	}}
}

// marked are the nodes that are to run a coordinator next, as "p1-n2 0".
func (w *world) marked() (all []string) {
	w.t.Helper()
	var nodes corev1.NodeList
	w.list(&nodes)
	for _, n := range nodes.Items {
		if slot, is := n.Labels[edge.LabelCoordinatorNode]; is {
			all = append(all, n.Name+" "+slot)
		}
	}
	return all
}

func (w *world) expect(what string, got, want []string) {
	w.t.Helper()
	if !slices.Equal(got, want) {
		w.t.Fatalf("%s: %v, want %v", what, got, want)
	}
}

// settings makes a PoolSettings about one pool.
func (w *world) settingsOf(pool string, change func(*v1alpha1.CoordinatorSettings)) {
	w.t.Helper()
	w.says("of-"+pool, func(s *v1alpha1.PoolSettingsSpec) {
		s.NodePoolSelector, s.Pools, s.Priority = nil, []string{pool}, 1
		change(&s.Coordinator)
	})
}

// TestACanaryStopsARollout that breaks it, and the others are not touched; mended, all follow one after another, each with its
// image there before. What is pinned stays. The controller is started anew at each step.
func TestACanaryStopsARollout(t *testing.T) {
	w := newWorld(t)
	w.rollout = Rollout{Settle: 6 * time.Second, PullTimeout: time.Minute}
	w.restart()
	w.fleet("p1", "p2", "p3", "p4")
	w.settingsOf("p2", func(s *v1alpha1.CoordinatorSettings) { s.Canary = ptr.To(true) })
	w.settingsOf("p4", func(s *v1alpha1.CoordinatorSettings) { s.Release = "v0.2.0-k1.0.0" })
	w.turns(6)
	w.expect("settings alone", w.replaces(), nil)

	w.crashes["p2"] = true
	w.upgrade("v0.2.1")
	for range 3 {
		w.turns(2)
		w.expect("the image comes", w.pullers(), []string{"p2-n2 v0.2.1-k1.0.0"})
		w.expect("before anything is changed", w.replaces(), nil)
		w.restart()
	}
	if got := w.condition("c-p2", v1alpha1.YurtCoordinatorReconciling); got != "True/"+ReasonPulling {
		t.Errorf("meanwhile: %s", got)
	}
	if got := w.condition("c-p1", v1alpha1.YurtCoordinatorReconciling); got != "True/"+ReasonWaitsItsTurn {
		t.Errorf("the others: %s", got)
	}
	w.pulled(ended())
	w.turns(1)
	w.expect("the node that is to run it", w.marked(), []string{"p2-n2 0"})
	w.expect("the canary", w.replaces(), []string{"p2"})
	for range 2 {
		w.turns(8)
		w.restart()
	}
	w.turns(2)
	w.expect("the others", w.replaces(), nil)
	w.expect("nothing is pulled for them", w.pullers(), []string{"p2-n2 v0.2.1-k1.0.0"})
	message := w.message("c-p2", v1alpha1.YurtCoordinatorStalled)
	if got := w.condition("c-p2", v1alpha1.YurtCoordinatorStalled); got != "True/"+ReasonRolloutStopped ||
		!strings.Contains(message, "CrashLoopBackOff") || !strings.Contains(message, "docs/upgrades.md") {
		t.Errorf("it says %s: %s", got, message)
	}
	said := 0
	for _, e := range w.events {
		if strings.HasPrefix(e, "Warning "+ReasonRolloutStopped) {
			said++
		}
	}
	if said != 1 {
		t.Errorf("%d Events say so: %v", said, w.events)
	}
	w.measure("coordinator_rollout_stopped", `{pool="p2"} 1`)
	for _, pool := range []string{"p1", "p3", "p4"} {
		if got := w.status("c-" + pool); got != allReady+pool+"-n1" {
			t.Errorf("%s: %s", pool, got)
		}
	}

	w.crashes["p2"] = false
	w.upgrade("v0.2.2")
	w.turns(2)
	w.expect("the cure comes at once", w.replaces(), []string{"p2"})
	w.turns(3)
	w.expect("it has to settle", w.pullers(), nil)
	w.turns(4)
	for _, pool := range []string{"p1", "p3"} {
		w.turns(4)
		w.expect("the image comes", w.pullers(), []string{pool + "-n2 v0.2.2-k1.0.0"})
		w.pulled(ended())
		w.restart()
		w.turns(2)
		w.expect("one after another", w.replaces(), []string{pool})
		w.turns(2)
		w.expect("it has to settle", w.replaces(), nil)
		w.turns(6)
	}
	w.turns(8)
	w.expect("what is pinned", w.replaces(), nil)
	w.expect("nothing is left", w.pullers(), nil)
	for _, pool := range []string{"p1", "p2", "p3", "p4"} {
		if got := w.condition("c-"+pool, v1alpha1.YurtCoordinatorReconciling); got != "False/"+ReasonUpToDate {
			t.Errorf("%s: %s", pool, got)
		}
		if got := w.condition("c-"+pool, v1alpha1.YurtCoordinatorStalled); got != "False/"+ReasonNotStalled {
			t.Errorf("%s: %s", pool, got)
		}
	}
	w.measure("coordinator_rollout_stopped", "")
}

// TestANodeThatDoesNotPull keeps its coordinator as it is, and says so; the pull is tried again, and where nobody waits for it
// no more it ends.
func TestANodeThatDoesNotPull(t *testing.T) {
	w := newWorld(t)
	w.rollout = Rollout{PullTimeout: time.Minute}
	w.restart()
	w.fleet("p1", "p2")
	w.upgrade("v0.2.1")
	w.turns(1)
	w.expect("the image comes", w.pullers(), []string{"p1-n2 v0.2.1-k1.0.0"})
	var first corev1.Pod
	w.get(edge.NamespaceSystem, "yurt-coordinator-pull-p1-n2", &first)
	w.pulled(corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "no such host"}})
	w.turns(3)
	if got := w.message("c-p1", v1alpha1.YurtCoordinatorStalled); !strings.Contains(got, "node p1-n2 does not get the image") ||
		!strings.Contains(got, "no such host") {
		t.Errorf("while it is tried: %s", got)
	}
	first = corev1.Pod{}
	w.get(edge.NamespaceSystem, "yurt-coordinator-pull-p1-n2", &first)
	first.Status.Phase, first.Status.Reason, first.Status.ContainerStatuses = corev1.PodFailed, "DeadlineExceeded", nil
	w.updateStatus(&first)
	w.turns(3)
	if got := w.condition("c-p1", v1alpha1.YurtCoordinatorReconciling); got != "True/"+ReasonNotPulled {
		t.Errorf("it has failed: %s", got)
	}
	w.expect("nothing is changed", w.replaces(), nil)
	w.turns(45)
	var second corev1.Pod
	if !w.get(edge.NamespaceSystem, first.Name, &second) || second.UID == first.UID {
		t.Errorf("it is not tried again")
	}
	w.settingsOf("p1", func(s *v1alpha1.CoordinatorSettings) { s.Paused = ptr.To(true) })
	w.turns(2)
	w.expect("paused, it is not waited for", w.pullers(), []string{"p1-n2 v0.2.1-k1.0.0", "p2-n2 v0.2.1-k1.0.0"})
	w.upgrade("v0.2.0")
	w.turns(3)
	w.expect("nobody wants it any more", w.pullers(), nil)
	w.expect("and nothing was changed", w.replaces(), nil)
}

// TestAPinKeepsWhatItHad: another program makes something else of the same order, and a pool that is pinned keeps what it had.
// What its settings say reaches it.
func TestAPinKeepsWhatItHad(t *testing.T) {
	w := newWorld(t)
	w.fleet("p1", "p2")
	w.settingsOf("p2", func(s *v1alpha1.CoordinatorSettings) { s.Release = "v0.2.0-k1.0.0" })
	w.turns(3)
	var app v1beta1.YurtAppSet
	w.get(edge.NamespaceSystem, edge.AppCoordinator, &app)
	now := shipped(&app)["p2"]
	// What an earlier program would have made: it is as well as now.
	const grace = `"terminationGracePeriodSeconds":`
	before := shipment{strings.Replace(now.spec, grace+"10", grace+"9", 1), "0"}
	was, err := appSet(w.r.cfg, 0, map[edge.PoolName]shipment{"p1": before, "p2": before})
	if err != nil || before.spec == now.spec {
		t.Fatal(err, before.spec)
	}
	app.Spec = was.Spec
	app.Annotations[annotationCasts] = strings.ReplaceAll(app.Annotations[annotationCasts], now.mark, "0")
	w.update(&app)
	w.expect("it was so", w.replaces(), []string{"p1", "p2"})
	w.passes()
	w.turns(4)
	w.restart()
	w.turns(4)
	w.expect("what is not pinned", w.replaces(), []string{"p1"})
	w.turns(9)
	w.expect("what is pinned", w.replaces(), nil)
	w.settingsOf("p2", func(s *v1alpha1.CoordinatorSettings) { s.Verbosity = ptr.To[int32](2) })
	w.turns(4)
	w.expect("another order", w.replaces(), []string{"p2"})
	w.turns(4)
	w.get(edge.NamespaceSystem, edge.AppCoordinator, &app)
	if got := shipped(&app)["p2"]; !strings.Contains(got.spec, grace+"10") {
		t.Errorf("it has %s", got.spec)
	}
	if known := castsOf(&app); len(known) != 2 {
		t.Errorf("what no pool has is kept: %v", known)
	}
}

// TestAPoolThatGoes in the midst of a change is not waited for.
func TestAPoolThatGoes(t *testing.T) {
	for name, goes := range map[string]func(*world){
		"deleted": func(w *world) {
			c := &v1alpha1.YurtCoordinator{}
			w.get("", "c-p1", c)
			w.delete(c)
		},
		"paused": func(w *world) {
			w.settingsOf("p1", func(s *v1alpha1.CoordinatorSettings) { s.Canary, s.Paused = ptr.To(true), ptr.To(true) })
		},
		"cut off": func(w *world) {
			for i := 1; i <= 3; i++ {
				var n corev1.Node
				w.get("", fmt.Sprintf("p1-n%d", i), &n)
				n.Status.Conditions[0].Status = corev1.ConditionUnknown
				w.updateStatus(&n)
			}
		},
		"no canary any more": func(w *world) {
			w.settingsOf("p1", func(s *v1alpha1.CoordinatorSettings) { s.Canary, s.Paused = nil, ptr.To(true) })
		},
	} {
		w := newWorld(t)
		w.fleet("p1", "p2")
		w.settingsOf("p1", func(s *v1alpha1.CoordinatorSettings) { s.Canary = ptr.To(true) })
		w.turns(3)
		w.crashes["p1"] = true
		w.upgrade("v0.2.1")
		w.turns(2)
		w.expect(name+": the canary", w.replaces(), []string{"p1"})
		w.turns(3)
		w.expect(name+": the other", w.replaces(), nil)
		goes(w)
		w.turns(4)
		w.expect(name+": goes on", w.replaces(), []string{"p2"})
	}
}

// TestWhereACoordinatorRunsNext: elsewhere if it can, where its settings prefer it, and not where another slot's is.
func TestWhereACoordinatorRunsNext(t *testing.T) {
	node := func(name string, changes ...func(*corev1.Node)) corev1.Node {
		n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}}, Status: corev1.NodeStatus{
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		}}
		for _, change := range changes {
			change(&n)
		}
		return n
	}
	label := func(key, value string) func(*corev1.Node) { return func(n *corev1.Node) { n.Labels[key] = value } }
	taint := func(key string) func(*corev1.Node) {
		return func(n *corev1.Node) {
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: key, Effect: corev1.TaintEffectNoSchedule})
		}
	}
	silent := func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown }
	for name, c := range map[string]struct {
		nodes    []corev1.Node
		settings v1alpha1.CoordinatorSettings
		taints   []corev1.Taint
		standby  string // where slot 1's is
		want     string
	}{
		"another":       {nodes: []corev1.Node{node("a"), node("b"), node("c")}, want: "b c"},
		"no other":      {nodes: []corev1.Node{node("a")}, want: "a"},
		"not a standby": {nodes: []corev1.Node{node("a"), node("b"), node("c")}, standby: "b", want: "c"},
		"its own, where the only other has a standby": {nodes: []corev1.Node{node("a"), node("b")}, standby: "b", want: "a"},
		"not one that is silent":                      {nodes: []corev1.Node{node("a"), node("b", silent), node("c")}, want: "c"},
		"not one whose link is down": {
			nodes: []corev1.Node{node("a"), node("b", taint(edge.TaintUnschedulable)), node("c")}, want: "c",
		},
		"where it is preferred": {
			nodes:    []corev1.Node{node("a"), node("b"), node("c"), node("d")},
			settings: v1alpha1.CoordinatorSettings{PreferredNodes: []string{"d", "c"}}, want: "d c b",
		},
		"what is preferred comes before the label": {
			nodes:    []corev1.Node{node("a"), node("b", label(edge.LabelCoordinatorNode, "0")), node("c")},
			settings: v1alpha1.CoordinatorSettings{PreferredNodes: []string{"c"}}, want: "c b",
		},
		"where it was to run before": {
			nodes: []corev1.Node{node("a"), node("b"), node("c", label(edge.LabelCoordinatorNode, "0"))}, want: "c b",
		},
		"not where a standby was to run": {
			nodes: []corev1.Node{node("a"), node("b"), node("c", label(edge.LabelCoordinatorNode, "1"))}, want: "b c",
		},
		"only where it may": {
			nodes:    []corev1.Node{node("a"), node("b"), node("c", label("ups", "yes"))},
			settings: v1alpha1.CoordinatorSettings{NodeSelector: map[string]string{"ups": "yes"}}, want: "c",
		},
		"nowhere": {
			nodes:    []corev1.Node{node("a"), node("b")},
			settings: v1alpha1.CoordinatorSettings{NodeSelector: map[string]string{"ups": "yes"}}, want: "",
		},
		"not where it is not tolerated": {nodes: []corev1.Node{node("a"), node("b", taint("gpu")), node("c")}, want: "c"},
		"where its pool's taint is": {
			nodes:  []corev1.Node{node("a", taint("edge")), node("b", taint("edge"))},
			taints: []corev1.Taint{{Key: "edge", Effect: corev1.TaintEffectNoSchedule}}, want: "b",
		},
	} {
		spec := podSpec(Config{Image: image, Release: "v0.2.0"}.completed(), Wanted{Settings: c.settings, Taints: c.taints})
		v := view{nodes: c.nodes}
		if c.standby != "" {
			v.crew.current[1] = &corev1.Pod{Spec: corev1.PodSpec{NodeName: c.standby}}
		}
		if got := strings.Join(placesFor(&spec, v, 0, "a"), " "); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

func TestPulled(t *testing.T) {
	pod := func(phase corev1.PodPhase, reason string, state corev1.ContainerState) *corev1.Pod {
		return &corev1.Pod{Status: corev1.PodStatus{
			Phase: phase, Reason: reason, ContainerStatuses: []corev1.ContainerStatus{{State: state}},
		}}
	}
	waits := func(reason string) corev1.ContainerState {
		return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: strings.Repeat("m", 1000)}}
	}
	ends := func(reason string, ran bool) corev1.ContainerState {
		is := &corev1.ContainerStateTerminated{Reason: reason, ExitCode: 2, Message: "exec format error"}
		if ran {
			is.StartedAt = metav1.NewTime(start)
		}
		return corev1.ContainerState{Terminated: is}
	}
	for name, c := range map[string]struct {
		pod  *corev1.Pod
		want comingState
		why  string
	}{
		"it has no container yet": {&corev1.Pod{}, pulling, ""},
		"its container is made":   {pod(corev1.PodPending, "", waits("ContainerCreating")), pulling, ""},
		"there is no such image":  {pod(corev1.PodPending, "", waits("ErrImagePull")), pulling, "ErrImagePull: mmm"},
		"it has ended":            {pod(corev1.PodSucceeded, "", ends("Completed", true)), ready, ""},
		"the program does not know the flag": {
			pod(corev1.PodFailed, "", ends("Error", true)), ready, "",
		},
		"of another architecture": {pod(corev1.PodFailed, "", ends("StartError", true)), failed, "exec format error"},
		"it took too long":        {pod(corev1.PodFailed, "DeadlineExceeded", waits("ErrImagePull")), failed, "longer"},
		"kubelet does not know it any more": {
			pod(corev1.PodFailed, "DeadlineExceeded", ends("ContainerStatusUnknown", false)), failed, "longer",
		},
	} {
		got, why := pulled(c.pod)
		if got != c.want || !strings.Contains(why, c.why) || c.why == "" && why != "" || len(why) > 400 {
			t.Errorf("%s: %d, %q", name, got, why)
		}
	}
}

// TestWhoMakesPullers: what a node makes by itself is none, whatever its labels.
func TestWhoMakesPullers(t *testing.T) {
	c := Config{Image: image, PullSecrets: []string{"pull"}, Rollout: Rollout{PullTimeout: 90 * time.Second}}
	to := coming{node: "n2", image: image + ":v1"}
	p := c.puller(owner{"c1", "u1"}, "p1", 1, to)
	if !isPuller(p) || !pulls(p, 1, to.image) || pulls(p, 0, to.image) || pulls(p, 1, image+":v2") {
		t.Errorf("%+v", p.ObjectMeta)
	}
	if s := p.Spec; s.NodeName != "n2" || *s.ActiveDeadlineSeconds != 90 || len(s.Volumes) > 0 ||
		s.ImagePullSecrets[0].Name != "pull" || s.HostNetwork ||
		*s.AutomountServiceAccountToken || len(s.Containers[0].Ports) > 0 {
		t.Errorf("%+v", s)
	}
	p.OwnerReferences[0].Kind, p.OwnerReferences[0].APIVersion = "Node", "v1"
	if isPuller(p) {
		t.Error("a mirror Pod is taken for one")
	}
	if name := pullerName(edge.NodeName(strings.Repeat("n", 253))); len(name) > 253 || !strings.HasPrefix(name, prefixPull) {
		t.Errorf("a name of %d", len(name))
	}
}

func TestCasts(t *testing.T) {
	had, made := shipment{"a", "1"}, shipment{"b", "2"}
	known := casts{{"x", "1"}: true}
	for _, c := range []struct {
		pinned bool
		order  order
		want   shipment
	}{{true, "x", had}, {true, "y", made}, {false, "x", made}} {
		if got := known.keeps(c.pinned, had, c.order, made); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
	after := known.after([]decided{
		{turn: turn{order: "x", made: made}, gives: had},  // it waits its turn, or is pinned
		{turn: turn{order: "y", made: made}, gives: made}, // it is given what was made
		{turn: turn{order: "z", made: made}, gives: had},  // of which nobody knows for what it was made
		{turn: turn{order: "w", made: made}, none: true},  // it gets nothing yet
	})
	if got := after.String(); got != "x:1 y:2" {
		t.Errorf("%s", got)
	}
	app := &v1beta1.YurtAppSet{}
	app.Annotations = map[string]string{annotationCasts: after.String() + " nonsense"}
	if got := castsOf(app).String(); got != "x:1 y:2" {
		t.Errorf("read again: %s", got)
	}
	orders := map[order]string{}
	c := Config{Image: image}
	for name, w := range map[string]Wanted{
		"one": {Image: "i"}, "an image": {Image: "j"}, "a taint": {Image: "i", Taints: tainted},
		"a setting": {Image: "i", Settings: v1alpha1.CoordinatorSettings{Verbosity: ptr.To[int32](1)}},
	} {
		o, err := orderOf(c, w)
		if err != nil || orders[o] != "" {
			t.Errorf("%s is ordered as %s (%v)", name, orders[o], err)
		}
		orders[o] = name
		w.Settings.Release, w.Settings.Replicas = "r", ptr.To[int32](2)
		w.Settings.Paused, w.Settings.Canary = ptr.To(true), ptr.To(true)
		if again, err := orderOf(c, w); err != nil || again != o {
			t.Errorf("%s is another order when it is paused (%v)", name, err)
		}
	}
	c.PullSecrets = []string{"s"}
	if o, err := orderOf(c, Wanted{Image: "i"}); err != nil || orders[o] != "" {
		t.Errorf("a Secret to pull with is no other order (%v)", err)
	}
}
