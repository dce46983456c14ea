package appset

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yurtcoordinator/apis/apps/v1beta1"
	"yurtcoordinator/internal/cloud/cloudtest"
)

func TestTheLifeOfASet(t *testing.T) {
	w := newWorld(t, "life")
	set := w.create(deployments("web", nil)) // in no pool
	w.says(set, dispatched, updated, deleted, isReady)
	a := w.pool("a")
	change(w, set, func(s *v1beta1.YurtAppSet) { s.Spec.NodePoolSelector = w.every() })
	w.runs("web-life-a 2 web:1")
	w.event("WorkloadCreated", "web-life-a for pool life-a")
	w.says(set, poolFound, dispatched, updated, deleted)
	w.outdated("web", 1)
	w.play()
	w.says(set, poolFound, dispatched, updated, deleted, isReady)
	w.outdated("web", 0)
	b := w.pool("b") // a pool comes
	w.runs("web-life-a 2 web:1", "web-life-b 2 web:1")

	change(w, set, func(s *v1beta1.YurtAppSet) {
		s.Spec.Workload.WorkloadTemplate.DeploymentTemplate.Spec.Replicas = ptr.To[int32](3)
		s.Spec.Workload.WorkloadTweaks = tweaks{{Pools: []string{b}, Tweaks: v1beta1.Tweaks{
			Replicas: ptr.To[int32](0), ContainerImages: []v1beta1.ContainerImage{{Name: "web", TargetImage: "web:b"}},
		}}}
	})
	w.runs("web-life-a 3 web:1", "web-life-b 0 web:b")
	w.play()
	s := w.says(set, poolFound, dispatched, updated, deleted, isReady)
	if len(s.Workloads) != 2 || s.Workloads[0] != (v1beta1.WorkloadStatus{
		Pool: a, Name: "web-life-a", Replicas: 3, ReadyReplicas: 3, UpdatedReplicas: 3,
	}) || s.TotalWorkloads != 2 || s.ReadyWorkloads != 2 || s.UpdatedWorkloads != 2 {
		t.Errorf("%+v", s)
	}
	d := w.deployments()[0]
	if owner := metav1.GetControllerOf(&d); owner == nil || owner.UID != set.UID {
		t.Errorf("its owner is %v", owner)
	}
	w.quiet()

	w.must(w.Delete(t.Context(), nodePool(a))) // a pool goes
	w.runs("web-life-b 0 web:b")
	w.event("WorkloadDeleted", "web-life-a")
	w.says(set, poolFound, dispatched, updated, deleted, isReady)
	w.must(w.Delete(t.Context(), set, client.PropagationPolicy(metav1.DeletePropagationOrphan)))
	w.quiet() // the rest is the garbage collector's
	w.outdated("web", -1)
}

func TestWhatSomebodyChangesIsChangedBack(t *testing.T) {
	w := newWorld(t, "back")
	p := w.pool("a")
	set := w.create(deployments("web", nil, p))
	set.Spec.Workload.WorkloadTemplate.DeploymentTemplate.Spec.Replicas = nil
	change(w, set, func(s *v1beta1.YurtAppSet) { s.Spec.Workload.WorkloadTemplate.DeploymentTemplate.Spec.Replicas = nil })
	w.runs("web-back-a 1 web:1")
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "back", Name: "web-back-a"}}
	change(w, d, func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "evil:1" })
	w.runs("web-back-a 1 web:1")
	for what, undo := range map[string]func(*appsv1.Deployment){
		"annotation": func(d *appsv1.Deployment) { delete(d.Annotations, "note") },
		"label":      func(d *appsv1.Deployment) { d.Labels["team"] = "x" },
		"our label":  func(d *appsv1.Deployment) { delete(d.Labels, LabelYurtAppSet) },
	} {
		change(w, d, undo)
		cloudtest.Eventually(t, what, func() error {
			if err := w.Get(t.Context(), client.ObjectKeyFromObject(d), d); err != nil {
				return err
			}
			if d.Annotations["note"] != "n" || d.Labels["team"] != "a" || d.Labels[LabelYurtAppSet] != "web" {
				return fmt.Errorf("it has %v, %v", d.Labels, d.Annotations)
			}
			return nil
		})
	}
	// What is not ours stays: an autoscaler's replicas, somebody's label.
	change(w, d, func(d *appsv1.Deployment) { d.Spec.Replicas, d.Labels["own"] = ptr.To[int32](7), "x" })
	w.says(set, poolFound, dispatched, updated, deleted)
	w.runs("web-back-a 7 web:1")
	w.must(w.Get(t.Context(), client.ObjectKeyFromObject(d), d))
	if d.Labels["own"] != "x" {
		t.Errorf("labels are %v", d.Labels)
	}
}

