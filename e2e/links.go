package e2e

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"yurtcoordinator/internal/lab"
	"yurtcoordinator/internal/lab/wire"
)

var pool = lab.Config{Pools: 1, Nodes: 3, Timing: lab.Quick}

func stock(c lab.Config) lab.Config {
	c.Timing = lab.Stock
	return c
}

var linkScenarios = []Scenario{
	{
		Name: "cut-one", Quick: true, Lab: pool, run: cutOne,
		Doc: "a node loses its WAN link silently: it stays Ready, its Pods and endpoints stay, " +
			"new Pods go elsewhere; then it heals",
	},
	{
		Name: "cut-one-stock", Lab: stock(pool), run: cutOne,
		Doc: "cut-one with Kubernetes' own timing: 50 s grace period, heartbeats every 10 s",
	},
	{
		Name: "cut-modes", Quick: true, Lab: pool, run: cutModes,
		Doc: "a link that refuses, one that is silent one way only, and a lost LAN: " +
			"delegated where it must be, and only there",
	},
	{
		Name: "cut-pool", Quick: true, Lab: pool, run: cutPool,
		Doc: "all WAN links of a pool are cut for longer than the grace period; one is healed, whose node speaks for the " +
			"others until they are, too: nothing crashes, and all roles are right again within 10 s",
	},
}

func cutOne(t *T) {
	pods := t.deployWeb()
	leader := t.settledAway()
	node := t.follower(leader)
	onNode := on(pods, node)
	if len(onNode) == 0 {
		t.fail("no Pod of the Deployment is on %s", node)
	}

	t.answers(node)

	t.say("cutting the WAN link of %s, silently", node)
	cut := time.Now()
	t.must(t.lab.Cut(t.ctx, lab.WAN, node, wire.Drop))
	t.delegated(node, cut)
	t.say("scaling the Deployment up while %s is cut off", node)
	t.scale(int32(len(pods) + 3))
	t.hold(time.Until(cut.Add(3*(t.cfg.Timing.Grace+t.cfg.Timing.Toleration))),
		"three times the time in which Kubernetes evicts")

	now := time.Now()
	t.must(t.seen.neverNotReady(node, cut))
	t.must(t.seen.untouched(onNode, cut))
	t.must(t.seen.endpointsKept(addresses(onNode), cut))
	if !t.seen.node(node).tainted {
		t.fail("%s lost its taint", node)
	}
	after := t.seen.livePods()
	if len(after) != len(pods)+3 {
		t.fail("%d Pods instead of %d", len(after), len(pods)+3)
	}
	t.must(noneNew(onNode, on(after, node)))
	t.answers(node)
	t.say("%s was Ready all the time, its Pods and endpoints are the same, and no new Pod went there", node)
	t.figure("largest_lease_age_s", t.seen.largestAge(node, cut, now).Seconds())

	t.say("healing the link")
	healed := time.Now()
	t.must(t.lab.Heal(t.ctx, lab.WAN, node))
	t.direct(node, healed)
	t.hold(t.cfg.Timing.Grace, "a grace period after healing")
	t.must(t.seen.neverNotReady(node, cut))
	t.must(t.seen.untouched(onNode, cut))
	t.must(t.seen.endpointsKept(addresses(onNode), cut))
}

func noneNew(before, after map[types.UID]podAt) error {
	for uid, p := range after {
		if _, ok := before[uid]; !ok {
			return fmt.Errorf("the Pod %s was placed on %s", p.name, p.node)
		}
	}
	return nil
}

