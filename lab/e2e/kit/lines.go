package kit

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"yurtcoordinator/lab"
	"yurtcoordinator/lab/line"
)

// Scenarios on lines have two pools whose lines are alike: the first has hubs, the second none. What happens to both is figures
// of the same run; only the first is judged.

// plainPool is the pool without hubs.
const plainPool = "pool/p2"

// Beside adds a pool of nodes without hubs to a lab of one pool. Its timing is Kubernetes' own.
func Beside(c lab.Config, nodes int) lab.Config {
	c.Timing, c.Pools, c.Variants = lab.Stock, 2, map[int]lab.Variant{2: {Nodes: nodes, NoHub: true}}
	return c
}

// Plain returns the names of the nodes without hubs.
func (t *T) Plain() []string {
	var all []string
	for i := 1; i <= t.Config.Variants[2].Nodes; i++ {
		all = append(all, fmt.Sprintf("p2-n%d", i))
	}
	return all
}

// Both returns the names of the nodes of both pools, those with hubs first.
func (t *T) Both() []string { return slices.Concat(t.Pool.Nodes(), t.Plain()) }

// ShapeBoth gives the WAN links of both pools the same shape. With shared, each pool has one line of that shape.
func (t *T) ShapeBoth(shape line.Shape, shared bool) {
	t.Say("the WAN links of both pools, one way: %s (shared: %v)", shape, shared)
	for _, pool := range []string{"pool/p1", plainPool} {
		t.Shape(lab.WAN, pool, shape, 1, shared)
	}
}

// OnLine is what happens on the lines from a moment on.
type OnLine struct {
	t     *T
	since time.Time
	downs map[string]float64 // how often a node's hub had called its link down
}

// WatchLines begins to count.
func (t *T) WatchLines() *OnLine {
	on := &OnLine{t: t, since: time.Now(), downs: map[string]float64{}}
	for _, node := range t.Pool.Nodes() {
		on.downs[node] = t.Node(node).LinkDowns()
	}
	return on
}

// LinkDowns returns how often the node's hub has called its link to the cloud down.
func (node Node) LinkDowns() float64 {
	return node.Metric("yurthub_upstream_link_transitions_total", `upstream="cloud"`, `to="down"`)
}

// Told is what the cloud was told of a pool's nodes.
type Told struct {
	// Oldest is the longest time without a heartbeat, of the node Of.
	Oldest time.Duration
	Of     string
	// Delegated and NotReady are the nodes that were so at any time.
	Delegated, NotReady []string
}

func (on *OnLine) told(nodes []string, until time.Time) Told {
	var all Told
	for _, node := range nodes {
		if age := on.t.Seen.LargestAge(node, on.since, until); age > all.Oldest {
			all.Oldest, all.Of = age, node
		}
		delegated := func(l LeaseAt) bool { return l.Delegated }
		if at, ok := on.t.Seen.FirstLease(node, on.since, delegated); ok && at.Before(until) {
			all.Delegated = append(all.Delegated, node)
		}
		lost := func(n NodeAt) bool { return n.Ready != corev1.ConditionTrue }
		if at, ok := on.t.Seen.FirstNode(node, on.since, lost); ok && at.Before(until) {
			all.NotReady = append(all.NotReady, node)
		}
	}
	return all
}

// Figures records what has been seen of both pools until now, under names that begin with prefix. It returns what was seen of
// the pool with hubs, and how often its hubs have called their links down.
func (on *OnLine) Figures(prefix string) (hubs Told, downs float64) {
	t, now := on.t, time.Now()
	hubs = on.told(t.Pool.Nodes(), now)
	for _, node := range t.Pool.Nodes() {
		n := t.Node(node).LinkDowns() - on.downs[node]
		if downs += n; n > 0 {
			t.Say("the hub of %s has called its link down %.0f times", node, n)
		}
	}
	t.Figure(prefix+"links_called_down", downs)
	t.Figure(prefix+"largest_heartbeat_age_s", hubs.Oldest.Seconds())
	t.Figure(prefix+"nodes_delegated", float64(len(hubs.Delegated)))
	t.Figure(prefix+"nodes_not_ready", float64(len(hubs.NotReady)))
	if plain := t.Plain(); len(plain) > 0 {
		without := on.told(plain, now)
		t.Figure(prefix+"without_hub_largest_heartbeat_age_s", without.Oldest.Seconds())
		t.Figure(prefix+"without_hub_nodes_not_ready", float64(len(without.NotReady)))
	}
	return hubs, downs
}

// NothingHappened records the figures. It fails unless all links were called up all the time, and all nodes sent their own
// heartbeats in time: no Lease went without one for longer than half the grace period.
func (on *OnLine) NothingHappened(prefix string) {
	hubs, downs := on.Figures(prefix)
	t, half := on.t, on.t.Config.Timing.Grace/2
	switch {
	case len(hubs.NotReady) > 0:
		t.Fail("%v, alive on a whole link, were called NotReady", hubs.NotReady)
	case len(hubs.Delegated) > 0:
		t.Fail("%v, whose links carry, were delegated", hubs.Delegated)
	case downs > 0:
		t.Fail("links that carry were called down %.0f times", downs)
	case hubs.Oldest > half:
		t.Fail("the Lease of %s in the cloud went %v without being renewed, want at most half a grace period, %v", hubs.Of,
			hubs.Oldest, half)
	}
}

// Carried records how many bytes a WAN link of each pool has carried since the mark.
func (t *T) Carried(prefix string) (hubs, plain float64) {
	traffic, err := t.Lab.Traffic(t.Ctx, true)
	t.Must(err)
	each := func(nodes []string) float64 {
		sum := 0.0
		for _, node := range nodes {
			sum += float64(traffic[node].Up + traffic[node].Down)
		}
		return sum / float64(max(1, len(nodes)))
	}
	hubs, plain = each(t.Pool.Nodes()), each(t.Plain())
	t.Figure(prefix+"wan_bytes_per_node", hubs)
	t.Figure(prefix+"without_hub_wan_bytes_per_node", plain)
	return hubs, plain
}