func TestARestartChangesNothing(t *testing.T) {
	w := newWorld(t, "again")
	a, b := w.pool("a"), w.pool("b")
	set := w.create(deployments("web", nil, a, b))
	w.runs("web-again-a 2 web:1", "web-again-b 2 web:1")
	w.play()
	status := w.says(set, poolFound, dispatched, updated, deleted, isReady)
	before := w.deployments()
	w.stop()
	w.start()
	cloudtest.Eventually(t, "both are applied once more", func() error {
		n := 0
		for _, s := range w.sent.Writes() {
			if strings.HasPrefix(s, "PATCH") {
				n++
			}
		}
		if n < 4 {
			return fmt.Errorf("%d have been", n)
		}
		return nil
	})
	w.quiet()
	for i, d := range w.deployments() {
		if d.ResourceVersion != before[i].ResourceVersion {
			t.Errorf("%s was changed", d.Name)
		}
	}
	if again := w.says(set, poolFound, dispatched, updated, deleted, isReady); again.CurrentRevision != status.CurrentRevision {
		t.Errorf("revision %s is %s now", status.CurrentRevision, again.CurrentRevision)
	}
	w.stop() // in the middle: what changes meanwhile is seen after
	change(w, set, func(s *v1beta1.YurtAppSet) {
		s.Spec.Pools = []string{b}
		s.Spec.Workload.WorkloadTemplate.DeploymentTemplate.Spec.Replicas = ptr.To[int32](5)
	})
	w.start()
	w.runs("web-again-b 5 web:1")
}

func TestAForeignWorkloadIsLeftAlone(t *testing.T) {
	w := newWorld(t, "foreign")
	a, b := w.pool("a"), w.pool("b")
	labels := map[string]string{"app": "other"}
	mine := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "foreign", Name: "web-foreign-a",
			Labels: map[string]string{LabelYurtAppSet: "web"}},
		Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "other:1"}}},
		}},
	}
	w.must(w.Create(t.Context(), mine))
	set := w.create(deployments("web", nil, a, b))
	w.runs("web-foreign-a 1 other:1", "web-foreign-b 2 web:1")
	s := w.says(set, poolFound, deleted)
	if !strings.Contains(s.Workloads[0].Message, "does not belong to this YurtAppSet: rename or delete it") ||
		s.Workloads[1].Message != "" {
		t.Errorf("%+v", s.Workloads)
	}
	w.event("AppDispatched", "web-foreign-a")
	change(w, set, func(s *v1beta1.YurtAppSet) { s.Spec.Pools = nil })
	w.runs("web-foreign-a 1 other:1")
	w.says(set, dispatched, updated, deleted, isReady)
	w.quiet()
}

func TestWhatFailsFailsInItsPool(t *testing.T) {
	w := newWorld(t, "fails")
	a, b, c := w.pool("a"), w.pool("b"), w.pool("c")
	set := deployments("web", tweaks{
		{Pools: []string{a}, Tweaks: v1beta1.Tweaks{Patches: []v1beta1.Patch{operation("remove", "/spec/nothing", "")}}},
		{Pools: []string{b},
			Tweaks: v1beta1.Tweaks{Patches: []v1beta1.Patch{add("/spec/template/spec/restartPolicy", `"Never"`)}}},
	}, a, b, c)
	w.create(set)
	w.runs("web-fails-c 2 web:1")
	s := w.says(set, poolFound, deleted)
	if !strings.Contains(s.Workloads[0].Message, "patches[0] (remove /spec/nothing)") ||
		!strings.Contains(s.Workloads[1].Message, "restartPolicy") || s.Workloads[2].Message != "" {
		t.Errorf("%+v", s.Workloads)
	}
	w.quiet() // it is not tried again and again
	w.play()
	change(w, set, func(s *v1beta1.YurtAppSet) { s.Spec.Workload.WorkloadTweaks = nil })
	w.runs("web-fails-a 2 web:1", "web-fails-b 2 web:1", "web-fails-c 2 web:1")
	w.says(set, poolFound, dispatched, updated, deleted)
}

