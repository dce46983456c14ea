package cloud

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/lab"
	"yurtcoordinator/lab/e2e/kit"
	"yurtcoordinator/lab/wire"
)

var movedScenarios = []kit.Scenario{{
	Name: "delegated-then-coordinator-moves", Lab: patientWithoutRelays(fourNodes.AsInstalled()),
	Run: delegatedThenCoordinatorMoves,
	Doc: "A node is cut off and delegated, and the coordinator's machine dies; then the next coordinator's node loses all " +
		"its links. The cut node finds each new coordinator on the LAN and is never NotReady, and no Pod is evicted. An " +
		"older coordinator that regains the LAN but not the cloud stops by itself.",
}}

// patientWithoutRelays has Kubernetes' own grace period, which leaves people time to tell the cloud that a machine is dead.
// Pods stay for some time on a node that is not ready. Hubs do not relay, since a cut node would learn of the move from the
// cloud over a neighbour's line.
func patientWithoutRelays(c lab.Config) lab.Config {
	c.Timing = lab.Stock
	c.Timing.Toleration = 3 * time.Minute
	return kit.Unrelayed(c)
}

func delegatedThenCoordinatorMoves(t *kit.T) {
	leader := t.Pool.SettledAway()
	dies := t.Pool.CoordinatorNode()
	cutOff := t.Pool.Follower(leader)
	pods := kit.On(t.DeployWeb(), cutOff)
	if len(pods) == 0 {
		t.Fail("no Pod is on %s", cutOff)
	}
	t.Say("cutting the WAN link of %s", cutOff)
	cut := t.Cut(cutOff)
	t.Node(cutOff).Delegated(cut)

	next := movedByHand(t, dies, cutOff)
	t.Hold(t.Config.Timing.Grace+5*time.Second, "more than a grace period")
	t.NeverNotReady(cut, cutOff)
	t.Must(t.Seen.Untouched(pods, cut))

	backWithPower(t, dies)
	last := movedByItself(t, next, cutOff)
	olderEnds(t, next, last)
	for uid := range pods {
		for _, p := range t.Seen.OfPod(uid) {
			if p.At.After(cut) && (p.Deleting || p.Gone || p.Restarts != pods[uid].Restarts) {
				t.Fail("the Pod %s on %s was deleted or restarted %.1fs after the cut", p.Name, p.Node, p.At.Sub(cut).Seconds())
			}
		}
	}

	t.Say("healing all links")
	healed := time.Now()
	for _, name := range []string{cutOff, next} {
		t.Heal(name)
	}
	t.Node(cutOff).Direct(healed)
	ledBy(t, t.Pool.Nodes(), 30*time.Second)
	t.Eventually(time.Minute, "only one coordinator runs", func() error {
		if running := t.Pool.CoordinatorsRunning(); !slices.Equal(running, []string{last}) {
			return fmt.Errorf("coordinators run on %v, want %s", running, last)
		}
		return nil
	})
}

// movedByHand ends the power of the coordinator's node, and at once tells the cloud that the node is dead, as people would. It
// waits until a coordinator runs on another node, within the grace period, and returns that node.
func movedByHand(t *kit.T, was, cutOff string) (next string) {
	pod := t.Pool.CoordinatorPod()
	t.Say("cutting the power of %s, where the coordinator is, and telling the cloud that it is dead", was)
	died := time.Now()
	t.Must(t.Lab.Node(t.Ctx, lab.Kill, was, lab.All))
	cordon(t, was, true)
	t.Must(t.Cloud.CoreV1().Pods(pod.Namespace).Delete(t.Ctx, pod.Name,
		metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}))
	next = newCoordinator(t, time.Minute, "its Pod is on another node, and Ready", func(p *corev1.Pod) bool {
		return p.Spec.NodeName != was
	}).Spec.NodeName
	t.Figure("told_to_coordinator_elsewhere_s", time.Since(died).Seconds())
	found(t, cutOff, next, "moved_to_found_s")
	t.Figure("death_to_found_s", time.Since(died).Seconds())
	return next
}

