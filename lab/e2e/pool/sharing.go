package pool

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"yurtcoordinator/lab"
	"yurtcoordinator/lab/e2e/kit"
	"yurtcoordinator/lab/load"
	"yurtcoordinator/lab/wire"
)

// sharingPool has every real client that reads pool resources. Kubelets read none.
var sharingPool = lab.Config{Pools: 1, Nodes: 3, Timing: lab.Quick, Kubelet: lab.Hollow, CoreDNS: true}

var sharingScenarios = []kit.Scenario{
	{
		Name: "handover", Tier: kit.Core, Lab: sharingPool, Run: handover,
		Doc: "Leader, coordinator and hubs are killed, paused and cut off while 50 objects change every second. Every " +
			"client's watch is exact when compared with the cloud's own history, EndpointSlices cross the WAN in one " +
			"list, and kube-proxy's rules and CoreDNS's answers are right.",
	},
}

// fault is one thing that goes wrong.
type fault struct {
	what string
	// kills names the node whose hub is killed, so that its clients begin again.
	kills string
	do    func()
}

func handover(t *kit.T) {
	leader := t.Pool.SettledAway()
	a := t.Record(kit.EndpointSlices)
	spec := load.Spec{Services: 40, EndpointsEach: 20, Nodes: t.Pool.Nodes()}
	_, err := load.Services(t.Ctx, t.Cloud, spec)
	t.Must(err)
	t.Pool.Shared(30*time.Second, a.Name)
	t.Pool.Shared(30*time.Second, endpointsAlone.Name)
	a.Seat(t, t.Pool.Nodes())
	a.ListedOnce(t)
	changes := t.Churn(spec, 50)

	expired := map[string]int{}
	var slowest time.Duration
	for i := range handoverFaults(t, "", "") {
		other := t.Pool.Follower(leader)
		f := handoverFaults(t, leader, other)[i]
		t.Say("FAULT %s (%s leads)", f.what, leader)
		if f.kills != "" {
			expired[f.kills]++
		}
		f.do()
		began := time.Now()
		leader = t.Pool.Settled(30 * time.Second)
		t.Pool.Shared(30*time.Second, a.Name)
		a.CaughtUp(t, 30*time.Second)
		slowest = max(slowest, time.Since(began))
		a.ListedOnce(t)
	}
	t.Figure("slowest_recovery_s", slowest.Seconds())
	t.Figure("changes", float64(t.End(changes)))
	sameRules(t, spec)
	sameNames(t)
	a.Judge(t, expired)
	a.ListedOnce(t)
	// Nobody reads Endpoints here; the pool shares them all the same.
	endpointsAlone.ListedOnce(t)
}

// handoverFaults are the faults of a pool with this leader and this other node.
func handoverFaults(t *kit.T, leader, other string) []fault {
	node := func(action lab.Action, name string, c lab.Component) { t.Must(t.Lab.Node(t.Ctx, action, name, c)) }
	cutFor := func(network lab.Network, name string, d time.Duration) {
		t.Must(t.Lab.Cut(t.Ctx, network, name, wire.Drop))
		t.Hold(d, string(network)+" of "+name+" is cut")
		t.Must(t.Lab.Heal(t.Ctx, network, name))
	}
	return []fault{
		{"the leader's hub is killed for 6 s", leader, func() {
			node(lab.Kill, leader, lab.Hub)
			t.Hold(6*time.Second, "without the hub of "+leader)
			node(lab.Start, leader, lab.Hub)
		}},
		{"the leader's hub is paused for 8 s", "", func() {
			node(lab.Pause, leader, lab.Hub)
			t.Hold(8*time.Second, leader+"'s hub is stopped")
			node(lab.Resume, leader, lab.Hub)
		}},
		{"the leader's WAN link is cut for 10 s", "", func() { cutFor(lab.WAN, leader, 10*time.Second) }},
		{"the coordinator is killed, and back empty after 5 s", "", func() {
			node(lab.Kill, t.Pool.CoordinatorNode(), lab.Coordinator)
			t.Hold(5*time.Second, "no coordinator")
			node(lab.Start, t.Pool.CoordinatorNode(), lab.Coordinator)
		}},
		{"the coordinator is paused for 8 s", "", func() {
			node(lab.Pause, t.Pool.CoordinatorNode(), lab.Coordinator)
			t.Hold(8*time.Second, "the coordinator is stopped")
			node(lab.Resume, t.Pool.CoordinatorNode(), lab.Coordinator)
		}},
		{"a follower's hub is killed and started", other, func() { node(lab.Restart, other, lab.Hub) }},
		{"a follower loses its LAN for 8 s", "", func() { cutFor(lab.LAN, other, 8*time.Second) }},
		{"a follower's WAN link flaps", "", func() {
			for range 3 {
				cutFor(lab.WAN, other, 3*time.Second)
				t.Hold(2*time.Second, "healed")
			}
		}},
	}
}

