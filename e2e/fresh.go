package e2e

import (
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"yurtcoordinator/internal/lab"
)

// What a node's disk says is no answer while the cloud can be asked.
var freshScenarios = []Scenario{
	{
		Name: "online-reboot", Lab: pool, run: onlineReboot,
		Doc: "a StatefulSet's Pod moves while its node is off; the node boots with the cloud at hand: the old Pod never starts " +
			"a container on it",
	},
}

const (
	onlyName = "only"
	// onlySleep is what its container runs: a process that nothing else is.
	onlySleep = "sleep 86417"
)

func onlineReboot(t *T) {
	node := t.follower(t.settledAway())
	old := t.deployOnly(node)
	t.hold(3*time.Second, "the hub's disk is written once a second")
	started := t.containersStarted(old.UID)
	if started == 0 {
		t.fail("no Event tells of the container of %s, which runs", old.Name)
	}

	t.say("cutting the power of %s, and moving its Pod as an operator does", node)
	t.must(t.lab.Node(t.ctx, lab.Kill, node, lab.All))
	t.eventually(t.cfg.Timing.Grace+2*t.cfg.Timing.Monitor+5*time.Second, node+" is NotReady", func() error {
		if t.seen.node(node).ready == corev1.ConditionTrue {
			return fmt.Errorf("it is Ready")
		}
		return nil
	})
	t.must(t.cloud.CoreV1().Pods(namespace).Delete(t.ctx, old.Name, metav1.DeleteOptions{
		GracePeriodSeconds: ptr.To[int64](0), Preconditions: metav1.NewUIDPreconditions(string(old.UID)),
	}))
	moved := t.onlyRuns("it runs elsewhere", func(p *corev1.Pod) bool { return p.Spec.NodeName != node })

	t.say("powering %s on, with the cloud at hand", node)
	began := time.Now()
	t.must(t.lab.Node(t.ctx, lab.Start, node, lab.All))
	for watched := time.Duration(0); watched < time.Minute; watched = time.Since(began) {
		if runs := t.processes(node, onlySleep); len(runs) > 0 {
			t.fail("the old Pod runs on %s again, %.1f s after power on: %v", node, time.Since(began).Seconds(), runs)
		}
		t.pause(200*time.Millisecond, "watching for the old Pod")
	}
	ready, ok := t.seen.firstNode(node, began, func(n nodeAt) bool { return n.ready == corev1.ConditionTrue })
	if !ok {
		t.fail("%s is not Ready a minute after power on", node)
	}
	t.figure("power_on_to_ready_s", ready.Sub(began).Seconds())
	if now := t.containersStarted(old.UID); now != started {
		t.fail("%s has started %d containers of the old Pod", node, now-started)
	}
	if now := t.onlyRuns("it runs still", func(*corev1.Pod) bool { return true }); now.UID != moved.UID {
		t.fail("the Pod %s is another than before: %s, was %s", onlyName, now.UID, moved.UID)
	}
}

// deployOnly runs a StatefulSet of one Pod, on a node if that is there.
func (t *T) deployOnly(node string) *corev1.Pod {
	labels := map[string]string{"app": onlyName}
	_, err := t.cloud.AppsV1().StatefulSets(namespace).Create(t.ctx, &appsv1.StatefulSet{
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
						Name: onlyName, Image: webImage, Command: []string{"sh", "-c", "exec " + onlySleep},
					}},
				},
			},
		},
	}, metav1.CreateOptions{})
	t.must(err)
	return t.onlyRuns("it runs on "+node, func(p *corev1.Pod) bool { return p.Spec.NodeName == node })
}

// onlyRuns waits until the StatefulSet's Pod runs as it should, and returns it.
func (t *T) onlyRuns(how string, is func(*corev1.Pod) bool) (pod *corev1.Pod) {
	t.eventually(60*time.Second, "the Pod of StatefulSet "+onlyName+": "+how, func() error {
		var err error
		pod, err = t.cloud.CoreV1().Pods(namespace).Get(t.ctx, onlyName+"-0", metav1.GetOptions{})
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
func (t *T) containersStarted(pod types.UID) int {
	events, err := t.cloud.CoreV1().Events(namespace).List(t.ctx, metav1.ListOptions{
		FieldSelector: "reason=Started,involvedObject.uid=" + string(pod),
	})
	t.must(err)
	n := 0
	for _, e := range events.Items {
		n += int(max(e.Count, 1))
	}
	return n
}
