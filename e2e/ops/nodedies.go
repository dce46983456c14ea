package ops

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"yurtcoordinator/e2e/kit"
	"yurtcoordinator/internal/lab"
)

var nodeDiesScenarios = []kit.Scenario{{
	Name: "coordinator-node-dies-while-cut", Run: coordinatorNodeDies,
	Lab: kit.Joining(lab.Config{Pools: 1, Nodes: 4, Timing: lab.Quick}.AsInstalled(), 0),
	Doc: "An installed pool with a standby is cut off, and its coordinator's machine loses its power. Within 5 s `get`, " +
		"`logs` and `exec` work at the standby, and through any hub, and it shows every node's heartbeats and a Pod's " +
		"crash. One link heals, and its node leads and reports for the others. With everything back, both coordinators " +
		"serve and no Pod was replaced.",
}}

// afterLoss is how soon delegation and kubectl on site are back after any machine's loss. A scenario fails at three times that.
const afterLoss = 5 * time.Second

const speaker = "speaker" // a Pod that says something

func coordinatorNodeDies(t *kit.T) {
	t.Pool.Settled(30 * time.Second)
	names := t.Pool.Nodes()
	standbysReady := func() error {
		return t.Cloud.Condition("p1", "StandbysReady", "True", "")
	}
	_, err := t.Cloud.Objects.Resource(lab.YurtCoordinators).
		Patch(t.Ctx, "p1", types.MergePatchType, []byte(`{"spec":{"replicas":2}}`), metav1.PatchOptions{})
	t.Must(err)
	t.Eventually(90*time.Second, "the standby serves", standbysReady)
	home, standby := t.Pool.CoordinatorIn(0).Spec.NodeName, t.Pool.CoordinatorIn(1).Spec.NodeName
	rest := slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n == home || n == standby })
	at, linked := rest[0], rest[1]
	t.Say("the coordinator is on %s, its standby on %s; the Pod is on %s", home, standby, at)
	pod := deploySpeaker(t, at)
	worksWith(t, names, 0)
	toStandby, byHub := "yurt-coordinator-p1/1", anyContext(names, home)
	t.Eventually(30*time.Second, "the standby shows the Pod", func() error { return operatorSees(t, toStandby) })

	t.Say("cutting all WAN links of the pool, silently")
	cut := t.Cut("pool/p1")
	t.Pool.NoticesCut(names...)
	t.Say("%s loses its power", home)
	alive := slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n == home })
	died := time.Now()
	t.Must(t.Lab.Node(t.Ctx, lab.Kill, home, lab.All))
	for what, context := range map[string]string{"standby": toStandby, "hub": byHub} {
		t.Eventually(3*afterLoss-time.Since(died), "get, logs and exec work by "+context, func() error {
			return operatorSees(t, context)
		})
		t.Figure("death_to_kubectl_by_"+what+"_s", time.Since(died).Seconds())
	}
	worksWith(t, alive, 1)
	for _, node := range alive {
		before := t.Node(node).Metric("yurthub_heartbeats_total", `result="delegated"`)
		t.Eventually(3*afterLoss, "the standby takes the heartbeats of "+node, func() error {
			if now := t.Node(node).Metric("yurthub_heartbeats_total", `result="delegated"`); now <= before {
				return errors.New("none since")
			}
			return nil
		})
	}
	t.Say("the Pod's container crashes")
	_, err = onSite(t, toStandby, "exec", speaker, "--", "kill", "1")
	t.Say("exec ended: %v", err) // with what it killed
	t.Eventually(30*time.Second, "the standby shows the crash", func() error {
		out, err := onSite(t, toStandby, "get", "pod", speaker,
			"--output=jsonpath={.status.containerStatuses[0].restartCount}{.status.containerStatuses[0].ready}")
		if err == nil && out != "1true" {
			err = errors.New(out)
		}
		return err
	})

	t.Say("healing the link of %s alone", linked)
	healed := t.Heal(linked)
	for _, node := range []string{at, standby} {
		t.Eventually(60*time.Second, "heartbeats of "+node+" are forwarded", func() error {
			if _, ok := t.Seen.FirstLease(node, healed, func(l kit.LeaseAt) bool { return l.Delegated }); !ok {
				return errors.New("none since")
			}
			return nil
		})
	}
	t.Figure("one_link_healed_to_all_forwarded_s", time.Since(healed).Seconds())

	t.Say("all is well again, %s after the cut", time.Since(cut).Round(time.Second))
	t.Heal("pool/p1")
	t.Must(t.Lab.Node(t.Ctx, lab.Start, home, lab.All))
	t.Eventually(2*time.Minute, "both coordinators serve", standbysReady)
	worksWith(t, names, 0)
	t.Eventually(60*time.Second, "all nodes are ready", t.Pool.NodesReady)
	now, err := t.Cloud.CoreV1().Pods(metav1.NamespaceDefault).Get(t.Ctx, speaker, metav1.GetOptions{})
	t.Must(err)
	if now.UID != pod || now.DeletionTimestamp != nil {
		t.Fail("the Pod was replaced or evicted")
	}
	t.Eventually(30*time.Second, "the cloud has the one crash", func() error {
		now, err := t.Cloud.CoreV1().Pods(metav1.NamespaceDefault).Get(t.Ctx, speaker, metav1.GetOptions{})
		if err == nil && restartsOf(now) != speaker+"=1" {
			err = errors.New(restartsOf(now))
		}
		return err
	})
}

