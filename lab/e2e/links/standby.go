package links

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"yurtcoordinator/lab"
	"yurtcoordinator/lab/e2e/kit"
)

var standbyScenarios = []kit.Scenario{
	{
		Name: "standby", Lab: withStandby(), Run: standby,
		Doc: "A pool with a standby coordinator: each machine loses its power in turn, with the cloud reachable and with " +
			"it cut off. Within 5 s a hub forwards for a delegated node and kubectl works on site, and nothing is listed " +
			"again over the WAN.",
	},
	{
		Name: "split-lan", Lab: withStandby(), Run: splitLAN,
		Doc: "The LAN splits into two halves with a coordinator each. Each half has a leader while it has a link, and a " +
			"half without one is shown as it is. Joined again, one leader serves all, and nothing is listed again.",
	},
	{
		Name: "standby-hears-alone", Lab: kit.Unrelayed(stock(withStandby())), Run: standbyHearsAlone,
		Doc: "With Kubernetes' own timing, a node that is cut off from the cloud, and from the first coordinator alone, stays " +
			"ready: its heartbeats are forwarded from the standby. So it is when the leader does not reach the standby either: " +
			"another hub leads there.",
	},
}

// withStandby is a pool of four nodes with coordinators on the first two.
func withStandby() lab.Config {
	return lab.Config{Pools: 1, Nodes: 4, Coordinators: 2, Timing: lab.Quick}
}

// lost is how soon delegation and kubectl are back after the loss of a machine; a scenario fails at three times that.
const lost = 5 * time.Second

// standsBy waits until the hub of each of these nodes works with the coordinator in slot 0 and reaches all other coordinators,
// and the same hub leads at every coordinator.
func standsBy(t *kit.T, within time.Duration, nodes []string) (leader string) {
	t.Eventually(within, "one hub leads at both coordinators, and all work with the first", func() error {
		hubs := t.Pool.Hubs()
		for _, node := range nodes {
			h, answers := hubs[node]
			if !answers || len(h.Coordinators) != t.Config.Coordinators || h.Role == kit.RolePending {
				return fmt.Errorf("%s says %+v", node, h)
			}
			if leader = hubs[nodes[0]].Leader; leader == "" {
				return fmt.Errorf("%s knows no leader: %+v", nodes[0], h)
			}
			for slot, c := range h.Coordinators {
				if c.Link != "up" || c.Home != (slot == 0) || c.Leader != leader {
					return fmt.Errorf("%s says of slot %d: %+v; %s leads", node, slot, c, leader)
				}
			}
		}
		return nil
	})
	t.Say("%s leads at both", leader)
	return leader
}

// others returns all names except one.
func others(names []string, name string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n == name })
}

// backAfter waits until the hubs of all of these nodes work with a coordinator that is there, led by one of them if led.
func backAfter(t *kit.T, died time.Time, alive []string, led bool) time.Duration {
	what := "every hub works with a coordinator that is there"
	if led {
		what = "a hub that lives leads at the home of all"
	}
	t.Eventually(3*lost-time.Since(died), what, func() error {
		hubs := t.Pool.Hubs()
		for _, node := range alive {
			h, answers := hubs[node]
			home := slices.IndexFunc(h.Coordinators, func(c lab.CoordinatorStatus) bool { return c.Home })
			switch {
			case !answers || home < 0:
				return fmt.Errorf("%s says %+v", node, h)
			case h.Coordinators[home].Link != "up" || !slices.Contains(alive, t.Pool.Nodes()[home]):
				return fmt.Errorf("%s works with slot %d: %+v", node, home, h.Coordinators[home])
			case led && (!slices.Contains(alive, h.Leader) || hubs[h.Leader].Role != kit.RoleLeader):
				return fmt.Errorf("%s is led by %q", node, h.Leader)
			}
		}
		return nil
	})
	return time.Since(died)
}

