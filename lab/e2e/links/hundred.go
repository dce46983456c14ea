package links

import (
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"yurtcoordinator/lab"
	"yurtcoordinator/lab/e2e/kit"
	"yurtcoordinator/lab/line"
	"yurtcoordinator/lab/wire"
)

var hundredScenarios = []kit.Scenario{{
	Name: "hundred-cut", Run: hundredCut,
	Lab: kit.Unrelayed(lab.Config{Pools: 1, Nodes: 100, Timing: lab.Stock, Kubelet: lab.Hollow, NoProxy: true}),
	Doc: "A pool of 100 nodes, 600 ms from the cloud. 99 of them lose their links at once, and nobody relays: the one that is " +
		"left speaks for all, and none is called NotReady.",
}}

// hundredCut leaves the one link of a node that did not lead.
func hundredCut(t *kit.T) {
	names := t.Pool.Nodes()
	t.Eventually(5*time.Minute, "all nodes are ready", t.Pool.NodesReady)
	t.Shape(lab.WAN, "pool/p1", line.Shape{Delay: 300 * time.Millisecond}, 1, false)
	t.Hold(time.Minute, "all is well so far from the cloud")
	var leader string
	t.Eventually(time.Minute, "all hubs know the leader", func() error {
		hubs := t.Pool.Hubs()
		for _, node := range names {
			if leader = hubs[node].Leader; leader == "" || leader != hubs[names[0]].Leader {
				return fmt.Errorf("%s says %q, %s %q", node, leader, names[0], hubs[names[0]].Leader)
			}
		}
		return nil
	})
	left := names[len(names)-1]
	if left == leader {
		left = names[len(names)-2]
	}
	t.Say("all lose their links but %s; %s leads", left, leader)
	cut := time.Now()
	var all errgroup.Group
	for _, node := range others(names, left) {
		all.Go(func() error { return t.Lab.Cut(t.Ctx, lab.WAN, node, wire.Drop) })
	}
	t.Must(all.Wait())
	t.Figure("cutting_took_s", time.Since(cut).Seconds())
	t.Hold(6*t.Config.Timing.Grace, "six grace periods with one link")
	var oldest time.Duration
	for _, node := range names {
		t.NeverNotReady(cut, node)
		oldest = max(oldest, t.Seen.LargestAge(node, cut, time.Now()))
	}
	t.Figure("oldest_lease_s", oldest.Seconds())
	hubs := t.Pool.Hubs()
	for _, node := range others(names, left) {
		if hubs[node].Cloud == "up" {
			t.Fail("the link of %s is not cut", node)
		}
	}
	if h := hubs[left]; h.Role != kit.RoleLeader {
		t.Fail("%s does not lead: %+v", left, h)
	}
}