// anyContext is the context of the operators' kubeconfig that leads to a coordinator by way of a living node's hub: there is one
// for each of the first three nodes.
func anyContext(names []string, dead string) string {
	if names[0] != dead {
		return "yurt-coordinator-p1/any"
	}
	return "yurt-coordinator-p1/any-2"
}

// worksWith waits until the hubs of all of these nodes work with the coordinator in a slot.
func worksWith(t *kit.T, nodes []string, slot int) {
	t.Eventually(2*time.Minute, fmt.Sprintf("hubs work with the coordinator in slot %d", slot), func() error {
		hubs := t.Pool.Hubs()
		for _, node := range nodes {
			if h := hubs[node]; len(h.Coordinators) != 2 || !h.Coordinators[slot].Home || h.Coordinators[slot].Link != "up" {
				return fmt.Errorf("%s says %+v", node, h.Coordinators)
			}
		}
		return nil
	})
}

// deploySpeaker runs a Pod on a node that says one word, and returns its UID.
func deploySpeaker(t *kit.T, node string) types.UID {
	pod, err := t.Cloud.CoreV1().Pods(metav1.NamespaceDefault).Create(t.Ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: speaker},
		Spec: corev1.PodSpec{
			NodeName: node, TerminationGracePeriodSeconds: ptr.To[int64](1),
			Containers: []corev1.Container{{
				Name: speaker, Image: kit.WebImage,
				Command: []string{"sh", "-c", "trap 'exit 1' TERM; echo spoken; while :; do sleep 1; done"},
			}},
		},
	}, metav1.CreateOptions{})
	t.Must(err)
	t.Eventually(60*time.Second, "the Pod is ready", func() error {
		p, err := t.Cloud.CoreV1().Pods(metav1.NamespaceDefault).Get(t.Ctx, speaker, metav1.GetOptions{})
		if err == nil && !kit.PodReady(p) {
			err = fmt.Errorf("its status: %+v", p.Status)
		}
		return err
	})
	return pod.UID
}

// onSite runs an operator's kubectl in a context of the kubeconfig that the cloud has made.
func onSite(t *kit.T, context string, args ...string) (string, error) {
	return kubectlSays(t, kubectlRun{place: place{via: atSite}, args: append([]string{"--context=" + context,
		"--request-timeout=3s"}, args...)})
}

// operatorSees fails unless an operator gets the nodes, the Pod's log, and into the Pod.
func operatorSees(t *kit.T, context string) error {
	for args, want := range map[string][]string{
		"get nodes --output=name":                  t.Pool.Nodes(),
		"logs " + speaker:                          {"spoken"},
		"exec " + speaker + " -- cat /proc/1/comm": {"sh"},
	} {
		out, err := onSite(t, context, strings.Fields(args)...)
		for _, w := range want {
			if err == nil && !strings.Contains(out, w) {
				err = fmt.Errorf("want %s", w)
			}
		}
		if err != nil {
			return fmt.Errorf("kubectl %s says %q: %w", args, out, err)
		}
	}
	return nil
}
