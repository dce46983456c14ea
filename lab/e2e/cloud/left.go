package cloud

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yurtcoordinator/apis/apps/v1alpha1"
	"yurtcoordinator/internal/edge"
	"yurtcoordinator/lab"
	"yurtcoordinator/lab/e2e/kit"
)

// fiveNodes is a pool that has three nodes left when two have gone.
var fiveNodes = lab.Config{Pools: 1, Nodes: 5, Timing: lab.Quick}

var leftScenarios = []kit.Scenario{{
	Name: "left-with-its-node", Lab: kit.Unrelayed(fiveNodes.AsInstalled()), Run: leftWithItsNode,
	Doc: "The coordinator's node gets another pool's label while no other node takes Pods. The status says so, and the " +
		"coordinator still learns who is denied. Once others take Pods, it moves to one of its pool, with all hubs. Then the " +
		"Node of its new machine is deleted: it moves again. A node that is cut off after that stays ready.",
}}

func leftWithItsNode(t *kit.T) {
	t.Pool.SettledAway()
	pods, first := t.DeployWeb(), t.Pool.CoordinatorPod()
	from := first.Spec.NodeName
	but := func(names []string, gone string) []string {
		return slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n == gone })
	}
	others := but(t.Pool.Nodes(), from)
	t.Cloud.MakePool("elsewhere")
	t.Say("%s, where the coordinator is, goes to another pool, and no other node takes Pods", from)
	for _, n := range others {
		closed(t, n)
	}
	left := time.Now()
	t.Kubectls([][]string{{"label", "node", from, edge.LabelNodePool + "=elsewhere", "--overwrite"}})
	saysLeft(t)
	refusesTheDenied(t)
	if now := t.Pool.CoordinatorPod(); now.UID != first.UID {
		t.Fail("the coordinator has moved to %s, which takes no Pods", now.Spec.NodeName)
	}

	t.Say("the others take Pods again")
	open := time.Now()
	for _, n := range others {
		cordon(t, n, false)
	}
	second := movesInto(t, others, 2*time.Minute)
	t.Figure("open_to_coordinator_elsewhere_s", time.Since(open).Seconds())

	t.Say("the Node of %s is deleted, where the coordinator is now", second)
	deleted := time.Now()
	t.Must(t.Cloud.CoreV1().Nodes().Delete(t.Ctx, second, metav1.DeleteOptions{}))
	others = but(others, second)
	third := movesInto(t, others, 2*time.Minute)
	t.Figure("deleted_to_coordinator_elsewhere_s", time.Since(deleted).Seconds())

	leader := ledBy(t, others, 90*time.Second)
	cutOff := others[slices.IndexFunc(others, func(n string) bool { return n != leader && n != third })]
	t.Say("cutting the WAN link of %s", cutOff)
	cut := t.Cut(cutOff)
	t.Node(cutOff).Delegated(cut)
	t.Hold(t.Config.Timing.Grace+5*time.Second, "more than a grace period")
	t.NeverNotReady(left, cutOff)
	t.Must(t.Seen.Untouched(kit.On(pods, cutOff), left))
	t.Node(cutOff).Direct(t.Heal(cutOff))
}

// closed cordons a node, and waits for the taint that says so.
func closed(t *kit.T, name string) {
	cordon(t, name, true)
	t.Eventually(20*time.Second, name+" takes no Pods", func() error {
		n, err := t.Cloud.CoreV1().Nodes().Get(t.Ctx, name, metav1.GetOptions{})
		if err == nil && !slices.ContainsFunc(n.Spec.Taints, func(taint corev1.Taint) bool {
			return taint.Key == corev1.TaintNodeUnschedulable
		}) {
			err = errors.New("it has no taint")
		}
		return err
	})
}

// saysLeft waits until the YurtCoordinator says that the coordinator's node has left the pool.
func saysLeft(t *kit.T) {
	t.Figure("left_to_said_s", t.Eventually(20*time.Second, "the status says that the node has left", func() error {
		return t.Cloud.Condition("p1", v1alpha1.YurtCoordinatorReady, v1alpha1.ConditionFalse, "NodeLeftPool")
	}).Seconds())
}

// refusesTheDenied denies the pool's operators for a while, whom the coordinator lets in before and after.
func refusesTheDenied(t *kit.T) {
	site := t.Pool.Coordinator(lab.Operator)
	deny := func(list string) {
		t.Kubectls([][]string{{
			"patch", "yurtcoordinator", "p1", "--type=merge", "-p", `{"spec":{"deniedUsers":` + list + `}}`,
		}})
	}
	letsIn := func() error {
		_, err := site.CoreV1().Nodes().List(t.Ctx, metav1.ListOptions{})
		return err
	}
	t.Must(letsIn())
	deny(fmt.Sprintf("[%q]", edge.PoolName("p1").OperatorUser()))
	t.Figure("denied_after_s", t.Eventually(90*time.Second, "the coordinator refuses who is denied", func() error {
		if err := letsIn(); err == nil || !strings.Contains(err.Error(), "withdrawn") {
			return errors.Join(errors.New("it does not say that a certificate is withdrawn"), err)
		}
		return nil
	}).Seconds())
	deny("null")
	t.Eventually(90*time.Second, "it lets in who is denied no more", letsIn)
}

// movesInto waits until the coordinator serves on one of these nodes, which all follow it, and returns that node.
func movesInto(t *kit.T, nodes []string, within time.Duration) string {
	to := newCoordinator(t, within, "the coordinator is on another node of its pool, and Ready", func(p *corev1.Pod) bool {
		return slices.Contains(nodes, p.Spec.NodeName)
	}).Spec.NodeName
	coordinatorIsReady(t, "p1", 30*time.Second)
	ledBy(t, nodes, 90*time.Second)
	return to
}
