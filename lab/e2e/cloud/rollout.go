package cloud

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"yurtcoordinator/apis/apps/v1alpha1"
	"yurtcoordinator/apis/apps/v1beta1"
	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/oci"
	"yurtcoordinator/lab"
	"yurtcoordinator/lab/e2e/kit"
)

var rolloutScenarios = []kit.Scenario{{
	Name: "coordinator-rollout", Lab: lab.Config{Pools: 3, Nodes: 3, Timing: lab.Quick}.AsInstalled(), Run: coordinatorRollout,
	Doc: "A newer coordinator-controller brings its release to the coordinators of three pools: the canary first, then one " +
		"after another. The image of the next release comes late to its node, and until then the old coordinator runs. " +
		"Then the new one does not serve: the rollout stops at the canary and says why, and the other pools delegate " +
		"heartbeats as before. Fixed, it reaches the canary immediately and then the others, but not the pool whose " +
		"Deployment is paused. No node is NotReady.",
}}

// The releases that the lab's images are tagged with. The broken one is another program under the coordinator's name.
const (
	releaseGood, releaseBroken, releaseMended = "v0.2.0", "v0.2.1", "v0.2.2"

	canaryPool, otherPool, frozenPool = "p2", "p1", "p3"
)

// appSets is the resource of YurtAppSets.
var appSets = v1beta1.GroupVersion.WithResource("yurtappsets")

// rollout is a lab whose coordinators are upgraded.
type rollout struct {
	*kit.T
	// image is the coordinators' image without a tag. kubernetes is the version that the coordinators are made from.
	image, kubernetes string
	ctr               string
}

func coordinatorRollout(t *kit.T) {
	programs, err := t.Lab.Programs()
	t.Must(err)
	r := &rollout{T: t, ctr: programs.Ctr}
	first := r.CoordinatorOf(canaryPool)
	image, tag, _ := strings.Cut(first.Spec.Containers[0].Image, ":")
	_, kubernetes, _ := strings.Cut(tag, "-k")
	r.image, r.kubernetes = image, kubernetes
	pods, began := t.DeployWeb(), time.Now()

	t.Kubectls([][]string{
		{"label", "nodepool", canaryPool, "ring=canary"},
		{"--namespace=kube-system", "patch", "yurtappset", edge.AppCoordinator, "--type=merge",
			`--patch={"spec":{"rollout":{"canary":{"matchLabels":{"ring":"canary"}}}}}`},
	})
	for _, node := range r.nodes() {
		r.tag(node, first.Spec.Containers[0].Image, releaseGood, releaseMended)
	}
	before := r.all()
	r.upgrade(releaseGood)
	took := t.Eventually(5*time.Minute, "all coordinators are of it", func() error {
		return r.updated(canaryPool, otherPool, frozenPool)
	})
	t.Figure("rollout_of_3_s", took.Seconds())
	r.inOrder(before, canaryPool, otherPool, frozenPool)

	t.Kubectls([][]string{{"--namespace=kube-system", "rollout", "pause", "deployment", edge.AppCoordinator + "-" + frozenPool}})
	good := r.all()
	r.upgrade(releaseBroken)
	t.Eventually(90*time.Second, "the canary's node does not get the image, and the canary goes on", func() error {
		return errors.Join(
			r.says(v1beta1.AppSetAppUpdated, corev1.ConditionFalse, "NotAsWanted", "does not get the image"),
			t.Cloud.Condition(canaryPool, v1alpha1.YurtCoordinatorReconciling, v1alpha1.ConditionTrue, "RollingOut"),
			t.Cloud.Condition(canaryPool, v1alpha1.YurtCoordinatorReady, v1alpha1.ConditionTrue, ""))
	})
	t.Hold(10*time.Second, "something would be changed by then")
	r.untouched(good, canaryPool, otherPool, frozenPool)
	node := r.puller()
	t.Say("the image comes to %s: a program that ends at once", node)
	r.bring(node, programs.YurtHub)
	t.Eventually(60*time.Second, "the canary runs it there", func() error {
		return r.runs(canaryPool, node, releaseBroken)
	})
	took = t.Eventually(4*time.Minute, "the rollout stops, and says why", func() error {
		return errors.Join(r.says(v1beta1.AppSetStalled, corev1.ConditionTrue, "RolloutStopped", "pool "+canaryPool),
			r.eventSays())
	})
	t.Figure("rollout_stop_s", took.Seconds())
	r.untouched(good, otherPool, frozenPool)
	t.Pool.Settled(30 * time.Second)
	cutOff := t.Pool.Follower(t.Pool.SettledAway())
	t.Say("cutting the WAN link of %s, in a pool that has the former release", cutOff)
	cut := t.Cut(cutOff)
	t.Node(cutOff).Delegated(cut)
	t.Heal(cutOff)
	t.Node(cutOff).Direct(time.Now())
	r.untouched(good, otherPool, frozenPool)

	mended := time.Now()
	r.upgrade(releaseMended)
	t.Eventually(90*time.Second, "the canary serves with what is mended", func() error {
		return errors.Join(t.Cloud.Condition(canaryPool, v1alpha1.YurtCoordinatorReady, v1alpha1.ConditionTrue, ""),
			r.is(canaryPool, releaseMended))
	})
	t.Eventually(3*time.Minute, "the other follows", func() error { return r.updated(canaryPool, otherPool) })
	t.Figure("rollout_mended_s", time.Since(mended).Seconds())
	r.gap(good[otherPool], otherPool)
	t.Hold(15*time.Second, "the third would have its turn by then")
	r.untouched(good, frozenPool)
	t.Must(r.is(frozenPool, releaseGood))
	t.Eventually(30*time.Second, "nothing is left of the pulls", func() error {
		left, err := r.pullers()
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("there is %s", left[0].Name)
		}
		return err
	})
	t.NeverNotReady(began, r.nodes()...)
	t.Must(t.Seen.Untouched(pods, began))
}