// kubectlBack has kubectl on site list the Nodes of the pool, again and again, at the coordinators that are still alive. It
// returns a function that waits until a list has all nodes, and returns how long after died that was.
func kubectlBack(t *kit.T, died time.Time, alive []string) (wait func() time.Duration) {
	took := make(chan time.Duration, 1)
	t.Background.Go(func() {
		defer close(took)
		for t.Ctx.Err() == nil && time.Since(died) < 3*lost {
			for slot := range t.Config.Coordinators {
				if !slices.Contains(alive, t.Pool.Nodes()[slot]) {
					continue
				}
				cmd, err := t.Lab.Kubectl(t.Ctx, "coordinator/p1/"+strconv.Itoa(slot), []string{
					"get", "nodes", "--no-headers", "--output=name", "--request-timeout=2s",
				})
				if err != nil {
					return
				}
				out, err := cmd.Output()
				if err == nil && strings.Count(string(out), "\n") == t.Config.Nodes {
					took <- time.Since(died)
					return
				}
			}
		}
	})
	return func() time.Duration {
		d, ok := <-took
		if !ok {
			t.Fail("kubectl at a coordinator that is there does not show all nodes within %s", 3*lost)
		}
		return d
	}
}

func standby(t *kit.T) {
	names := t.Pool.Nodes()
	standsBy(t, 60*time.Second, names)
	t.Pool.Shared(30*time.Second, kit.EndpointSlices.Name)
	lists := len(t.Pool.ListsOverWAN(kit.EndpointSlices.Resource))
	t.Hold(2*time.Minute, "what only its start needs in memory is over")
	t.Figure("standby_rss_mb", t.Node(names[1]).Memory(kit.ProgramCoordinator).RSS/(1<<20))
	for _, dead := range slices.Backward(names) {
		machineDies(t, dead)
	}

	t.Say("cutting all WAN links of the pool")
	t.Cut("pool/p1")
	t.Pool.NoticesCut(names...)
	for _, dead := range []string{names[0], names[1]} {
		machineDiesWhileCut(t, dead)
	}
	t.Say("healing")
	t.Heal("pool/p1")
	standsBy(t, 2*time.Minute, names)
	// A hub that is ahead of the pool waits, and a quiet resource advances once a minute.
	t.Pool.Shared(2*time.Minute, kit.EndpointSlices.Name)
	if again := t.Pool.NewLists(kit.EndpointSlices.Resource, lists); len(again) > 0 {
		t.Fail("EndpointSlices were listed over the WAN %d times again", len(again))
	}
}

// machineDies cuts one node's power while another is delegated.
func machineDies(t *kit.T, dead string) {
	names := t.Pool.Nodes()
	alive := others(names, dead)
	delegated := alive[len(alive)-1]
	t.Say("%s is cut off from the cloud", delegated)
	cut := time.Now()
	isDelegated := func(l kit.LeaseAt) bool { return l.Delegated }
	t.Cut(delegated)
	t.Eventually(60*time.Second, delegated+" is delegated", func() error {
		if _, ok := t.Seen.FirstLease(delegated, cut, isDelegated); !ok {
			return fmt.Errorf("its heartbeats are not forwarded")
		}
		return nil
	})
	leader := standsBy(t, 30*time.Second, names)
	t.Say("%s loses its power; %s leads", dead, leader)
	died := time.Now()
	t.Must(t.Lab.Node(t.Ctx, lab.Kill, dead, lab.All))
	kubectl := kubectlBack(t, died, alive)
	role := map[bool]string{true: "_leader", false: ""}[dead == leader]
	slot := slices.Index(names, dead)
	name := "node" + role
	if slot < t.Config.Coordinators {
		name = []string{"home", "standby"}[slot] + role
	}
	t.Figure("death_of_"+name+"_to_delegation_s", backAfter(t, died, alive, true).Seconds())
	t.Figure("death_to_kubectl_s", kubectl().Seconds())
	led := time.Now()
	t.Eventually(3*lost, delegated+" is forwarded after that", func() error {
		if _, ok := t.Seen.FirstLease(delegated, led, isDelegated); !ok {
			return fmt.Errorf("no heartbeat has come to the cloud")
		}
		return nil
	})
	t.Hold(t.Config.Timing.Grace, "a grace period without "+dead)
	t.Figure("largest_lease_age_s", t.Seen.LargestAge(delegated, cut, time.Now()).Seconds())
	t.NeverNotReady(cut, alive...)
	t.Heal(delegated)
	t.Must(t.Lab.Node(t.Ctx, lab.Start, dead, lab.All))
	standsBy(t, 2*time.Minute, names)
	t.Eventually(60*time.Second, "all nodes are ready", t.Pool.NodesReady)
}

