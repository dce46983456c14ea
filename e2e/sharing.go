package e2e

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"yurtcoordinator/internal/lab"
	"yurtcoordinator/internal/lab/load"
	"yurtcoordinator/internal/lab/wire"
)

// sharingPool has every real client that reads pool resources. Kubelets do not.
var sharingPool = lab.Config{Pools: 1, Nodes: 3, Timing: lab.Quick, Kubelet: lab.Hollow, CoreDNS: true}

var sharingScenarios = []Scenario{
	{
		Name: "handover", Quick: true, Lab: sharingPool, run: handover,
		Doc: "leader, coordinator and hubs are killed, paused and cut off while 50 objects a second change in the cloud: every " +
			"client's watch is exact, each resource is listed over the WAN once",
	},
}

// churn is a rolling update that goes on until it is stopped.
type churn struct {
	stop func()
	done chan struct{}
	n    load.Counts
	err  error
}

// churn changes the load so many times a second.
func (t *T) churn(spec load.Spec, perSecond float64) *churn {
	ctx, cancel := context.WithCancel(t.ctx)
	c := &churn{stop: cancel, done: make(chan struct{})}
	t.background.Go(func() {
		defer close(c.done)
		c.n, c.err = load.Churn(ctx, t.cloud, spec, perSecond, time.Hour)
	})
	return c
}

// end stops it and returns how many changes were made.
func (t *T) end(c *churn) int {
	c.stop()
	<-c.done
	if c.err != nil && !errors.Is(c.err, context.Canceled) {
		t.must(c.err)
	}
	return c.n.Updates
}

// fault is one thing that goes wrong.
type fault struct {
	what string
	// kills says whose hub is killed, so that its clients begin anew.
	kills string
	do    func()
}

func handover(t *T) {
	leader := t.settledAway()
	a := t.record(endpointSlices)
	spec := load.Spec{Services: 40, EndpointsEach: 20, Nodes: t.nodeNames()}
	_, err := load.Services(t.ctx, t.cloud, spec)
	t.must(err)
	t.shared(30*time.Second, a.name)
	t.shared(30*time.Second, endpointsAlone.name)
	a.seat(t, t.nodeNames())
	others := t.runPrograms(t.nodeNames())
	a.listedOnce(t)
	changes := t.churn(spec, 50)

	expired := map[string]int{}
	node := func(action lab.Action, name string, c lab.Component) { t.must(t.lab.Node(t.ctx, action, name, c)) }
	cutFor := func(network lab.Network, name string, d time.Duration) {
		t.must(t.lab.Cut(t.ctx, network, name, wire.Drop))
		t.hold(d, string(network)+" of "+name+" is cut")
		t.must(t.lab.Heal(t.ctx, network, name))
	}
	steps := func(leader, other string) []fault {
		return []fault{
			{"the leader's hub is killed for 6 s", leader, func() {
				node(lab.Kill, leader, lab.Hub)
				t.hold(6*time.Second, "without the hub of "+leader)
				node(lab.Start, leader, lab.Hub)
			}},
			{"the leader's hub is paused for 8 s", "", func() {
				node(lab.Pause, leader, lab.Hub)
				t.hold(8*time.Second, leader+"'s hub is stopped")
				node(lab.Resume, leader, lab.Hub)
			}},
			{"the leader's WAN link is cut for 10 s", "", func() { cutFor(lab.WAN, leader, 10*time.Second) }},
			{"the coordinator is killed, and back empty after 5 s", "", func() {
				node(lab.Kill, t.coordinatorNode(), lab.Coordinator)
				t.hold(5*time.Second, "no coordinator")
				node(lab.Start, t.coordinatorNode(), lab.Coordinator)
			}},
			{"the coordinator is paused for 8 s", "", func() {
				node(lab.Pause, t.coordinatorNode(), lab.Coordinator)
				t.hold(8*time.Second, "the coordinator is stopped")
				node(lab.Resume, t.coordinatorNode(), lab.Coordinator)
			}},
			{"a follower's hub is killed and started", other, func() { node(lab.Restart, other, lab.Hub) }},
			{"a follower loses its LAN for 8 s", "", func() { cutFor(lab.LAN, other, 8*time.Second) }},
			{"a follower's WAN link flaps", "", func() {
				for range 3 {
					cutFor(lab.WAN, other, 3*time.Second)
					t.hold(2*time.Second, "healed")
				}
			}},
		}
	}
	var slowest time.Duration
	for i := range steps("", "") {
		other := t.follower(leader)
		f := steps(leader, other)[i]
		t.say("FAULT %s (%s leads)", f.what, leader)
		if f.kills != "" {
			expired[f.kills]++
		}
		f.do()
		began := time.Now()
		leader = t.settled(30 * time.Second)
		t.shared(30*time.Second, a.name)
		a.caughtUp(t, 30*time.Second)
		slowest = max(slowest, time.Since(began))
		a.listedOnce(t)
	}
	t.figure("slowest_recovery_s", slowest.Seconds())
	t.figure("changes", float64(t.end(changes)))
	t.sameRules(spec)
	t.sameNames()
	others.judge(t, expired)
	a.judge(t, expired)
	a.listedOnce(t)
	// Nobody reads Endpoints here; the pool shares them all the same.
	endpointsAlone.listedOnce(t)
}

// endpointsAlone are Endpoints, with nobody who reads them.
var endpointsAlone = &audience{collection: collection{name: "endpoints", resource: "endpoints"}}

// sameRules expects that all nodes' kube-proxies have programmed the same rules for the load's Services, those that the
// cloud's EndpointSlices make: every ready endpoint that there is, and none that there is not.
func (t *T) sameRules(spec load.Spec) {
	want := map[string]bool{}
	all, err := t.cloud.DiscoveryV1().EndpointSlices(load.Namespace).List(t.ctx, metav1.ListOptions{})
	t.must(err)
	for _, s := range all.Items {
		for _, e := range s.Endpoints {
			if ptr.Deref(e.Conditions.Ready, true) {
				want[e.Addresses[0]] = true
			}
		}
	}
	if len(want) < spec.Services {
		t.fail("the load has only %d ready endpoints", len(want))
	}
	took := t.eventually(60*time.Second, "all nodes have the same rules, for all endpoints", func() error {
		first := ""
		for _, node := range t.nodeNames() {
			saved, err := t.lab.Output(t.ctx, node, "iptables-save", "-t", "nat")
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
				return fmt.Errorf("%s and %s have different rules", node, t.nodeNames()[0])
			}
		}
		return nil
	})
	t.say("the rules for %d endpoints are the same on all nodes, after %v", len(want), took.Round(time.Millisecond))
}

// serviceRules are the rules for the load's Services, sorted.
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

// endpointsIn compares the destinations of rules with what they should be, and names one that is missing and one that is
// too much.
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

// sameNames expects every node's CoreDNS to know the Services that there are in the cloud.
func (t *T) sameNames() {
	all, err := t.cloud.CoreV1().Services(load.Namespace).List(t.ctx, metav1.ListOptions{Limit: 5})
	t.must(err)
	for _, node := range t.nodeNames() {
		for _, s := range all.Items {
			t.eventually(20*time.Second, "CoreDNS on "+node+" resolves "+s.Name, func() error {
				addresses, err := t.lab.Lookup(t.ctx, node, s.Namespace, s.Name)
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
