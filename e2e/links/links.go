package links

import (
	"fmt"
	"time"

	"yurtcoordinator/e2e/kit"
	"yurtcoordinator/internal/lab"
	"yurtcoordinator/internal/lab/wire"
)

func stock(c lab.Config) lab.Config {
	c.Timing = lab.Stock
	return c
}

var linkScenarios = []kit.Scenario{
	{
		Name: "cut-one", Tier: kit.Core, Lab: kit.OnePool, Run: cutOne,
		Doc: "A node's link goes silent for three times as long as Kubernetes waits before it evicts. The node is never " +
			"NotReady, keeps its Pods and endpoints, and gets no new Pods until the link heals.",
	},
	{
		Name: "cut-one-stock", Lab: stock(kit.OnePool), Run: cutOne,
		Doc: "`cut-one` with Kubernetes' own timing: a 50 s grace period and a heartbeat every 10 s.",
	},
	{
		Name: "cut-one-300ms", Lab: kit.Beside(kit.OnePool, 1), Run: farCutOne,
		Doc: "`cut-one-stock` with a 300 ms round trip to the cloud. The cut is noticed in time; a node without a hub, " +
			"cut off at the same moment, is given up.",
	},
	{
		Name: "cut-coordinator-node", Lab: kit.OnePool, Run: cutCoordinatorsNode,
		Doc: "`cut-one` for the node that the coordinator runs on. Another node forwards its heartbeats, and the rest of " +
			"the pool carries on.",
	},
	{
		Name: "cut-modes", Lab: kit.OnePool, Run: cutModes,
		Doc: "A link that refuses connections, a link that is silent in one direction only, and a lost LAN. A node is " +
			"delegated exactly where it should be, and nowhere else.",
	},
	{
		Name: "cut-pool", Lab: kit.OnePool, Run: cutPool,
		Doc: "All links of a pool are cut for longer than the grace period. One heals, and its node reports for the " +
			"others, which are Ready again; then the rest heal. Nothing crashes, and all roles are right within 10 s.",
	},
}

func cutOne(t *kit.T) {
	pods := t.DeployWeb()
	node := t.Pool.Follower(t.Pool.SettledAway())
	longest := askThrough(t, node)
	t.Node(node).CutOff(pods, nil)
	waited := longest()
	t.Figure("longest_request_s", waited.Seconds())
	if waited > 3*mostInFlight {
		t.Fail("a request waited %v when the link of %s went silent, want at most %v", waited, node, mostInFlight)
	}
}

func cutCoordinatorsNode(t *kit.T) {
	pods := t.DeployWeb()
	t.Pool.SettledAway()
	t.Node(t.Pool.CoordinatorNode()).CutOff(pods, nil)
	t.Pool.Settled(10 * time.Second)
}

func cutModes(t *kit.T) {
	leader := t.Pool.SettledAway()
	node := t.Pool.Follower(leader)
	for _, fault := range []wire.Fault{wire.Reject, wire.OneWay} {
		t.Say("cutting the WAN link of %s, mode %s", node, fault)
		cut := time.Now()
		t.Must(t.Lab.Cut(t.Ctx, lab.WAN, node, fault))
		t.Node(node).Delegated(cut)
		t.NeverNotReady(cut, node)
		t.Heal(node)
		t.Node(node).Direct(time.Now())
	}

	t.Say("cutting the LAN of %s, whose WAN link is fine", node)
	cut := time.Now()
	t.Must(t.Lab.Cut(t.Ctx, lab.LAN, node, wire.Drop))
	t.Eventually(15*time.Second, "its hub is pending, all others go on", func() error {
		for name, h := range t.Pool.Hubs() {
			if (name == node) != (h.Role == kit.RolePending) || h.Cloud != "up" {
				return fmt.Errorf("%s says %+v", name, h)
			}
		}
		return nil
	})
	t.Hold(t.Config.Timing.Grace, "a grace period without a LAN")
	t.NeverNotReady(cut, node)
	if _, tainted := t.Seen.FirstNode(node, cut, func(n kit.NodeAt) bool { return n.Taint != "" }); tainted {
		t.Fail("%s was tainted although it reports itself", node)
	}
	age := t.Seen.LargestAge(node, cut, time.Now())
	t.Figure("largest_lease_age_without_lan_s", age.Seconds())
	if age > t.Config.Timing.Grace/2 {
		t.Fail("the Lease of %s went %v without being renewed: its heartbeats wait for the coordinator", node, age)
	}
	t.Must(t.Lab.Heal(t.Ctx, lab.LAN, node))
	t.Pool.Settled(10 * time.Second)
}

func cutPool(t *kit.T) {
	t.Pool.Settled(30 * time.Second)
	before := running(t)
	t.Say("cutting all WAN links of the pool")
	cut := t.Cut("pool/p1")
	t.Eventually(15*time.Second, "all hubs call the cloud down, and nobody leads", func() error {
		for name, h := range t.Pool.Hubs() {
			if h.Cloud != "down" || h.Role != kit.RoleFollower {
				return fmt.Errorf("%s says %+v", name, h)
			}
		}
		return nil
	})
	t.Eventually(t.Config.Timing.Grace+10*time.Second, "the cloud has noticed that all are silent", func() error {
		for _, name := range t.Pool.Nodes() {
			if t.Seen.NeverNotReady(name, cut) == nil {
				return fmt.Errorf("%s is still Ready", name)
			}
		}
		return nil
	})
	speaker := t.Pool.Nodes()[0]
	t.Say("healing the link of %s, which speaks for the others", speaker)
	healedOne := t.Heal(speaker)
	t.Eventually(30*time.Second, "those that Kubernetes had given up are Ready again, and delegated", func() error {
		for _, name := range t.Pool.Nodes() {
			if n := t.Seen.Node(name); n.Ready != "True" || (n.Taint != "") != (name != speaker) {
				return fmt.Errorf("%s: %+v", name, n)
			}
		}
		return nil
	})
	t.Figure("one_healed_to_all_ready_s", time.Since(healedOne).Seconds())
	t.Say("healing all links")
	t.Heal("pool/p1")
	healed := time.Now()
	t.Pool.Settled(10 * time.Second)
	t.Figure("healed_to_roles_right_s", time.Since(healed).Seconds())
	t.Eventually(20*time.Second, "all nodes are Ready and untainted", func() error {
		for _, name := range t.Pool.Nodes() {
			if n := t.Seen.Node(name); n.Ready != "True" || n.Taint != "" {
				return fmt.Errorf("%s: %+v", name, n)
			}
		}
		return nil
	})
	t.Figure("healed_to_all_ready_s", time.Since(healed).Seconds())
	t.Must(same(before, running(t)))
}

// running returns the process id of every program of the first pool.
func running(t *kit.T) map[string]int {
	s, err := t.Lab.Status(t.Ctx)
	t.Must(err)
	out := map[string]int{}
	for _, n := range s.Nodes {
		for _, p := range n.Processes {
			if p.State == "running" {
				out[n.Name+"/"+p.Name] = p.PID
			}
		}
	}
	return out
}

// same fails if a program has ended, or has restarted.
func same(before, after map[string]int) error {
	for name, pid := range before {
		if after[name] != pid {
			return fmt.Errorf("%s is not the process that it was: it crashed, or was started again", name)
		}
	}
	return nil
}
