package coordinator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yurtcoordinator/apis/apps/v1alpha1"
	"yurtcoordinator/apis/apps/v1beta1"
	"yurtcoordinator/apis/apps/v1beta2"
	"yurtcoordinator/internal/cloud/cloudtest"
	"yurtcoordinator/internal/edge"
)

func TestRollout(t *testing.T) {
	for most, can := range map[string]bool{
		"": true, "10%": true, "0": false, "25": true, "100%": true, "-1": false, "0%": false, "101%": false, "ten": false,
	} {
		if err := CheckRollout(Rollout{MaxUnavailable: most}); (err == nil) != can {
			t.Errorf("%q: %v", most, err)
		}
	}
	if CheckRollout(Rollout{Settle: -1}) == nil || CheckRollout(Rollout{PullTimeout: -1}) == nil {
		t.Error("a time that is less than none is taken")
	}
	is := Rollout{PullTimeout: 90 * time.Second, Settle: 30 * time.Second}.completed()
	if s := is.spec(); s.MaxUnavailable.StrVal != "10%" || *s.PrePull.TimeoutSeconds != 90 || s.Group != edge.AppCoordinator {
		t.Errorf("%+v", s)
	}
	if (Rollout{}).completed().spec().PrePull != nil {
		t.Error("it pulls for no time")
	}
	var d appsv1.DeploymentSpec
	if is.paces(&d); d.MinReadySeconds != 30 || *d.ProgressDeadlineSeconds != 150 {
		t.Errorf("%+v", d)
	}
}

func TestProgress(t *testing.T) {
	pod := func(digest string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{annotationDigest: digest}}}
	}
	for want, c := range map[string]struct {
		pod *corev1.Pod
		bad error
	}{
		ReasonUpToDate: {pod("d"), nil}, ReasonRollingOut: {pod("e"), nil}, ReasonReplacing: {nil, nil},
		ReasonBadSettings: {pod("e"), errors.New("too much")},
	} {
		if f := progress(1, c.pod, "d", c.bad); f.Reason != want || f.OK != (want != ReasonUpToDate) {
			t.Errorf("%+v, want %s", f, want)
		}
	}
}

// TestSettingsReachThePods: their digest is on the NodePool, its tweak in the YurtAppSet before, and the status says how far the
// Pod is. A pool whose settings can't be used keeps what it has.
func TestSettingsReachThePods(t *testing.T) {
	w := newWorld(t)
	for _, pool := range []string{"p1", "p2"} {
		w.pool(pool, 3)
		w.coordinator("c-"+pool, pool)
	}
	w.turns(9)
	digests := func() (all []string) {
		for _, pool := range []string{"p1", "p2"} {
			var p v1beta2.NodePool
			w.get("", pool, &p)
			all = append(all, p.Labels[edge.LabelCoordinatorSettings])
		}
		return all
	}
	tweaks := func() int {
		var app v1beta1.YurtAppSet
		w.get(edge.NamespaceSystem, edge.AppCoordinator, &app)
		return len(app.Spec.Workload.WorkloadTweaks) - 1
	}
	was := digests()
	if was[0] == "" || was[0] != was[1] || tweaks() != 1 {
		t.Fatalf("%v, %d tweaks", was, tweaks())
	}
	w.says("one", func(s *v1alpha1.PoolSettingsSpec) {
		s.NodePoolSelector, s.Pools, s.Coordinator.Verbosity = nil, []string{"p1"}, ptr.To[int32](2)
	})
	w.turns(1)
	if is := digests(); !slices.Equal(is, was) || tweaks() != 2 {
		t.Fatalf("the labels come with the tweak: %v, %d tweaks", is, tweaks())
	}
	w.turns(3)
	if is := digests(); is[0] == was[0] || is[1] != was[1] {
		t.Fatalf("%v, were %v", is, was)
	}
	if got := w.condition("c-p1", v1alpha1.YurtCoordinatorReconciling); got != "True/"+ReasonRollingOut ||
		!strings.Contains(w.status("c-p1"), "Ready=True/Serving") {
		t.Errorf("%s, %s", got, w.status("c-p1"))
	}
	if got := w.condition("c-p2", v1alpha1.YurtCoordinatorReconciling); got != "False/"+ReasonUpToDate {
		t.Errorf("the other: %s", got)
	}
	w.delete(&w.podsIn(0)[0]) // as its Deployment does
	w.turns(5)
	w.complete("c-p1", "p1", "p1-n1", "192.0.2.1")
	var c v1alpha1.YurtCoordinator
	w.get("", "c-p1", &c)
	if got := w.condition("c-p1", v1alpha1.YurtCoordinatorReconciling); got != "False/"+ReasonUpToDate ||
		len(c.Status.Settings) != 1 || c.Status.Settings[0] != (v1alpha1.SettingsGeneration{Name: "one", Generation: 1}) {
		t.Errorf("%s, %+v", got, c.Status.Settings)
	}
	before := digests()
	w.says("one", func(s *v1alpha1.PoolSettingsSpec) { s.Coordinator.OwnQuota = quantity("1Gi") })
	w.turns(5)
	if got := w.condition("c-p1", v1alpha1.YurtCoordinatorStalled); got != "True/"+ReasonBadSettings ||
		!strings.Contains(w.message("c-p1", v1alpha1.YurtCoordinatorStalled), "ownQuota") {
		t.Errorf("settings that can't be: %s, %s", got, w.message("c-p1", v1alpha1.YurtCoordinatorStalled))
	}
	if is := digests(); !slices.Equal(is, before) || tweaks() != 2 {
		t.Errorf("settings that can't be: %v, were %v, %d tweaks", is, before, tweaks())
	}
	if !slices.ContainsFunc(w.events, func(e string) bool { return strings.HasPrefix(e, "Warning BadSettings") }) {
		t.Errorf("no Event says so: %v", w.events)
	}
	w.says("one", func(s *v1alpha1.PoolSettingsSpec) { s.Coordinator = v1alpha1.CoordinatorSettings{} })
	w.turns(5)
	if is := digests(); !slices.Equal(is, was) {
		t.Errorf("back: %v, were %v", is, was)
	}
	w.says("one", func(s *v1alpha1.PoolSettingsSpec) { s.Priority = 1 })
	w.turns(2)
	if tweaks() != 1 {
		t.Errorf("%d tweaks are left", tweaks())
	}
}