// machineDiesWhileCut cuts one node's power while nobody reaches the cloud.
func machineDiesWhileCut(t *kit.T, dead string) {
	alive := others(t.Pool.Nodes(), dead)
	t.Say("%s loses its power", dead)
	died := time.Now()
	beats := map[string]float64{}
	for _, node := range alive {
		beats[node] = t.Node(node).Metric("yurthub_heartbeats_total", `result="delegated"`)
	}
	t.Must(t.Lab.Node(t.Ctx, lab.Kill, dead, lab.All))
	kubectl := kubectlBack(t, died, alive)
	t.Figure("cut_death_to_home_s", backAfter(t, died, alive, false).Seconds())
	t.Figure("cut_death_to_kubectl_s", kubectl().Seconds())
	t.Eventually(3*lost, "the coordinator that is left takes everybody's heartbeats", func() error {
		for node, before := range beats {
			if now := t.Node(node).Metric("yurthub_heartbeats_total", `result="delegated"`); now <= before {
				return fmt.Errorf("none of %s", node)
			}
		}
		return nil
	})
	t.Must(t.Lab.Node(t.Ctx, lab.Start, dead, lab.All))
	t.Eventually(2*time.Minute, "all work with the first coordinator, filled without the cloud", func() error {
		for node, h := range t.Pool.Hubs() {
			if len(h.Coordinators) == 0 || !h.Coordinators[0].Home || h.Coordinators[0].Link != "up" ||
				h.Coordinators[1].Link != "up" {
				return fmt.Errorf("%s says %+v", node, h.Coordinators)
			}
		}
		if n := len(t.Pool.Hubs()); n != t.Config.Nodes {
			return fmt.Errorf("%d hubs answer", n)
		}
		return nil
	})
}

// standbyHearsAlone cuts the LAN between single machines of a pool whose hubs do not relay. It has Kubernetes' own timing,
// because heartbeats stop for longer than usual. A standby that the leader no longer reaches has no leader for some 10 s (ADR
// 70), and the first heartbeat is forwarded from there as long after that.
func standbyHearsAlone(t *kit.T) {
	names := t.Pool.Nodes()
	first, second := names[0], names[1]
	began := t.Cut(second)
	t.Eventually(3*lost, second+" knows that it is cut off, and does not lead", func() error {
		if h := t.Pool.Hubs()[second]; h.Cloud != "down" || h.Role == kit.RoleLeader {
			return fmt.Errorf("it says %+v", h)
		}
		return nil
	})
	leader := standsBy(t, 60*time.Second, names)
	node := names[2]
	if node == leader {
		node = names[3]
	}
	t.Say("%s is cut off from the cloud, and from %s", node, first)
	t.Cut(node)
	join := split(t, [][]string{{node}, {first}})
	heard := func(what string) {
		t.Hold(2*t.Config.Timing.Grace, what)
		t.NeverNotReady(began, names...)
	}
	heard("two grace periods in which the standby alone hears " + node)
	t.Say("%s, which leads, is cut off from %s", leader, second)
	apart := time.Now()
	joinLeader := split(t, [][]string{{leader}, {second}})
	heard("two grace periods in which the leader does not reach the standby")
	t.Figure("largest_lease_age_s", t.Seen.LargestAge(node, began, time.Now()).Seconds())
	if _, ok := t.Seen.FirstLease(node, apart.Add(t.Config.Timing.Grace), func(l kit.LeaseAt) bool { return l.Delegated }); !ok {
		t.Fail("no heartbeat of %s has come to the cloud", node)
	}
	joinLeader()
	join()
	joined := time.Now()
	standsBy(t, time.Minute, names)
	t.Figure("joined_to_one_leader_s", time.Since(joined).Seconds())
	heard("two grace periods with the LAN whole")
}

