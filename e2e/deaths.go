package e2e

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"yurtcoordinator/internal/lab"
	"yurtcoordinator/internal/lab/wire"
)

var deathScenarios = []Scenario{
	{
		Name: "kill-one", Quick: true, Lab: pool, run: killOne,
		Doc: "a node is powered off, directly connected and then while delegated: " +
			"NotReady in Kubernetes' own time, its Pods move",
	},
	{
		Name: "kill-one-stock", Lab: stock(pool), run: killOne,
		Doc: "kill-one with Kubernetes' own timing",
	},
}

func killOne(t *T) {
	pods := t.deployWeb()
	leader := t.settledAway()
	node := t.follower(leader)

	t.say("cutting the power of %s, whose link is fine", node)
	t.dies(node, pods, "direct")
	t.say("powering %s on again", node)
	t.must(t.lab.Node(t.ctx, lab.Start, node, lab.All))
	t.eventually(60*time.Second, node+" is Ready again", func() error {
		if n := t.seen.node(node); n.ready != corev1.ConditionTrue {
			return fmt.Errorf("Ready=%s", n.ready)
		}
		return nil
	})
	t.settled(30 * time.Second)

	t.say("moving Pods back to it, then cutting its link, then its power")
	t.scale(int32(2 * len(pods)))
	t.eventually(60*time.Second, "Pods are ready on "+node, func() error {
		here := on(t.seen.livePods(), node)
		for _, p := range here {
			if !p.ready {
				return fmt.Errorf("the Pod %s is not ready", p.name)
			}
		}
		if len(here) == 0 {
			return fmt.Errorf("no Pod is there")
		}
		return nil
	})
	cut := time.Now()
	t.must(t.lab.Cut(t.ctx, lab.WAN, node, wire.Drop))
	t.delegated(node, cut)
	t.dies(node, t.seen.livePods(), "delegated")
	if l := t.seen.lease(node); !l.delegated {
		t.fail("the Lease of %s lost its annotation although it never reported itself", node)
	}
}

// dies cuts a node's power and checks that Kubernetes' own course is taken, in Kubernetes' own time.
func (t *T) dies(node string, pods map[types.UID]podAt, how string) {
	onNode := on(pods, node)
	if len(onNode) == 0 {
		t.fail("no Pod is on %s", node)
	}
	killed := time.Now()
	t.must(t.lab.Node(t.ctx, lab.Kill, node, lab.All))
	// The last heartbeat came before the power went; the cloud looks once in each monitor period. The controller's
	// clock of a node's silence starts when it sees the heartbeat, at its next look: hence two periods.
	limit := t.cfg.Timing.Grace + 2*t.cfg.Timing.Monitor
	t.eventually(limit+2*time.Second, node+" is NotReady", func() error {
		if t.seen.node(node).ready == corev1.ConditionTrue {
			return fmt.Errorf("it is Ready")
		}
		return nil
	})
	noticed, _ := t.seen.firstNode(node, killed, func(n nodeAt) bool { return n.ready != corev1.ConditionTrue })
	if took := noticed.Sub(killed); took > limit {
		t.fail("%s was called NotReady after %v, want at most grace period + 2 monitor periods = %v", node, took, limit)
	}
	t.figure(how+"_death_to_not_ready_s", noticed.Sub(killed).Seconds())
	t.eventually(t.cfg.Timing.Toleration+15*time.Second, "its Pods run elsewhere", func() error {
		now := t.seen.livePods()
		ready := 0
		for uid, p := range now {
			if _, old := onNode[uid]; old {
				return fmt.Errorf("the Pod %s is still there", p.name)
			}
			if p.ready && p.node != node {
				ready++
			}
		}
		if ready < len(pods) {
			return fmt.Errorf("%d of %d Pods are ready on other nodes", ready, len(pods))
		}
		return nil
	})
	t.figure(how+"_death_to_pods_moved_s", time.Since(killed).Seconds())
	// What was on its way when the power went may still arrive: at most as old as a forwarder lets a heartbeat get.
	onTheWay := killed.Add(t.cfg.Timing.Lease / 4)
	if late := t.seen.renewals(node, onTheWay); len(late) > 0 {
		t.fail("the Lease of %s, dead, was renewed %d times, last %.1fs after its death", node, len(late),
			late[len(late)-1].Sub(killed).Seconds())
	}
}
