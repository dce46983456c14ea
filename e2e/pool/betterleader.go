package pool

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"yurtcoordinator/e2e/kit"
	"yurtcoordinator/internal/lab"
	"yurtcoordinator/internal/lab/line"
	"yurtcoordinator/internal/lab/load"
)

var betterLeaderScenarios = []kit.Scenario{{
	Name: "better-leader", Run: betterLeader,
	Lab: lab.Config{Pools: 1, Nodes: 4, Timing: lab.Stock, Kubelet: lab.Hollow, NoProxy: true},
	Doc: "The leader's link gains 600 ms and loses 5 % of its packets. Within about 100 s a node with a good link leads " +
		"instead, once. Nothing is listed again over the WAN, a delegated node stays forwarded, and while links are equal " +
		"nothing moves.",
}}

// movesIn is how long it may take until a leader with a bad line is another: half a minute until its heartbeats say so, and one
// in which another line must be better throughout. A scenario fails at three times that.
const movesIn = 100 * time.Second

func betterLeader(t *kit.T) {
	leader := t.Pool.SettledAway()
	spec := load.Spec{Services: 40, EndpointsEach: 20, Nodes: t.Pool.Nodes()}
	_, err := load.Services(t.Ctx, t.Cloud, spec)
	t.Must(err)
	slices := kit.EndpointSlices
	t.Pool.Shared(30*time.Second, slices.Name)
	lists := len(t.Pool.ListsOverWAN(slices.Resource))

	ended := terms(t)
	t.Hold(movesIn, "all lines are equal")
	if now := terms(t); now != ended || t.Pool.Settled(10*time.Second) != leader {
		t.Fail("%v terms have ended while all lines were equal, before it were %v", now, ended)
	}

	cutOff := t.Pool.Follower(leader)
	t.Say("cutting the WAN link of %s, which %s forwards for", cutOff, leader)
	cut := t.Cut(cutOff)
	t.Node(cutOff).Delegated(cut)

	t.Say("600 ms and a loss of 5 %% each way for %s, the leader", leader)
	shaped := time.Now()
	t.Shape(lab.WAN, leader, line.Shape{Delay: 300 * time.Millisecond, Loss: 0.05}, 1, false)
	next := ""
	t.Eventually(3*movesIn, "another node leads", func() error {
		var err error
		if next, err = t.Pool.Leader(t.Pool.Hubs()); err == nil && next == leader {
			return fmt.Errorf("%s still leads", leader)
		}
		return err
	})
	t.Figure("bad_line_to_next_leader_s", time.Since(shaped).Seconds())
	if next == cutOff {
		t.Fail("%s leads, whose link is cut", next)
	}
	t.Hold(2*time.Minute, next+" leads")
	if now, err := t.Pool.Leader(t.Pool.Hubs()); err != nil || now != next {
		t.Fail("%s leads, %v, want that it stays %s", now, err, next)
	}
	yielded := t.Node(leader).Metric("yurthub_leader_terms_total", `end="yielded"`)
	if now := terms(t); now != ended+1 || yielded != 1 {
		t.Fail("%v terms have ended, %v of them for a better line, want 1", now-ended, yielded)
	}
	if again := t.Pool.NewLists(slices.Resource, lists); len(again) > 0 {
		t.Fail("%s were listed over the WAN again: %+v", slices.Name, again)
	}
	age := t.Seen.LargestAge(cutOff, shaped, time.Now())
	t.Figure("delegated_largest_heartbeat_age_s", age.Seconds())
	lost := func(n kit.NodeAt) bool { return n.Ready != corev1.ConditionTrue }
	if at, was := t.Seen.FirstNode(cutOff, cut, lost); was || age > t.Config.Timing.Grace/2 {
		t.Fail("%s was not Ready at %v; its oldest heartbeat was %v old", cutOff, at, age)
	}

	healed := t.Heal(cutOff)
	t.Node(cutOff).Direct(healed)
	t.Pool.Settled(30 * time.Second)
	t.Pool.Shared(30*time.Second, slices.Name)
}

// terms returns how many terms of the pool's hubs have ended.
func terms(t *kit.T) (ended float64) {
	for _, node := range t.Pool.Nodes() {
		ended += t.Node(node).Metric("yurthub_leader_terms_total")
	}
	return ended
}