func cutModes(t *T) {
	leader := t.settledAway()
	node := t.follower(leader)
	for _, fault := range []wire.Fault{wire.Reject, wire.OneWay} {
		t.say("cutting the WAN link of %s, mode %s", node, fault)
		cut := time.Now()
		t.must(t.lab.Cut(t.ctx, lab.WAN, node, fault))
		t.delegated(node, cut)
		t.must(t.seen.neverNotReady(node, cut))
		t.must(t.lab.Heal(t.ctx, lab.WAN, node))
		t.direct(node, time.Now())
	}

	t.say("cutting the LAN of %s, whose WAN link is fine", node)
	cut := time.Now()
	t.must(t.lab.Cut(t.ctx, lab.LAN, node, wire.Drop))
	t.eventually(15*time.Second, "its hub is pending, all others go on", func() error {
		for name, h := range t.hubs() {
			if (name == node) != (h.Role == rolePending) || h.Cloud != "up" {
				return fmt.Errorf("%s says %+v", name, h)
			}
		}
		return nil
	})
	t.hold(t.cfg.Timing.Grace, "a grace period without a LAN")
	t.must(t.seen.neverNotReady(node, cut))
	if _, tainted := t.seen.firstNode(node, cut, func(n nodeAt) bool { return n.tainted }); tainted {
		t.fail("%s was tainted although it reports itself", node)
	}
	age := t.seen.largestAge(node, cut, time.Now())
	t.figure("largest_lease_age_without_lan_s", age.Seconds())
	if age > t.cfg.Timing.Grace/2 {
		t.fail("the Lease of %s went %v without being renewed: its heartbeats wait for the coordinator", node, age)
	}
	t.must(t.lab.Heal(t.ctx, lab.LAN, node))
	t.settled(10 * time.Second)
}

func cutPool(t *T) {
	t.settled(30 * time.Second)
	before := t.running()
	t.say("cutting all WAN links of the pool")
	cut := time.Now()
	t.must(t.lab.Cut(t.ctx, lab.WAN, "pool/p1", wire.Drop))
	t.eventually(15*time.Second, "all hubs call the cloud down, and nobody leads", func() error {
		for name, h := range t.hubs() {
			if h.Cloud != "down" || h.Role != roleFollower {
				return fmt.Errorf("%s says %+v", name, h)
			}
		}
		return nil
	})
	t.eventually(t.cfg.Timing.Grace+10*time.Second, "the cloud has noticed that all are silent", func() error {
		for _, name := range t.nodeNames() {
			if t.seen.neverNotReady(name, cut) == nil {
				return fmt.Errorf("%s is still Ready", name)
			}
		}
		return nil
	})
	speaker := t.nodeNames()[0]
	t.say("healing the link of %s, which speaks for the others", speaker)
	healedOne := time.Now()
	t.must(t.lab.Heal(t.ctx, lab.WAN, speaker))
	t.eventually(30*time.Second, "those that Kubernetes had given up are Ready again, and delegated", func() error {
		for _, name := range t.nodeNames() {
			if n := t.seen.node(name); n.ready != "True" || n.tainted != (name != speaker) {
				return fmt.Errorf("%s: %+v", name, n)
			}
		}
		return nil
	})
	t.figure("one_healed_to_all_ready_s", time.Since(healedOne).Seconds())
	t.say("healing all links")
	t.must(t.lab.Heal(t.ctx, lab.WAN, "pool/p1"))
	healed := time.Now()
	t.settled(10 * time.Second)
	t.figure("healed_to_roles_right_s", time.Since(healed).Seconds())
	t.eventually(20*time.Second, "all nodes are Ready and untainted", func() error {
		for _, name := range t.nodeNames() {
			if n := t.seen.node(name); n.ready != "True" || n.tainted {
				return fmt.Errorf("%s: %+v", name, n)
			}
		}
		return nil
	})
	t.figure("healed_to_all_ready_s", time.Since(healed).Seconds())
	t.must(same(before, t.running()))
}

// running returns the process id of every program of the first pool.
func (t *T) running() map[string]int {
	s, err := t.lab.Status(t.ctx)
	t.must(err)
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

// same returns an error if a program has ended, or has been started anew.
func same(before, after map[string]int) error {
	for name, pid := range before {
		if after[name] != pid {
			return fmt.Errorf("%s is not the process that it was: it crashed, or was started again", name)
		}
	}
	return nil
}