// endpointsAlone are Endpoints, which nobody reads.
var endpointsAlone = &kit.Audience{Collection: kit.Collection{Name: "endpoints", Resource: "endpoints"}}

// sameRules expects that all nodes' kube-proxies have the same rules for the load's Services, and exactly those that
// follow from the cloud's EndpointSlices: every ready endpoint, and no other.
func sameRules(t *kit.T, spec load.Spec) {
	want := map[string]bool{}
	all, err := t.Cloud.DiscoveryV1().EndpointSlices(load.Namespace).List(t.Ctx, metav1.ListOptions{})
	t.Must(err)
	for _, s := range all.Items {
		for _, e := range s.Endpoints {
			if ptr.Deref(e.Conditions.Ready, true) {
				want[e.Addresses[0]] = true
			}
		}
	}
	if len(want) < spec.Services {
		t.Fail("the load has only %d ready endpoints", len(want))
	}
	took := t.Eventually(60*time.Second, "all nodes have the same rules, for all endpoints", func() error {
		first := ""
		for _, node := range t.Pool.Nodes() {
			saved, err := t.Lab.Output(t.Ctx, node, "iptables-save", "-t", "nat")
			if err != nil {
				return err
			}
			rules := serviceRules(saved)
			missing, strange := endpointsIn(rules, want)
			switch {
			case missing != "" || strange != "":
				return fmt.Errorf("on %s: no rule for %q, a rule for %q", node, missing, strange)
			case first == "":
				first = rules
			case rules != first:
				return fmt.Errorf("%s and %s have different rules", node, t.Pool.Nodes()[0])
			}
		}
		return nil
	})
	t.Say("the rules for %d endpoints are the same on all nodes, after %v", len(want), took.Round(time.Millisecond))
}

// serviceRules returns the rules for the load's Services, sorted.
func serviceRules(saved string) string {
	var rules []string
	for line := range strings.Lines(saved) {
		if strings.HasPrefix(line, "-A") && strings.Contains(line, "\""+load.Namespace+"/") {
			rules = append(rules, line)
		}
	}
	slices.Sort(rules)
	return strings.Join(rules, "")
}

var destination = regexp.MustCompile(`--to-destination ([0-9.]+):`)

// endpointsIn compares the destinations of rules with the wanted ones. It returns one that is missing and one that is too many;
// empty means that there is none.
func endpointsIn(rules string, want map[string]bool) (missing, strange string) {
	has := map[string]bool{}
	for _, m := range destination.FindAllStringSubmatch(rules, -1) {
		has[m[1]] = true
		if !want[m[1]] {
			strange = m[1]
		}
	}
	for address := range want {
		if !has[address] {
			missing = address
		}
	}
	return missing, strange
}

// sameNames expects every node's CoreDNS to know the Services in the cloud.
func sameNames(t *kit.T) {
	all, err := t.Cloud.CoreV1().Services(load.Namespace).List(t.Ctx, metav1.ListOptions{Limit: 5})
	t.Must(err)
	for _, node := range t.Pool.Nodes() {
		for _, s := range all.Items {
			t.Eventually(20*time.Second, "CoreDNS on "+node+" resolves "+s.Name, func() error {
				addresses, err := t.Lab.Lookup(t.Ctx, node, s.Namespace, s.Name)
				if err != nil {
					return err
				}
				if len(addresses) != 1 || addresses[0].String() != s.Spec.ClusterIP {
					return fmt.Errorf("it answers %v, want %s", addresses, s.Spec.ClusterIP)
				}
				return nil
			})
		}
	}
}
