package offline

import (
	"fmt"
	"maps"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"yurtcoordinator/lab"
	"yurtcoordinator/lab/e2e/kit"
)

// What a node's disk says is not an answer while the cloud can be asked.
var freshScenarios = []kit.Scenario{
	{
		Name: "online-reboot", Lab: kit.RealKubelets(kit.OnePool), Run: onlineReboot,
		Doc: "A StatefulSet's Pods move away while their node is off, and the cloud forgets the history of that. The node " +
			"boots with the cloud reachable and never starts a container of the old Pods.",
	},
}

const (
	onlyName = "only"
	// onlyPods are enough that a hub doubts a list without them. So for some seconds after the boot, the hub has only the Pods
	// on its disk.
	onlyPods = 12
	// startsDir is a directory on the node's disk. Each container of the StatefulSet first writes its Pod's UID there.
	startsDir = "/var/lib/starts"
	// laterName is the Pod that is bound to the node while it is off. Once it runs, kubelet has the cloud's present list of
	// Pods.
	laterName = "later"
)

func onlineReboot(t *kit.T) {
	leader := t.Pool.SettledAway()
	node := t.Pool.Follower(leader)
	old := deployOnly(t, node)
	t.Hold(3*time.Second, "the hub's disk is written once a second")
	started := containersStarted(t, node)
	if !maps.EqualFunc(started, old, func(n int, _ kit.PodAt) bool { return n == 1 }) {
		t.Fail("what runs on %s has written of each Pod how often it was started: %v", node, started)
	}

	t.Say("cutting the power of %s, and moving its Pods as an operator does", node)
	t.Must(t.Lab.Node(t.Ctx, lab.Kill, node, lab.All))
	t.Eventually(t.Config.Timing.Grace+2*t.Config.Timing.Monitor+5*time.Second, node+" is NotReady", func() error {
		if t.Seen.Node(node).Ready == corev1.ConditionTrue {
			return fmt.Errorf("it is Ready")
		}
		return nil
	})
	mayRunOnly(t, leader)
	for uid, p := range old {
		t.Must(t.Cloud.CoreV1().Pods(kit.Namespace).Delete(t.Ctx, p.Name, metav1.DeleteOptions{
			GracePeriodSeconds: ptr.To[int64](0), Preconditions: metav1.NewUIDPreconditions(string(uid)),
		}))
	}
	moved := onlyRun(t, leader)
	_, err := t.Lab.Compact(t.Ctx)
	t.Must(err)
	t.Must(t.Lab.Cloud(t.Ctx, lab.Restart, lab.KubeAPIServer))
	later := bindLater(t, node)

	t.Say("powering %s on, with the cloud at hand", node)
	began := time.Now()
	t.Must(t.Lab.Node(t.Ctx, lab.Start, node, lab.All))
	t.Eventually(time.Minute, node+" runs the Pod that it got meanwhile", func() error {
		runs, does := t.Seen.FirstPod(later, began, func(p kit.PodAt) bool { return p.Ready })
		if !does {
			return fmt.Errorf("it has told: %+v", t.Seen.OfPod(later))
		}
		t.Figure("power_on_to_new_pod_s", runs.Sub(began).Seconds())
		return nil
	})
	t.Hold(10*time.Second, "a container that was about to start has started")
	if now := containersStarted(t, node); !maps.Equal(now, started) {
		t.Fail("%s has started containers of Pods that had moved: %v", node, now)
	}
	t.Must(t.Seen.Untouched(moved, began))
}

// mayRunOnly labels a node as one that may run the StatefulSet's Pods.
func mayRunOnly(t *kit.T, node string) {
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:"yes"}}}`, onlyName)
	_, err := t.Cloud.CoreV1().Nodes().Patch(t.Ctx, node, types.MergePatchType, patch, metav1.PatchOptions{})
	t.Must(err)
}

// deployOnly runs a StatefulSet, all of it on a node.
func deployOnly(t *kit.T, node string) map[types.UID]kit.PodAt {
	mayRunOnly(t, node)
	labels := map[string]string{"app": onlyName}
	_, err := t.Cloud.AppsV1().StatefulSets(kit.Namespace).Create(t.Ctx, &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: onlyName},
		Spec: appsv1.StatefulSetSpec{
			Replicas: ptr.To[int32](onlyPods), ServiceName: onlyName, PodManagementPolicy: appsv1.ParallelPodManagement,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: onlySpec()},
		},
	}, metav1.CreateOptions{})
	t.Must(err)
	return onlyRun(t, node)
}

// onlySpec is the spec of a Pod that kubelet would start unless it knows that the Pod is gone. The Pod has no token, because
// the cloud refuses a token for a Pod that is gone, and so would keep it from starting.
func onlySpec() corev1.PodSpec {
	return corev1.PodSpec{
		TerminationGracePeriodSeconds: ptr.To[int64](1), AutomountServiceAccountToken: ptr.To(false),
		NodeSelector: map[string]string{onlyName: "yes"},
		Containers: []corev1.Container{{
			Name: onlyName, Image: kit.WebImage,
			Command: []string{"sh", "-c", "echo $POD >> " + startsDir + "/all; exec sleep 86417"},
			Env: []corev1.EnvVar{{Name: "POD", ValueFrom: &corev1.EnvVarSource{
				FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.uid"},
			}}},
			VolumeMounts: []corev1.VolumeMount{{Name: "starts", MountPath: startsDir}},
		}},
		Volumes: []corev1.Volume{{Name: "starts", VolumeSource: corev1.VolumeSource{
			HostPath: &corev1.HostPathVolumeSource{Path: startsDir, Type: ptr.To(corev1.HostPathDirectoryOrCreate)},
		}}},
	}
}

// onlyRun waits until all Pods of the StatefulSet run on a node, and returns them.
func onlyRun(t *kit.T, node string) (pods map[types.UID]kit.PodAt) {
	t.Eventually(2*time.Minute, "the Pods of StatefulSet "+onlyName+" run on "+node, func() error {
		pods = kit.On(t.Seen.LivePods(), node)
		maps.DeleteFunc(pods, func(_ types.UID, p kit.PodAt) bool { return !p.Ready })
		if len(pods) != onlyPods {
			return fmt.Errorf("%d of %d do", len(pods), onlyPods)
		}
		return nil
	})
	return pods
}

// bindLater binds a Pod to a node that may be off.
func bindLater(t *kit.T, node string) types.UID {
	return t.Node(node).RunPod(laterName, []string{"sleep", "86417"}, func(p *corev1.Pod) {
		p.Spec.AutomountServiceAccountToken = ptr.To(false)
	})
}

// containersStarted is how many containers of each Pod of the StatefulSet a node has ever started.
func containersStarted(t *kit.T, node string) map[types.UID]int {
	written, err := t.Lab.Output(t.Ctx, node, "cat", startsDir+"/all")
	t.Must(err)
	started := map[types.UID]int{}
	for _, uid := range strings.Fields(written) {
		started[types.UID(uid)]++
	}
	return started
}
