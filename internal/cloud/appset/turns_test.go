package appset

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yurtcoordinator/apis/apps/v1beta1"
	"yurtcoordinator/internal/cloud/cloudtest"
	"yurtcoordinator/internal/cloud/objects"
	"yurtcoordinator/internal/edge"
)

// node makes a Node of a pool that is Ready.
func (w *world) node(pool, name string) string {
	w.t.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: w.namespace + "-" + name, Labels: map[string]string{edge.LabelNodePool: pool},
	}}
	w.must(w.Create(w.t.Context(), n))
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	w.must(w.Status().Update(w.t.Context(), n))
	w.taint(n.Name) // a new Node has one
	return n.Name
}

// taint puts a taint on a Node, or takes all away.
func (w *world) taint(name string, keys ...string) {
	w.t.Helper()
	change(w, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, func(n *corev1.Node) {
		n.Spec.Taints = nil
		for _, key := range keys {
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: key, Effect: corev1.TaintEffectNoSchedule})
		}
	})
}

// stands has Kubernetes' controller say how a Deployment is: whether its newest Pods are available, and if not, that they fail.
func (w *world) stands(name string, serves bool) {
	w.t.Helper()
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name}}
	cloudtest.Eventually(w.t, "a status of "+name, func() error {
		if err := w.Get(w.t.Context(), client.ObjectKeyFromObject(d), d); err != nil {
			return err
		}
		progress := appsv1.DeploymentCondition{Type: appsv1.DeploymentProgressing, Status: corev1.ConditionTrue,
			Reason: "NewReplicaSetAvailable"}
		n := *d.Spec.Replicas
		d.Status = appsv1.DeploymentStatus{
			ObservedGeneration: d.Generation, Replicas: n, ReadyReplicas: n, AvailableReplicas: n, UpdatedReplicas: n,
		}
		if !serves {
			d.Status.AvailableReplicas, d.Status.ReadyReplicas = n-1, n-1
			progress.Status, progress.Reason, progress.Message = corev1.ConditionFalse, "ProgressDeadlineExceeded",
				"it has timed out"
			d.Annotations["deployment.kubernetes.io/revision"] = "2"
		}
		d.Status.Conditions = []appsv1.DeploymentCondition{progress}
		return w.Status().Update(w.t.Context(), d)
	})
}

func (w *world) image(set *v1beta1.YurtAppSet, tag string) {
	w.t.Helper()
	change(w, set, func(s *v1beta1.YurtAppSet) {
		s.Spec.Workload.WorkloadTemplate.DeploymentTemplate.Spec.Template.Spec.Containers[0].Image = tag
	})
}

// condition waits until a condition of the newest spec has this status and reason, and in its message this.
func (w *world) condition(set *v1beta1.YurtAppSet, kind v1beta1.YurtAppSetConditionType, want, message string) {
	w.t.Helper()
	found := &v1beta1.YurtAppSet{}
	cloudtest.Eventually(w.t, string(kind), func() error {
		if err := w.Get(w.t.Context(), client.ObjectKeyFromObject(set), found); err != nil {
			return err
		}
		for _, c := range found.Status.Conditions {
			if c.Type == kind && string(c.Status)+"/"+c.Reason == want && strings.Contains(c.Message, message) &&
				found.Status.ObservedGeneration == found.Generation {
				return nil
			}
		}
		return fmt.Errorf("it says %+v", found.Status.Conditions)
	})
}

func oneAtATime() *v1beta1.Rollout {
	return &v1beta1.Rollout{MaxUnavailable: ptr.To(intstr.FromInt(1))}
}

