package links

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"yurtcoordinator/lab"
	"yurtcoordinator/lab/e2e/kit"
)

var deathScenarios = []kit.Scenario{
	{
		Name: "kill-one", Tier: kit.Core, Lab: kit.OnePool, Run: killOne,
		Doc: "A node is powered off, first with its link up and then while delegated. It turns NotReady within " +
			"Kubernetes' grace period, its Pods move, and nobody renews its Lease for it.",
	},
}

func killOne(t *kit.T) {
	pods := t.DeployWeb()
	leader := t.Pool.SettledAway()
	node := t.Pool.Follower(leader)

	t.Say("cutting the power of %s, whose link is fine", node)
	dies(t, node, pods, "direct")
	t.Say("powering %s on again", node)
	t.Must(t.Lab.Node(t.Ctx, lab.Start, node, lab.All))
	t.Eventually(60*time.Second, node+" is Ready again", func() error {
		if n := t.Seen.Node(node); n.Ready != corev1.ConditionTrue {
			return fmt.Errorf("Ready=%s", n.Ready)
		}
		return nil
	})
	t.Pool.Settled(30 * time.Second)

	t.Say("moving Pods back to it, then cutting its link, then its power")
	t.Scale(int32(2 * len(pods)))
	t.Eventually(60*time.Second, "Pods are ready on "+node, func() error {
		here := kit.On(t.Seen.LivePods(), node)
		for _, p := range here {
			if !p.Ready {
				return fmt.Errorf("the Pod %s is not ready", p.Name)
			}
		}
		if len(here) == 0 {
			return fmt.Errorf("no Pod is there")
		}
		return nil
	})
	cut := t.Cut(node)
	t.Node(node).Delegated(cut)
	dies(t, node, t.Seen.LivePods(), "delegated")
	if l := t.Seen.Lease(node); !l.Delegated {
		t.Fail("the Lease of %s lost its annotation although it never reported itself", node)
	}
}

// dies cuts a node's power and checks that Kubernetes takes its own course, in its own time.
func dies(t *kit.T, node string, pods map[types.UID]kit.PodAt, how string) {
	onNode := kit.On(pods, node)
	if len(onNode) == 0 {
		t.Fail("no Pod is on %s", node)
	}
	killed := time.Now()
	t.Must(t.Lab.Node(t.Ctx, lab.Kill, node, lab.All))
	// The last heartbeat came before the power went; the cloud looks once in each monitor period. The controller's
	// clock of a node's silence starts when it sees the heartbeat, at its next look: hence two periods.
	limit := t.Config.Timing.Grace + 2*t.Config.Timing.Monitor
	t.Eventually(limit+2*time.Second, node+" is NotReady", func() error {
		if t.Seen.Node(node).Ready == corev1.ConditionTrue {
			return fmt.Errorf("it is Ready")
		}
		return nil
	})
	noticed, _ := t.Seen.FirstNode(node, killed, func(n kit.NodeAt) bool { return n.Ready != corev1.ConditionTrue })
	if took := noticed.Sub(killed); took > limit {
		t.Fail("%s was called NotReady after %v, want at most grace period + 2 monitor periods = %v", node, took, limit)
	}
	t.Figure(how+"_death_to_not_ready_s", noticed.Sub(killed).Seconds())
	t.Eventually(t.Config.Timing.Toleration+15*time.Second, "its Pods run elsewhere", func() error {
		now := t.Seen.LivePods()
		ready := 0
		for uid, p := range now {
			if _, old := onNode[uid]; old {
				return fmt.Errorf("the Pod %s is still there", p.Name)
			}
			if p.Ready && p.Node != node {
				ready++
			}
		}
		if ready < len(pods) {
			return fmt.Errorf("%d of %d Pods are ready on other nodes", ready, len(pods))
		}
		return nil
	})
	t.Figure(how+"_death_to_pods_moved_s", time.Since(killed).Seconds())
	t.Eventually(10*time.Second, "none of its endpoints is left", func() error {
		return t.Seen.EndpointsGone(kit.Addresses(onNode))
	})
	// What was on its way when the power went may still arrive, as old as a forwarder lets a heartbeat get.
	onTheWay := killed.Add(t.Config.Timing.Lease / 4)
	if late := t.Seen.Renewals(node, onTheWay); len(late) > 0 {
		t.Fail("the Lease of %s, dead, was renewed %d times, last %.1fs after its death", node, len(late),
			late[len(late)-1].Sub(killed).Seconds())
	}
}