// nodes are those of all pools.
func (r *rollout) nodes() (names []string) {
	for p := 1; p <= r.Config.Pools; p++ {
		for i := 1; i <= r.Config.Nodes; i++ {
			names = append(names, fmt.Sprintf("p%d-n%d", p, i))
		}
	}
	return names
}

// name returns the name of the coordinators' image of a release.
func (r *rollout) name(release string) string { return r.image + ":" + release + "-k" + r.kubernetes }

// tag gives an image of a node the names of releases.
func (r *rollout) tag(node, image string, releases ...string) {
	for _, release := range releases {
		_, err := r.Lab.Output(r.Ctx, node, r.ctr, "-n", "k8s.io", "images", "tag", image, r.name(release))
		r.Must(err)
	}
}

// bring gives a node the broken release, as a completed pull would.
func (r *rollout) bring(node, program string) {
	content, err := os.ReadFile(program)
	r.Must(err)
	// Of the files of this machine a node sees its own, at the same path.
	dir, err := os.MkdirTemp(filepath.Join(r.Lab.Dir(), "machines", node), "broken-")
	r.Must(err)
	defer func() { r.Must(os.RemoveAll(dir)) }()
	p := oci.Program{Name: "yurt-coordinator", Content: content, Version: releaseBroken, Uncompressed: true}
	p.Platform.OS, p.Platform.Architecture = goruntime.GOOS, goruntime.GOARCH
	image, err := p.Image()
	r.Must(err)
	archive := filepath.Join(dir, "broken.tar")
	r.Must(oci.WriteArchive(archive, oci.Named{Name: r.name(releaseBroken), Content: image}))
	_, err = r.Lab.Output(r.Ctx, node, r.ctr, "-n", "k8s.io", "images", "import", archive)
	r.Must(err)
}

// upgrade replaces coordinator-controller by that of another release.
func (r *rollout) upgrade(release string) {
	r.Say("coordinator-controller becomes one of %s", release)
	deployments := r.Cloud.AppsV1().Deployments(edge.NamespaceSystem)
	d, err := deployments.Get(r.Ctx, string(lab.CoordinatorController), metav1.GetOptions{})
	r.Must(err)
	c := &d.Spec.Template.Spec.Containers[0]
	c.Args = append(slices.DeleteFunc(c.Args, func(arg string) bool {
		return strings.HasPrefix(arg, "--coordinator-release=")
	}), "--coordinator-release="+release)
	_, err = deployments.Update(r.Ctx, d, metav1.UpdateOptions{})
	r.Must(err)
}

// all are the coordinators' Pods by their pools.
func (r *rollout) all() map[string]types.UID {
	all := map[string]types.UID{}
	for _, pool := range []string{canaryPool, otherPool, frozenPool} {
		all[pool] = r.CoordinatorOf(pool).UID
	}
	return all
}

// untouched expects that these pools have the Pods that they had.
func (r *rollout) untouched(had map[string]types.UID, pools ...string) {
	for _, pool := range pools {
		history := r.Seen.OfPod(had[pool])
		if len(history) == 0 || history[len(history)-1].Deleting || history[len(history)-1].Gone ||
			r.CoordinatorOf(pool).UID != had[pool] {
			r.Fail("the coordinator of %s was replaced: %+v", pool, history)
		}
	}
}

// is fails unless a pool's coordinator is of a release.
func (r *rollout) is(pool, release string) error {
	p := r.CoordinatorOf(pool)
	if len(p.Spec.Containers) == 0 || p.Spec.Containers[0].Image != r.name(release) {
		return fmt.Errorf("the Pod %s of %s is not of %s", p.Name, pool, release)
	}
	return nil
}

// runs fails unless a pool's coordinator is of a release, on that node.
func (r *rollout) runs(pool, node, release string) error {
	if is := r.CoordinatorOf(pool).Spec.NodeName; is != node {
		return fmt.Errorf("it is on %q, not on %s", is, node)
	}
	return r.is(pool, release)
}