// TestARollout goes pool by pool, stops where a pool fails, starts with that pool once it is mended, and passes by what is cut
// off or frozen. A restart in between changes nothing.
func TestARollout(t *testing.T) {
	w := newWorld(t, "turns")
	var pools []string
	for _, name := range []string{"a", "b", "c", "d"} {
		pools = append(pools, w.pool(name))
		w.node(pools[len(pools)-1], name)
	}
	set := deployments("web", nil, pools...)
	set.Spec.Rollout = oneAtATime()
	w.create(set)
	runs := func(a, b, c, d string) {
		t.Helper()
		w.runs("web-turns-a 2 web:"+a, "web-turns-b 2 web:"+b, "web-turns-c 2 web:"+c, "web-turns-d 2 web:"+d)
	}
	runs("1", "1", "1", "1")
	for _, p := range pools {
		w.stands("web-"+p, true)
	}
	w.says(set, poolFound, dispatched, updated, deleted, isReady)

	w.image(set, "web:2")
	runs("2", "1", "1", "1")
	w.condition(set, v1beta1.AppSetReady, "False/NotReady", "not ready in turns-a")
	w.quiet()
	w.stop()
	w.start()
	w.taint("turns-b", edge.TaintUnschedulable)
	w.stands("web-turns-a", true)
	runs("2", "1", "2", "1")
	w.stands("web-turns-c", false)
	w.condition(set, v1beta1.AppSetStalled, "True/RolloutStopped",
		"pool turns-c fails with the change, and no other pool gets it: it has timed out")
	w.event("Stalled", "turns-c")
	w.quiet()
	runs("2", "1", "2", "1")

	w.image(set, "web:3")
	runs("2", "1", "3", "1")
	w.condition(set, v1beta1.AppSetStalled, "False/NotStalled", "")
	change(w, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "turns", Name: "web-turns-d"}},
		func(d *appsv1.Deployment) { d.Spec.Paused = true }) // kubectl rollout pause
	w.stands("web-turns-d", true)
	w.stands("web-turns-c", true)
	runs("3", "1", "3", "1")
	w.taint("turns-b")
	w.stands("web-turns-a", true)
	runs("3", "3", "3", "1")
	w.stands("web-turns-b", true)
	w.quiet()
	change(w, set, func(s *v1beta1.YurtAppSet) { s.Spec.Rollout.Paused = true })
	w.condition(set, v1beta1.AppSetReady, "False/Paused", "spec.rollout.paused")
	change(w, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "turns", Name: "web-turns-d"}},
		func(d *appsv1.Deployment) { d.Spec.Paused = false })
	w.stands("web-turns-d", true)
	w.quiet()
	runs("3", "3", "3", "1")
	change(w, set, func(s *v1beta1.YurtAppSet) { s.Spec.Rollout.Paused = false })
	runs("3", "3", "3", "3")
}

// TestAPodOnANodeThatIsCutOff keeps its pool as it is, though the pool's other nodes are heard from.
func TestAPodOnANodeThatIsCutOff(t *testing.T) {
	w := newWorld(t, "cutoff")
	a := w.pool("a")
	there, _ := w.node(a, "n1"), w.node(a, "n2")
	set := deployments("web", nil, a)
	set.Spec.Rollout = oneAtATime()
	w.create(set)
	w.runs("web-cutoff-a 2 web:1")
	w.stands("web-cutoff-a", true)
	w.must(w.Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "cutoff", Name: "p", Labels: map[string]string{"app": "web", LabelPoolName: a}},
		Spec:       corev1.PodSpec{NodeName: there, Containers: []corev1.Container{{Name: "web", Image: "web:1"}}},
	}))
	w.taint(there, corev1.TaintNodeUnreachable)
	w.image(set, "web:2")
	w.condition(set, v1beta1.AppSetReady, "False/Updating", "")
	w.quiet()
	w.runs("web-cutoff-a 2 web:1")
	w.taint(there)
	w.runs("web-cutoff-a 2 web:2")
}

// TestARolloutRests where only an event can bring it on, and looks less often at what takes long.
func TestARolloutRests(t *testing.T) {
	now := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	puller := func(name string, age time.Duration, phase corev1.PodPhase) corev1.Pod {
		p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(now.Add(-age))}}
		if p.Status.Phase = phase; phase == corev1.PodRunning {
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{
				State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "StartError"}},
			}}
		}
		return p
	}
	pulls := func(names ...string) (c coming) {
		c.pulls = make(map[string]bool)
		for _, n := range names {
			c.pulls[n] = true
		}
		return c
	}
	for what, tt := range map[string]struct {
		r      rollout
		want   time.Duration
		paused bool
	}{
		"all is done":          {r: rollout{steps: []Step{Apply, Apply}}},
		"a pool waits":         {r: rollout{steps: []Step{Apply, Wait}}, want: waitAgain},
		"it is paused":         {r: rollout{steps: []Step{Apply, Wait}}, paused: true},
		"others are under way": {r: rollout{steps: []Step{Wait}, states: []PoolState{{Other: UnderWay}}}, want: waitAgain},
		"another has its turn": {r: rollout{steps: []Step{Wait}, taken: true}, want: pullAgain},
		"a pull begins": {
			r: rollout{steps: []Step{Pull}, coming: map[int]coming{0: {missing: []*corev1.Pod{{}}}}}, want: pullAgain,
		},
		"one has just begun": {r: rollout{steps: []Step{Pull}, coming: map[int]coming{0: pulls("new")}}, want: pullAgain},
		"one takes long":     {r: rollout{steps: []Step{Pull}, coming: map[int]coming{0: pulls("long")}}, want: 10 * time.Second},
		"one can't":          {r: rollout{steps: []Step{Pull}, coming: map[int]coming{0: pulls("failed")}}, want: mendAfter},
		"a new one and old ones": {
			r: rollout{steps: []Step{Pull}, coming: map[int]coming{0: pulls("failed", "long", "new")}}, want: pullAgain,
		},
		"it waits with its image": {
			r: rollout{steps: []Step{Pull}, coming: map[int]coming{0: pulls("there")}}, want: 0,
		},
	} {
		tt.r.set = &v1beta1.YurtAppSet{Spec: v1beta1.YurtAppSetSpec{Rollout: &v1beta1.Rollout{Paused: tt.paused}}}
		tt.r.Controller = New(Config{Clock: clocktesting.NewFakePassiveClock(now)})
		tt.r.pulls = []corev1.Pod{
			puller("new", time.Second, corev1.PodPending), puller("long", 80*time.Second, corev1.PodPending),
			puller("failed", time.Hour, corev1.PodFailed), puller("there", time.Second, corev1.PodRunning),
		}
		if got := tt.r.after(); got != tt.want {
			t.Errorf("%s: looked at again after %v, want %v", what, got, tt.want)
		}
	}
}