// splitLAN has the first and the third node in one half, the second and the fourth in the other. The last two have no link.
func splitLAN(t *kit.T) {
	names := t.Pool.Nodes()
	halves := [][]string{{names[0], names[2]}, {names[1], names[3]}}
	standsBy(t, 60*time.Second, names)
	t.Pool.Shared(30*time.Second, kit.EndpointSlices.Name)
	lists := len(t.Pool.ListsOverWAN(kit.EndpointSlices.Resource))
	began := time.Now()
	for _, half := range halves {
		t.Cut(half[1])
	}
	forwarded := func(since time.Time, nodes ...string) {
		t.Eventually(3*lost, strings.Join(nodes, " and ")+": heartbeats are forwarded", func() error {
			for _, node := range nodes {
				if _, ok := t.Seen.FirstLease(node, since, func(l kit.LeaseAt) bool { return l.Delegated }); !ok {
					return fmt.Errorf("none of %s", node)
				}
			}
			return nil
		})
	}
	t.Pause(lost, "the cuts are noticed")
	forwarded(began, names[2], names[3])

	t.Say("the LAN falls into halves: %v and %v", halves[0], halves[1])
	join := split(t, halves)
	at := time.Now()
	t.Eventually(3*lost, "each half has a leader of its own, at a coordinator of its own", func() error {
		hubs := t.Pool.Hubs()
		for slot, half := range halves {
			for _, node := range half {
				h := hubs[node]
				if len(h.Coordinators) != 2 || !h.Coordinators[slot].Home || h.Coordinators[1-slot].Link == "up" ||
					h.Leader != half[0] {
					return fmt.Errorf("%s says %+v, led by %q", node, h.Coordinators, h.Leader)
				}
			}
		}
		return nil
	})
	t.Figure("split_to_two_leaders_s", time.Since(at).Seconds())
	forwarded(time.Now(), names[2], names[3])
	t.Hold(2*t.Config.Timing.Grace, "two grace periods of a LAN in halves")
	t.NeverNotReady(began, names...)

	t.Say("the second half loses its only link")
	alone := t.Cut(names[1])
	for _, node := range halves[1] {
		t.Eventually(t.Config.Timing.Grace+3*lost, node+" is shown as not ready: nobody can speak for it", func() error {
			if t.Seen.NeverNotReady(node, alone) == nil {
				return fmt.Errorf("it was ready all the time")
			}
			return nil
		})
	}
	t.Figure("kubectl_in_the_half_without_a_link_s", kubectlBack(t, time.Now(), halves[1])().Seconds())
	t.NeverNotReady(began, halves[0]...)
	t.Heal(names[1])
	t.Eventually(60*time.Second, "all nodes are ready again", t.Pool.NodesReady)

	t.Say("the LAN is one again")
	join()
	joined := time.Now()
	standsBy(t, 2*time.Minute, names)
	t.Figure("joined_to_one_leader_s", time.Since(joined).Seconds())
	forwarded(time.Now(), names[2], names[3])
	t.NeverNotReady(joined, names...)
	if again := t.Pool.NewLists(kit.EndpointSlices.Resource, lists); len(again) > 0 {
		t.Fail("EndpointSlices were listed over the WAN %d times again", len(again))
	}
}

// split drops what the nodes of each half send to the other on the LAN, until join is called.
func split(t *kit.T, halves [][]string) (join func()) {
	change := func(how string) {
		for i, half := range halves {
			for _, node := range half {
				for _, other := range halves[1-i] {
					t.Node(node).IPTables(how, "INPUT", "-i", "eth1", "-s", t.Node(other).Address(), "-j", "DROP")
				}
			}
		}
	}
	change("-I")
	return func() { change("-D") }
}