// TestPreferredNodes have the label, with their ranks, and no others. It goes with the YurtCoordinator.
func TestPreferredNodes(t *testing.T) {
	w := newWorld(t)
	w.pool("p1", 3)
	w.coordinator("c1", "p1")
	marked := func() (all []string) {
		var nodes corev1.NodeList
		w.list(&nodes)
		for _, n := range nodes.Items {
			if rank, is := n.Labels[edge.LabelCoordinatorNode]; is {
				all = append(all, n.Name+" "+rank)
			}
		}
		return all
	}
	for _, c := range []struct{ prefers, want []string }{
		{[]string{"p1-n3", "elsewhere", "p1-n1"}, []string{"p1-n1 2", "p1-n3 0"}}, {[]string{"p1-n1"}, []string{"p1-n1 0"}}, {nil,
			nil},
		{[]string{"p1-n2"}, []string{"p1-n2 0"}},
	} {
		w.says("all", func(s *v1alpha1.PoolSettingsSpec) { s.Coordinator.PreferredNodes = c.prefers })
		w.turns(4)
		if got := marked(); !slices.Equal(got, c.want) {
			t.Errorf("%v are preferred: %v, want %v", c.prefers, got, c.want)
		}
	}
	w.turns(5)
	var c v1alpha1.YurtCoordinator
	w.get("", "c1", &c)
	w.delete(&c)
	w.turns(5)
	if got := marked(); len(got) > 0 {
		t.Errorf("left: %v", got)
	}
}

// TestALabelThatSomebodyTakesAway from a NodePool comes back, though the pool has become too small for a new coordinator.
func TestALabelThatSomebodyTakesAway(t *testing.T) {
	w := newWorld(t)
	w.pool("p1", 3)
	w.coordinator("c1", "p1")
	w.turns(8)
	w.delete(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "p1-n3"}})
	var p v1beta2.NodePool
	w.get("", "p1", &p)
	had := p.Labels
	p.Labels = nil
	w.update(&p)
	w.turns(3)
	if w.get("", "p1", &p); p.Labels[edge.LabelCoordinators] != "1" || len(p.Labels) != len(had) {
		t.Errorf("it has %v, had %v", p.Labels, had)
	}
}

// TestAYurtAppSetWithoutRollout is not changed: its CRD is another one, and a change would reach all pools at once.
func TestAYurtAppSetWithoutRollout(t *testing.T) {
	w := newWorld(t)
	w.pool("p1", 3)
	w.coordinator("c1", "p1")
	w.turns(7)
	var app v1beta1.YurtAppSet
	w.get(edge.NamespaceSystem, edge.AppCoordinator, &app)
	app.Spec.Rollout = nil
	w.update(&app)
	w.says("all", func(s *v1alpha1.PoolSettingsSpec) { s.Coordinator.Verbosity = ptr.To[int32](2) })
	if err := w.round(); err == nil || !strings.Contains(err.Error(), "docs/from-openyurt.md") {
		t.Errorf("%v", err)
	}
	var is v1beta1.YurtAppSet
	if w.get(edge.NamespaceSystem, edge.AppCoordinator, &is); toJSON(is.Spec) != toJSON(app.Spec) {
		t.Errorf("it is %s", toJSON(is.Spec))
	}
}