func TestAStatefulSetsFieldThatCannotBeChanged(t *testing.T) {
	w := newWorld(t, "stateful")
	a := w.pool("a.x") // no name for a StatefulSet
	set := w.create(statefulSets("db", nil, a))
	w.says(set, poolFound, dispatched, updated, deleted)
	change(w, set, func(s *v1beta1.YurtAppSet) {
		s.Spec.Workload.WorkloadTemplate.StatefulSetTemplate.Spec.ServiceName = "other"
	})
	s := w.says(set, poolFound, dispatched, deleted)
	if len(s.Workloads) != 1 || !strings.Contains(s.Workloads[0].Message,
		"delete the workload (kubectl delete --cascade=orphan") {
		t.Fatalf("%+v", s.Workloads)
	}
	w.quiet()
	// What it says helps.
	w.must(w.Delete(t.Context(), &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{
		Namespace: "stateful", Name: s.Workloads[0].Name,
	}}))
	w.says(set, poolFound, dispatched, updated, deleted)
	made := &appsv1.StatefulSet{}
	w.must(w.Get(t.Context(), client.ObjectKey{Namespace: "stateful", Name: s.Workloads[0].Name}, made))
	if made.Spec.ServiceName != "other" {
		t.Errorf("it has %s", made.Spec.ServiceName)
	}
}

func TestHistory(t *testing.T) {
	w := newWorld(t, "history")
	set := deployments("web", nil)
	set.Spec.RevisionHistoryLimit = ptr.To[int32](2)
	w.create(set)
	image := func(tag string) {
		change(w, set, func(s *v1beta1.YurtAppSet) {
			s.Spec.Workload.WorkloadTemplate.DeploymentTemplate.Spec.Template.Spec.Containers[0].Image = tag
		})
	}
	all := []v1beta1.YurtAppSetConditionType{dispatched, updated, deleted, isReady}
	first := w.says(set, all...).CurrentRevision
	names := []string{first}
	for _, tag := range []string{"web:2", "web:3", "web:4"} {
		image(tag)
		names = append(names, w.says(set, all...).CurrentRevision)
	}
	w.revisions(names[1:]...)
	image("web:2") // back
	if back := w.says(set, all...).CurrentRevision; back != names[1] {
		t.Errorf("back is %s, want %s", back, names[1])
	}
	w.revisions(names[1:]...)
	r := &appsv1.ControllerRevision{}
	w.must(w.Get(t.Context(), client.ObjectKey{Namespace: "history", Name: names[1]}, r))
	if r.Revision != 5 || metav1.GetControllerOf(r) == nil {
		t.Errorf("it has number %d, owner %v", r.Revision, metav1.GetControllerOf(r))
	}
	// A tweak is no revision, and what a revision has restores it.
	change(w, set, func(s *v1beta1.YurtAppSet) {
		s.Spec.Workload.WorkloadTweaks = tweaks{{Pools: []string{"x"}, Tweaks: v1beta1.Tweaks{Replicas: ptr.To[int32](1)}}}
	})
	w.says(set, all...)
	w.must(w.Get(t.Context(), client.ObjectKey{Namespace: "history", Name: names[2]}, r))
	w.must(w.Patch(t.Context(), set, client.RawPatch("application/merge-patch+json", r.Data.Raw)))
	if restored := w.says(set, all...).CurrentRevision; restored != names[2] {
		t.Errorf("restored is %s, want %s", restored, names[2])
	}
	if len(set.Spec.Workload.WorkloadTweaks) != 1 {
		t.Error("the tweaks are gone")
	}
	w.must(w.Delete(t.Context(), r)) // somebody deletes it
	w.revisions(names[1:]...)
}

// revisions waits until these, and no others, are there.
func (w *world) revisions(want ...string) {
	w.t.Helper()
	want = slices.Sorted(slices.Values(want))
	cloudtest.Eventually(w.t, "revisions", func() error {
		all := &appsv1.ControllerRevisionList{}
		if err := w.List(w.t.Context(), all, client.InNamespace(w.namespace)); err != nil {
			return err
		}
		got := []string{}
		for _, r := range all.Items {
			got = append(got, r.Name)
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			return fmt.Errorf("there are %v, want %v", got, want)
		}
		return nil
	})
}