// found waits until the hub of a cut-off node has found the coordinator on its next node, and the cut-off node's heartbeats
// reach the cloud again.
func found(t *kit.T, cutOff, next, figure string) {
	ready := time.Now()
	want := "https://" + net.JoinHostPort(t.Node(next).Address(), strconv.Itoa(edge.PortCoordinator))
	t.Eventually(time.Minute, cutOff+" has found the coordinator on "+next, func() error {
		h := t.Pool.Hubs()[cutOff]
		if h.CoordinatorAddress != want || h.Coordinator != "up" || h.Role != kit.RoleFollower || h.Cloud == "up" {
			return fmt.Errorf("its hub is %s of a coordinator at %s (%s), with a cloud that is %s", h.Role, h.CoordinatorAddress,
				h.Coordinator, h.Cloud)
		}
		return nil
	})
	t.Figure(figure, time.Since(ready).Seconds())
	since := time.Now()
	t.Eventually(t.Config.Timing.Grace, "its heartbeats reach the cloud again", func() error {
		if len(t.Seen.Renewals(cutOff, since)) == 0 || !t.Seen.Lease(cutOff).Delegated {
			return errors.New("no renewal since")
		}
		return nil
	})
}

func cordon(t *kit.T, node string, off bool) {
	patch := fmt.Sprintf(`{"spec":{"unschedulable":%v}}`, off)
	_, err := t.Cloud.CoreV1().Nodes().Patch(t.Ctx, node, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	t.Must(err)
}

// backWithPower gives a machine its power back, so that the next fault leaves enough nodes for kube-controller-manager to act.
func backWithPower(t *kit.T, name string) {
	t.Say("%s has power again", name)
	t.Must(t.Lab.Node(t.Ctx, lab.Start, name, lab.All))
	cordon(t, name, false)
	t.Eventually(90*time.Second, name+" is Ready and follows", func() error {
		if h := t.Pool.Hubs()[name]; h.Role != kit.RoleFollower && h.Role != kit.RoleLeader {
			return fmt.Errorf("its hub is %q", h.Role)
		}
		if t.Seen.Node(name).Ready != corev1.ConditionTrue {
			return errors.New("it is NotReady")
		}
		return nil
	})
}

// movedByItself cuts all links of the coordinator's node, waits until the cloud has moved the coordinator, and returns its new
// node. Until then the cut-off node is as silent as the coordinator's node, because nothing forwards its heartbeats.
func movedByItself(t *kit.T, was, cutOff string) (last string) {
	t.Say("%s, where the coordinator is, loses both its links", was)
	lost := time.Now()
	for _, n := range []lab.Network{lab.WAN, lab.LAN} {
		t.Must(t.Lab.Cut(t.Ctx, n, was, wire.Drop))
	}
	within := t.Config.Timing.Grace + 90*time.Second
	last = newCoordinator(t, within, "its Pod is on another node, and Ready", func(p *corev1.Pod) bool {
		return p.Spec.NodeName != was
	}).Spec.NodeName
	t.Figure("lost_to_coordinator_elsewhere_s", time.Since(lost).Seconds())
	found(t, cutOff, last, "moved_again_to_found_s")
	t.Figure("cut_node_silent_s", t.Seen.LargestAge(cutOff, lost, time.Now()).Seconds())
	t.Eventually(30*time.Second, cutOff+" is Ready", func() error {
		if now := t.Seen.Node(cutOff).Ready; now != corev1.ConditionTrue {
			return fmt.Errorf("it is Ready=%s", now)
		}
		return nil
	})
	return last
}

// olderEnds heals only the LAN of the older coordinator's node. It expects that this coordinator ends, that the node's hub goes
// to the younger coordinator, and that the node is delegated.
func olderEnds(t *kit.T, was, last string) {
	t.Say("%s has its LAN back, and no WAN link", was)
	back := time.Now()
	t.Must(t.Lab.Heal(t.Ctx, lab.LAN, was))
	t.Eventually(time.Minute, "the older coordinator ends", func() error {
		path, err := t.Lab.Log(was, string(lab.Coordinator))
		if err != nil {
			return err
		}
		log, err := os.ReadFile(path)
		if err == nil && !strings.Contains(string(log), "a younger coordinator of this pool takes the place") {
			err = errors.New("it does not say so in its log")
		}
		return err
	})
	t.Figure("lan_back_to_older_ends_s", time.Since(back).Seconds())
	found(t, was, last, "ended_to_found_s")
}