// TestTwoSetsOfAGroup never change in a pool at the same time.
func TestTwoSetsOfAGroup(t *testing.T) {
	w := newWorld(t, "group")
	a := w.pool("a")
	w.node(a, "n")
	var sets []*v1beta1.YurtAppSet
	for _, name := range []string{"one", "two"} {
		set := deployments(name, nil, a)
		set.Spec.Rollout = &v1beta1.Rollout{MaxUnavailable: ptr.To(intstr.FromInt(5)), Group: "both"}
		sets = append(sets, w.create(set))
	}
	w.runs("one-group-a 2 web:1", "two-group-a 2 web:1")
	w.stands("one-group-a", true)
	w.stands("two-group-a", true)
	for _, set := range sets {
		w.says(set, poolFound, dispatched, updated, deleted, isReady)
	}
	for n, tag := range []string{"web:2", "web:3", "web:4"} {
		changed := func() (names []string) {
			for _, d := range w.deployments() {
				if d.Spec.Template.Spec.Containers[0].Image == tag {
					names = append(names, d.Name)
				}
			}
			return names
		}
		for _, set := range sets {
			w.image(set, tag)
		}
		for i := range sets {
			cloudtest.Eventually(t, "one of them changes", func() error {
				if got := changed(); len(got) != i+1 {
					return fmt.Errorf("%v have %s", got, tag)
				}
				return nil
			})
			until := time.Now().Add(5 * settle)
			cloudtest.Eventually(t, "the other does not", func() error {
				if got := changed(); len(got) != i+1 {
					t.Fatalf("round %d: %v have %s", n, got, tag)
				}
				if time.Now().Before(until) {
					return errors.New("it may yet")
				}
				return nil
			})
			for _, name := range changed() {
				w.stands(name, true)
			}
		}
	}
}

// pullers returns the Pods that pull images, as "NODE IMAGE".
func (w *world) pullers() (all []corev1.Pod, as []string) {
	w.t.Helper()
	found := &corev1.PodList{}
	w.must(w.List(w.t.Context(), found, client.InNamespace(w.namespace), client.MatchingLabels{edge.LabelApp: appPull}))
	for _, p := range found.Items {
		as = append(as, string(objects.PinnedTo(&p))+" "+p.Spec.Containers[0].Image)
	}
	slices.Sort(as)
	return found.Items, as
}

func (w *world) pulling(want ...string) {
	w.t.Helper()
	cloudtest.Eventually(w.t, "pulls", func() error {
		if _, got := w.pullers(); !slices.Equal(got, want) {
			return fmt.Errorf("there are %q, want %q", got, want)
		}
		return nil
	})
}