// TestAnUnknownArgument reaches as many pools as may be under way, with the controllers of YurtAppSets and of YurtCoordinators on
// a real API server. Corrected, it reaches all.
func TestAnUnknownArgument(t *testing.T) {
	k := newCluster(t)
	const all = 4
	for i := range all {
		name := fmt.Sprintf("unknown%d", i)
		k.makePool(name, 2)
		for n := 1; n <= 2; n++ {
			var node corev1.Node
			k.is("", fmt.Sprintf("%s-n%d", name, n), &node)
			node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
			k.must(k.c.Status().Update(t.Context(), &node))
			node.Spec.Taints = nil // a new Node has one
			k.must(k.c.Update(t.Context(), &node))
		}
	}
	settings := &v1alpha1.PoolSettings{ObjectMeta: metav1.ObjectMeta{Name: "unknown"}, Spec: v1alpha1.PoolSettingsSpec{
		NodePoolSelector: &metav1.LabelSelector{},
		Coordinator:      v1alpha1.CoordinatorSettings{MinNodes: ptr.To[int32](2)},
	}}
	k.must(k.c.Create(t.Context(), settings))
	t.Cleanup(func() { _ = client.IgnoreNotFound(k.c.Delete(context.Background(), settings)) })
	deployments := func() (found []appsv1.Deployment) {
		list := &appsv1.DeploymentList{}
		k.must(k.c.List(t.Context(), list, client.InNamespace(edge.NamespaceSystem)))
		for _, d := range list.Items {
			if strings.HasPrefix(d.Labels[edge.LabelWorkloadPool], "unknown") {
				found = append(found, d)
			}
		}
		return found
	}
	args := func(d *appsv1.Deployment) string { return strings.Join(d.Spec.Template.Spec.Containers[0].Args, " ") }
	// serves has Kubernetes say that the newest Pods are available, except those of arguments that the program does not know.
	serves := func() {
		for _, d := range deployments() {
			done := appsv1.DeploymentCondition{Type: appsv1.DeploymentProgressing, Status: corev1.ConditionTrue,
				Reason: "NewReplicaSetAvailable"}
			is := appsv1.DeploymentStatus{
				ObservedGeneration: d.Generation, Replicas: 1, ReadyReplicas: 1, AvailableReplicas: 1, UpdatedReplicas: 1,
			}
			if strings.Contains(args(&d), "--unknown") {
				is.ReadyReplicas, is.AvailableReplicas = 0, 0
				done.Status, done.Reason = corev1.ConditionFalse, "ProgressDeadlineExceeded"
				d.Annotations["deployment.kubernetes.io/revision"] = "2"
			}
			is.Conditions = []appsv1.DeploymentCondition{done}
			if equality.Semantic.DeepEqual(d.Status, is) {
				continue
			}
			d.Status = is
			k.must(client.IgnoreNotFound(k.c.Status().Update(t.Context(), &d)))
		}
	}
	having := func(text string) (pools []string) {
		for _, d := range deployments() {
			if strings.Contains(args(&d), text) {
				pools = append(pools, d.Name)
			}
		}
		return pools
	}
	cloudtest.Eventually(t, "all are there", func() error {
		if n := len(deployments()); n != all {
			return fmt.Errorf("%d Deployments", n)
		}
		return nil
	})
	serves()
	change := func(arg string) {
		t.Helper()
		cloudtest.Eventually(t, "a change", func() error {
			k.is("", settings.Name, settings)
			settings.Spec.Coordinator.ExtraArgs = []string{arg}
			return k.c.Update(t.Context(), settings)
		})
	}
	change("--unknown=1")
	cloudtest.Eventually(t, "one gets it", func() error {
		if len(having("--unknown")) == 0 {
			return errors.New("none has it")
		}
		return nil
	})
	until := time.Now().Add(3 * time.Second)
	cloudtest.Eventually(t, "it reaches no other", func() error {
		serves()
		if has := having("--unknown"); len(has) != 1 {
			t.Fatalf("it has reached %v: a tenth of %s is one", has, strconv.Itoa(all))
		}
		if time.Now().Before(until) {
			return errors.New("more may happen")
		}
		return nil
	})
	change("--min-request-timeout=300")
	cloudtest.Eventually(t, "all get what is corrected", func() error {
		serves()
		if n := len(having("--min-request-timeout=300")); n != all || len(having("--unknown")) > 0 {
			return fmt.Errorf("%d of %d have it", n, all)
		}
		return nil
	})
}

