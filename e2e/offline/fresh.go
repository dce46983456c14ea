package offline

import (
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"yurtcoordinator/e2e/kit"
	"yurtcoordinator/internal/lab"
)

// What a node's disk says is no answer while the cloud can be asked.
var freshScenarios = []kit.Scenario{
	{
		Name: "online-reboot", Lab: kit.OnePool, Run: onlineReboot,
		Doc: "a StatefulSet's Pod moves while its node is off; the node boots with the cloud at hand: the old Pod never starts " +
			"a container on it",
	},
}

const (
	onlyName = "only"
	// onlySleep is what its container runs: a process that nothing else is.
	onlySleep = "sleep 86417"
)

func onlineReboot(t *kit.T) {
	node := t.Pool.Follower(t.Pool.SettledAway())
	old := deployOnly(t, node)
	t.Hold(3*time.Second, "the hub's disk is written once a second")
	started := containersStarted(t, old.UID)
	if started == 0 {
		t.Fail("no Event tells of the container of %s, which runs", old.Name)
	}

	t.Say("cutting the power of %s, and moving its Pod as an operator does", node)
	t.Must(t.Lab.Node(t.Ctx, lab.Kill, node, lab.All))
	t.Eventually(t.Config.Timing.Grace+2*t.Config.Timing.Monitor+5*time.Second, node+" is NotReady", func() error {
		if t.Seen.Node(node).Ready == corev1.ConditionTrue {
			return fmt.Errorf("it is Ready")
		}
		return nil
	})
	t.Must(t.Cloud.CoreV1().Pods(kit.Namespace).Delete(t.Ctx, old.Name, metav1.DeleteOptions{
		GracePeriodSeconds: ptr.To[int64](0), Preconditions: metav1.NewUIDPreconditions(string(old.UID)),
	}))
	moved := onlyRuns(t, "it runs elsewhere", func(p *corev1.Pod) bool { return p.Spec.NodeName != node })

	t.Say("powering %s on, with the cloud at hand", node)
	began := time.Now()
	t.Must(t.Lab.Node(t.Ctx, lab.Start, node, lab.All))
	for watched := time.Duration(0); watched < time.Minute; watched = time.Since(began) {
		if runs := t.Node(node).Processes(onlySleep); len(runs) > 0 {
			t.Fail("the old Pod runs on %s again, %.1f s after power on: %v", node, time.Since(began).Seconds(), runs)
		}
		t.Pause(200*time.Millisecond, "watching for the old Pod")
	}
	ready, ok := t.Seen.FirstNode(node, began, func(n kit.NodeAt) bool { return n.Ready == corev1.ConditionTrue })
	if !ok {
		t.Fail("%s is not Ready a minute after power on", node)
	}
	t.Figure("power_on_to_ready_s", ready.Sub(began).Seconds())
	if now := containersStarted(t, old.UID); now != started {
		t.Fail("%s has started %d containers of the old Pod", node, now-started)
	}
	if now := onlyRuns(t, "it runs still", func(*corev1.Pod) bool { return true }); now.UID != moved.UID {
		t.Fail("the Pod %s is another than before: %s, was %s", onlyName, now.UID, moved.UID)
	}
}

// deployOnly runs a StatefulSet of one Pod, on a node if that is there.
func deployOnly(t *kit.T, node string) *corev1.Pod {
	labels := map[string]string{"app": onlyName}
	_, err := t.Cloud.AppsV1().StatefulSets(kit.Namespace).Create(t.Ctx, &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: onlyName},
		Spec: appsv1.StatefulSetSpec{
			Replicas: ptr.To[int32](1), ServiceName: onlyName, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					TerminationGracePeriodSeconds: ptr.To[int64](1),
					Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
						PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{
							Weight: 100,
							Preference: corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{
								Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{node},
							}}},
						}},
					}},
					Containers: []corev1.Container{{
						Name: onlyName, Image: kit.WebImage, Command: []string{"sh", "-c", "exec " + onlySleep},
					}},
				},
			},
		},
	}, metav1.CreateOptions{})
	t.Must(err)
	return onlyRuns(t, "it runs on "+node, func(p *corev1.Pod) bool { return p.Spec.NodeName == node })
}

// onlyRuns waits until the StatefulSet's Pod runs as it should, and returns it.
func onlyRuns(t *kit.T, how string, is func(*corev1.Pod) bool) (pod *corev1.Pod) {
	t.Eventually(60*time.Second, "the Pod of StatefulSet "+onlyName+": "+how, func() error {
		var err error
		pod, err = t.Cloud.CoreV1().Pods(kit.Namespace).Get(t.Ctx, onlyName+"-0", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if pod.Status.Phase != corev1.PodRunning || pod.DeletionTimestamp != nil || !is(pod) {
			return fmt.Errorf("it is %s on %q", pod.Status.Phase, pod.Spec.NodeName)
		}
		return nil
	})
	return pod
}

// containersStarted is how many containers of a Pod kubelets have told to have started.
func containersStarted(t *kit.T, pod types.UID) int {
	events, err := t.Cloud.CoreV1().Events(kit.Namespace).List(t.Ctx, metav1.ListOptions{
		FieldSelector: "reason=Started,involvedObject.uid=" + string(pod),
	})
	t.Must(err)
	n := 0
	for _, e := range events.Items {
		n += int(max(e.Count, 1))
	}
	return n
}