// updated fails unless these pools' coordinators serve as the controller wants them.
func (r *rollout) updated(pools ...string) error {
	var wrong []error
	for _, pool := range pools {
		wrong = append(wrong, r.Cloud.Condition(pool, v1alpha1.YurtCoordinatorReconciling, v1alpha1.ConditionFalse, "UpToDate"),
			r.Cloud.Condition(pool, v1alpha1.YurtCoordinatorReady, v1alpha1.ConditionTrue, ""))
	}
	return errors.Join(append(wrong, r.newest(pools...))...)
}

// newest fails unless these pools' coordinators are of the release that the controller is of.
func (r *rollout) newest(pools ...string) error {
	deployments := r.Cloud.AppsV1().Deployments(edge.NamespaceSystem)
	d, err := deployments.Get(r.Ctx, string(lab.CoordinatorController), metav1.GetOptions{})
	if err != nil {
		return err
	}
	args := d.Spec.Template.Spec.Containers[0].Args
	release := strings.TrimPrefix(args[len(args)-1], "--coordinator-release=")
	var wrong []error
	for _, pool := range pools {
		wrong = append(wrong, r.is(pool, release))
	}
	return errors.Join(wrong...)
}

// pullers are the Pods that pull an image.
func (r *rollout) pullers() ([]corev1.Pod, error) {
	pods, err := r.Cloud.CoreV1().Pods(edge.NamespaceSystem).List(r.Ctx, metav1.ListOptions{
		LabelSelector: edge.LabelApp + "=yurtappset-pull",
	})
	if err != nil {
		return nil, err
	}
	return pods.Items, nil
}

// puller returns the node of the only Pod that pulls an image. It must be another node than the coordinator's.
func (r *rollout) puller() string {
	pods, err := r.pullers()
	r.Must(err)
	now := r.CoordinatorOf(canaryPool).Spec.NodeName
	if len(pods) != 1 || !strings.HasPrefix(pods[0].Spec.NodeName, canaryPool+"-") || pods[0].Spec.NodeName == now {
		r.Fail("%d Pods pull an image, while the coordinator is on %s: %+v", len(pods), now, pods)
	}
	return pods[0].Spec.NodeName
}

// says fails unless a condition of the coordinators' YurtAppSet says this.
func (r *rollout) says(kind v1beta1.YurtAppSetConditionType, status corev1.ConditionStatus, reason, text string) error {
	o, err := r.Cloud.Objects.Resource(appSets).Namespace(edge.NamespaceSystem).Get(r.Ctx, edge.AppCoordinator,
		metav1.GetOptions{})
	if err != nil {
		return err
	}
	var app v1beta1.YurtAppSet
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &app); err != nil {
		return err
	}
	for _, is := range app.Status.Conditions {
		if is.Type == kind && is.Status == status && is.Reason == reason && strings.Contains(is.Message, text) {
			return nil
		}
	}
	return fmt.Errorf("it says %+v", app.Status.Conditions)
}

// eventSays fails unless an Event says that the rollout has stopped.
func (r *rollout) eventSays() error {
	events, err := r.Cloud.CoreV1().Events(edge.NamespaceSystem).List(r.Ctx, metav1.ListOptions{
		FieldSelector: "involvedObject.kind=YurtAppSet,reason=Stalled",
	})
	if err == nil && len(events.Items) == 0 {
		err = errors.New("there is no Event")
	}
	return err
}

// inOrder expects that these pools' coordinators were replaced one after another, each only after the new coordinator of the
// pool before it had served for a while. It records for how long each pool had none.
func (r *rollout) inOrder(had map[string]types.UID, pools ...string) {
	// By the watch, which tells of a Pod's end before the next Pod is there.
	const least = 4 * time.Second // of the 5 s that a lab's coordinators settle for
	var served time.Time
	for _, pool := range pools {
		told, ready := r.gap(had[pool], pool)
		if told.Before(served.Add(least)) {
			r.Fail("the coordinator of %s was told to end at %v, and the former one serves since %v", pool, told, served)
		}
		served = ready
	}
}

// gap records for how long a pool had no coordinator that served. It returns when the former coordinator was told to end, and
// when the new one began to serve.
func (r *rollout) gap(had types.UID, pool string) (told, ready time.Time) {
	told, ended := r.Seen.FirstPod(had, time.Time{}, func(p kit.PodAt) bool { return p.Deleting || p.Gone })
	ready, serves := r.Seen.FirstPod(r.CoordinatorOf(pool).UID, time.Time{}, func(p kit.PodAt) bool { return p.Ready })
	if !ended || !serves {
		r.Fail("of %s the former coordinator has ended: %t, and the new one serves: %t", pool, ended, serves)
	}
	r.Figure("without_coordinator_"+pool+"_s", ready.Sub(told).Seconds())
	return told, ready
}