// TestTheFleetGoesByWhatItHasRead: what it writes is refused if the YurtAppSet has changed since.
func TestTheFleetGoesByWhatItHasRead(t *testing.T) {
	w := newWorld(t)
	w.pool("p1", 3)
	w.coordinator("c1", "p1")
	w.turns(7)
	var app v1beta1.YurtAppSet
	w.get(edge.NamespaceSystem, edge.AppCoordinator, &app)
	if app.ResourceVersion == "" {
		t.Fatal("this world has no resourceVersions")
	}
	w.says("all", func(s *v1alpha1.PoolSettingsSpec) { s.Coordinator.Verbosity = ptr.To[int32](2) })
	w.turns(1)
	if given := w.applies[len(w.applies)-1]; given != app.ResourceVersion {
		t.Errorf("it wrote over revision %q, and has read %s", given, app.ResourceVersion)
	}
}

// TestAWebhookRewritesTheYurtAppSet, as one that puts a mirror in the place of a registry does: it costs nothing after the first
// time. What a person changes is put right, once for each change.
func TestAWebhookRewritesTheYurtAppSet(t *testing.T) {
	w := newWorld(t)
	w.webhook = func(app *v1beta1.YurtAppSet) {
		spec := &app.Spec.Workload.WorkloadTemplate.DeploymentTemplate.Spec.Template.Spec
		for i := range spec.Containers {
			spec.Containers[i].Image = strings.Replace(spec.Containers[i].Image, "registry.example", "mirror.example", 1)
		}
		spec.SchedulerName = "default-scheduler"
	}
	w.pool("p1", 3)
	w.coordinator("c1", "p1")
	w.turns(7)
	if is := w.status("c1"); is != allReady+"p1-n1" {
		t.Fatalf("it is %s", is)
	}
	applies := func(n int, when string) {
		t.Helper()
		w.applies = nil
		if w.turns(10); len(w.applies) != n {
			t.Errorf("%s: the YurtAppSet is applied %d times, want %d", when, len(w.applies), n)
		}
	}
	applies(0, "at rest")
	w.restart()
	applies(1, "after a start")
	var app v1beta1.YurtAppSet
	w.get(edge.NamespaceSystem, edge.AppCoordinator, &app)
	app.Spec.Rollout.MaxUnavailable, app.Generation = ptr.To(intstr.FromString("100%")), app.Generation+1
	w.update(&app)
	applies(1, "a person changes it")
	w.get(edge.NamespaceSystem, edge.AppCoordinator, &app)
	if most := app.Spec.Rollout.MaxUnavailable.String(); most != DefaultMaxUnavailable {
		t.Errorf("%s may be under way", most)
	}
	w.delete(&app)
	applies(1, "it is deleted")
	w.says("all", func(s *v1alpha1.PoolSettingsSpec) { s.Coordinator.Verbosity = ptr.To[int32](2) })
	w.turns(4)
	applies(0, "other settings")
	w.get(edge.NamespaceSystem, edge.AppCoordinator, &app)
	if n := len(app.Spec.Workload.WorkloadTweaks); n != 2 {
		t.Errorf("%d tweaks: the former settings' is to go with the label", n)
	}
}

// TestOthersMayLabelTheConfigMap that says where a coordinator is: it is written no more often for that.
func TestOthersMayLabelTheConfigMap(t *testing.T) {
	w := newWorld(t)
	w.pool("p1", 3)
	w.coordinator("c1", "p1")
	w.turns(7)
	want := &corev1.ConfigMap{}
	w.get(edge.NamespaceSystem, "yurt-coordinator-p1", want)
	have := want.DeepCopy()
	metav1.SetMetaDataLabel(&have.ObjectMeta, "backed-up", "yes")
	w.update(have)
	for _, wrong := range []bool{false, true} {
		if wrong {
			delete(have.Labels, labelManagedBy)
			w.update(have)
		}
		writes := w.writes
		want.ResourceVersion, want.TypeMeta = "", metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}
		if err := w.r.publish(t.Context(), want, 1); err != nil || (w.writes > writes) != wrong {
			t.Errorf("%d writes, %v", w.writes-writes, err)
		}
	}
}
