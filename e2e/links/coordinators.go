package links

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"yurtcoordinator/e2e/kit"
	"yurtcoordinator/internal/lab"
)

var coordinatorScenarios = []kit.Scenario{
	{
		Name: "coordinator-dies", Lab: kit.OnePool, Run: coordinatorDies,
		Doc: "The coordinator is killed and comes back empty. Hubs carry on as plain proxies without an error, and " +
			"everything is back in order within 10 s.",
	},
	{
		Name: "no-coordinator", Lab: plain(kit.OnePool), Run: noCoordinator,
		Doc: "With `--enable-coordinator=false` a hub is a plain proxy, and a node that is cut off is treated as " +
			"Kubernetes always would.",
	},
}

func plain(c lab.Config) lab.Config {
	c.NoCoordinator = true
	return c
}

func coordinatorDies(t *kit.T) {
	t.Pool.Settled(30 * time.Second)
	names := t.Pool.Nodes()
	stop := t.Steadily(names)
	t.Say("killing the coordinator")
	killed := time.Now()
	coordinatorNode := t.Pool.CoordinatorNode()
	t.Must(t.Lab.Node(t.Ctx, lab.Kill, coordinatorNode, lab.Coordinator))
	if !t.Config.Installed { // otherwise kubelet restarts it at once
		withoutCoordinator(t, killed)
	}

	t.Say("starting the coordinator, which comes back empty")
	started := time.Now()
	t.Must(t.Lab.Node(t.Ctx, lab.Start, coordinatorNode, lab.Coordinator))
	leader := t.Pool.Settled(10 * time.Second)
	t.Figure("start_to_all_well_s", time.Since(started).Seconds())
	if errs := stop(); len(errs) > 0 {
		t.Fail("%d requests failed, the first: %w", len(errs), errs[0])
	}
	t.Say("no request through a hub failed meanwhile")

	node := t.Pool.Follower(leader)
	t.Say("delegation works with the new coordinator: cutting the WAN link of %s", node)
	cut := t.Cut(node)
	t.Node(node).Delegated(cut)
	for _, name := range names {
		age := t.Seen.LargestAge(name, killed, time.Now())
		if age > t.Config.Timing.Grace/2 {
			t.Fail("the Lease of %s in the cloud went %v without being renewed", name, age)
		}
	}
}

// withoutCoordinator is the time after the coordinator was killed.
func withoutCoordinator(t *kit.T, killed time.Time) {
	t.Eventually(10*time.Second, "all hubs are Pending", func() error {
		for name, h := range t.Pool.Hubs() {
			if h.Role != kit.RolePending {
				return fmt.Errorf("%s says %+v", name, h)
			}
		}
		return nil
	})
	t.Figure("death_to_all_pending_s", time.Since(killed).Seconds())
	t.Hold(2*t.Config.Timing.Grace, "two grace periods without a coordinator")
	t.NeverNotReady(killed, t.Pool.Nodes()...)
}

func noCoordinator(t *kit.T) {
	names := t.Pool.Nodes()
	node := names[len(names)-1]
	stop := t.Steadily(names)
	t.Eventually(10*time.Second, "the hubs have no role to play and reach the cloud", func() error {
		hubs := t.Pool.Hubs()
		if len(hubs) != len(names) {
			return fmt.Errorf("%d hubs answer", len(hubs))
		}
		for name, h := range hubs {
			if h.Role != kit.RolePending || h.Cloud != "up" || h.Coordinator != "none" {
				return fmt.Errorf("%s says %+v", name, h)
			}
		}
		return nil
	})
	t.Hold(t.Config.Timing.Grace, "a grace period of plain proxying")
	if errs := stop(); len(errs) > 0 {
		t.Fail("%d requests failed, the first: %w", len(errs), errs[0])
	}
	t.Say("cutting the WAN link of %s", node)
	cut := t.Cut(node)
	t.Eventually(t.Config.Timing.Grace+5*time.Second, node+" is NotReady, as without a hub", func() error {
		if n := t.Seen.Node(node); n.Ready == corev1.ConditionTrue {
			return fmt.Errorf("it is Ready")
		}
		return nil
	})
	if n := t.Seen.Node(node); n.Taint != "" || t.Seen.Lease(node).Delegated {
		t.Fail("%s is treated as delegated: %+v", node, n)
	}
	t.Figure("cut_to_not_ready_s", time.Since(cut).Seconds())
	t.Heal(node)
	healed := time.Now()
	t.Eventually(30*time.Second, node+" is Ready again", func() error {
		if n := t.Seen.Node(node); n.Ready != corev1.ConditionTrue {
			return fmt.Errorf("Ready=%s", n.Ready)
		}
		return nil
	})
	t.Figure("heal_to_ready_s", time.Since(healed).Seconds())
}