func TestARevisionsNameThatIsTaken(t *testing.T) {
	w := newWorld(t, "collision")
	w.stop()
	set := w.create(deployments("web", nil))
	w.must(w.Get(t.Context(), client.ObjectKeyFromObject(set), set))
	data, err := content(set)
	w.must(err)
	taken := revision(revisionName(set, data), `{"other":1}`, 1)
	taken.Namespace = "collision"
	w.must(w.Create(t.Context(), taken))
	w.start()
	if s := w.says(set, dispatched, updated, deleted, isReady); s.CurrentRevision != "" {
		t.Errorf("another's revision is taken for the set's own: %s", s.CurrentRevision)
	}
	w.must(w.Delete(t.Context(), taken))
	cloudtest.Eventually(t, "the name is free", func() error {
		w.must(w.Get(t.Context(), client.ObjectKeyFromObject(set), set))
		if set.Status.CurrentRevision != taken.Name {
			return fmt.Errorf("its revision is %q", set.Status.CurrentRevision)
		}
		return nil
	})
}

func TestOneSetsWorkloadsAreNotAnothers(t *testing.T) {
	w := newWorld(t, "two")
	p := w.pool("a")
	one := w.create(deployments("web", nil, p))
	w.runs("web-two-a 2 web:1")
	w.must(w.Delete(t.Context(), one)) // without a garbage collector its Deployment stays
	cloudtest.Eventually(t, "it goes", func() error {
		if err := w.Get(t.Context(), client.ObjectKeyFromObject(one), one); !apierrors.IsNotFound(err) {
			return fmt.Errorf("it is there: %w", err)
		}
		return nil
	})
	two := w.create(deployments("web", nil, p)) // of the same name
	s := w.says(two, poolFound, deleted)
	if !strings.Contains(s.Workloads[0].Message, "does not belong to this YurtAppSet") {
		t.Errorf("%+v", s.Workloads)
	}
}

// TestASelectorThatSelectsNothingForAMoment: it removes no workload, and what a person confirms by its number goes at once.
func TestASelectorThatSelectsNothingForAMoment(t *testing.T) {
	w := newWorld(t, "moment")
	for _, name := range []string{"a", "b", "c"} {
		w.pool(name)
	}
	set := deployments("web", nil)
	set.Spec.NodePoolSelector = w.every()
	w.create(set)
	all := []string{"web-moment-a 2 web:1", "web-moment-b 2 web:1", "web-moment-c 2 web:1"}
	w.runs(all...)
	before := w.deployments()
	selects := func(value string) {
		change(w, set, func(s *v1beta1.YurtAppSet) {
			s.Spec.NodePoolSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"test": value}}
		})
	}
	confirm := func(n string) {
		change(w, set, func(s *v1beta1.YurtAppSet) { s.Annotations = map[string]string{AnnotationConfirmRemoval: n} })
	}
	selects("typo")
	w.event("AppDeleted", "RemovalWaits 3 of 3 workloads are no longer asked for")
	w.says(set, dispatched, updated, isReady)
	w.runs(all...)
	w.waiting("web", 3)
	w.quiet()
	selects("moment")
	w.says(set, poolFound, dispatched, updated, deleted)
	w.waiting("web", -1)
	for i, d := range w.deployments() {
		if d.UID != before[i].UID {
			t.Errorf("%s is another one", d.Name)
		}
	}

	selects("typo-again")
	confirm("2") // there are 3
	w.says(set, dispatched, updated, isReady)
	w.runs(all...)
	confirm("3")
	w.runs()
	w.says(set, dispatched, updated, deleted, isReady)
}

// TestOfManyPoolsAFewLeaveAtOnce, and those that are gone do not count.
func TestOfManyPoolsAFewLeaveAtOnce(t *testing.T) {
	w := newWorld(t, "few")
	a, b, c := w.pool("a"), w.pool("b"), w.pool("c")
	set := w.create(deployments("web", nil, a, b, c))
	w.runs("web-few-a 2 web:1", "web-few-b 2 web:1", "web-few-c 2 web:1")
	change(w, set, func(s *v1beta1.YurtAppSet) { s.Spec.Pools = []string{a, b} })
	w.runs("web-few-a 2 web:1", "web-few-b 2 web:1")
	w.must(w.Delete(t.Context(), nodePool(a)))
	w.must(w.Delete(t.Context(), nodePool(b)))
	w.runs()
}