// TestImagesComeFirst to the node that is to run the new Pod: another one than that where the old Pod has the port. Until then
// the old Pod stays.
func TestImagesComeFirst(t *testing.T) {
	w := newWorld(t, "images")
	a := w.pool("a")
	now, next := w.node(a, "n1"), w.node(a, "n2")
	set := deployments("web", nil, a)
	set.Spec.Rollout = oneAtATime()
	set.Spec.Rollout.PrePull = &v1beta1.PrePull{}
	d := &set.Spec.Workload.WorkloadTemplate.DeploymentTemplate.Spec
	d.Replicas, d.Template.Spec.InitContainers, d.Template.Spec.Containers = ptr.To[int32](1), nil, d.Template.Spec.Containers[:1]
	d.Template.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80, HostPort: 80}}
	w.create(set)
	w.runs("web-images-a 1 web:1")
	w.stands("web-images-a", true)
	w.must(w.Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "images", Name: "p", Labels: map[string]string{"app": "web", LabelPoolName: a}},
		Spec:       corev1.PodSpec{NodeName: now, Containers: d.Template.Spec.Containers},
	}))
	w.image(set, "web:2")
	w.pulling(next + " web:2")
	pods, _ := w.pullers()
	p := &pods[0]
	if owner := metav1.GetControllerOf(p); owner == nil || owner.UID != set.UID || *p.Spec.AutomountServiceAccountToken {
		t.Errorf("it is %+v", p)
	}
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "pull", State: corev1.ContainerState{
		Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "no such image"},
	}}}
	w.must(w.Status().Update(t.Context(), p))
	w.condition(set, v1beta1.AppSetAppUpdated, "False/NotAsWanted",
		"images-a: node images-n2 does not get the image web:2: ImagePullBackOff: no such image")
	w.runs("web-images-a 1 web:1")
	w.stop()
	w.start()
	w.must(w.Get(t.Context(), client.ObjectKeyFromObject(p), p))
	p.Status.Phase = corev1.PodFailed
	p.Status.ContainerStatuses[0].State = corev1.ContainerState{
		Terminated: &corev1.ContainerStateTerminated{Reason: "StartError", ExitCode: 128},
	}
	w.must(w.Status().Update(t.Context(), p))
	w.runs("web-images-a 1 web:2")
	made := w.deployments()[0]
	terms := made.Spec.Template.Spec.Affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution
	if len(terms) != 1 || terms[0].Preference.MatchFields[0].Values[0] != next || made.Annotations[AnnotationNodes] != next {
		t.Errorf("its Pods prefer %+v", terms)
	}
	w.pulling()
	w.stands("web-images-a", true)
	w.says(set, poolFound, dispatched, updated, deleted, isReady)
	// What is not of the Pods reaches all pools at once, and the preference stays.
	change(w, set, func(s *v1beta1.YurtAppSet) {
		s.Spec.Workload.WorkloadTemplate.DeploymentTemplate.Spec.Replicas = ptr.To[int32](3)
	})
	w.runs("web-images-a 3 web:2")
	if was, is := made.Spec.Template, w.deployments()[0].Spec.Template; !equalJSON(was, is) {
		t.Errorf("the Pods are %+v, were %+v", is, was)
	}
	w.pulling()
}

func equalJSON(a, b any) bool {
	x, err := json.Marshal(a)
	y, err2 := json.Marshal(b)
	return errors.Join(err, err2) == nil && string(x) == string(y)
}

// TestARollback restores a template whole: what a later one has added is gone.
func TestARollback(t *testing.T) {
	w := newWorld(t, "rollback")
	set := w.create(deployments("web", nil))
	all := []v1beta1.YurtAppSetConditionType{dispatched, updated, deleted, isReady}
	first := w.says(set, all...).CurrentRevision
	was := set.Spec.Workload.WorkloadTemplate.DeepCopy()
	change(w, set, func(s *v1beta1.YurtAppSet) {
		pods := &s.Spec.Workload.WorkloadTemplate.DeploymentTemplate.Spec.Template
		pods.Annotations, pods.Spec.NodeSelector = map[string]string{"more": "x"}, map[string]string{"disk": "ssd"}
		pods.Spec.HostNetwork = true
	})
	if second := w.says(set, all...).CurrentRevision; second == first {
		t.Fatal("it is no revision")
	}
	r := &appsv1.ControllerRevision{}
	w.must(w.Get(t.Context(), client.ObjectKey{Namespace: "rollback", Name: first}, r))
	var has struct {
		Spec struct {
			Workload struct{ WorkloadTemplate json.RawMessage }
		}
	}
	w.must(json.Unmarshal(r.Data.Raw, &has))
	// As docs/yurtappsets.md says.
	patch := fmt.Sprintf(`[{"op":"replace","path":"/spec/workload/workloadTemplate","value":%s}]`,
		has.Spec.Workload.WorkloadTemplate)
	w.must(w.Patch(t.Context(), set, client.RawPatch(types.JSONPatchType, []byte(patch))))
	if back := w.says(set, all...).CurrentRevision; back != first {
		t.Errorf("it is %s, want %s", back, first)
	}
	if !equalJSON(was, set.Spec.Workload.WorkloadTemplate) {
		t.Errorf("it is %+v, was %+v", set.Spec.Workload.WorkloadTemplate, was)
	}
}
