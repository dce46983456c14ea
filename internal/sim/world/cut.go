package world

import (
	"slices"
	"time"

	"yurtcoordinator/internal/edge"
)

// cut is what the oracle knows of a pool that falls silent as a whole. It says for which nodes evictions must be held. A node
// speaks while the age of its Lease is less than quietFrom.
type cut struct {
	// since is when the last node was heard before the pool fell silent; zero means that some node speaks and no hold is in
	// progress. If the pool falls silent again while a hold is in progress, since keeps its value. So every hold in progress
	// began after since.
	since time.Time
	// held are the nodes that must still be held. within are these, and those that were released in the same cut.
	held, within map[string]bool
	// spoke is since when nodes have spoken without a pause; zero means that none speaks.
	spoke time.Time
	// Ever says that some node had to be held at some time.
	Ever bool
}

// report is what the leader of a slot has reported last; the zero value means that none has.
type report struct {
	at      time.Time // when it was stored
	version string
	leader  string
	reached []edge.NodeName
}

// look takes in the present state of the nodes. In their facts it sets which nodes must be held (kept), how long a hold may be
// (holds), and for how long the pool has been cut off (cut).
func (c *cut) look(now time.Time, holds time.Duration, nodes map[string]*facts, reports ...report) {
	if c.held == nil {
		c.held, c.within = map[string]bool{}, map[string]bool{}
	}
	var last time.Time
	holding := false
	for _, f := range nodes {
		if f.renewed.After(last) {
			last = f.renewed
		}
		holding = holding || !f.heldSince.IsZero()
	}
	switch quiet := now.Sub(last); {
	case quiet < quietFrom:
		if c.spoke.IsZero() {
			c.spoke = now
		}
		if !holding {
			c.since, c.held, c.within = time.Time{}, map[string]bool{}, map[string]bool{}
		}
		c.heal(now, nodes, reports)
	default:
		if c.spoke = (time.Time{}); c.since.IsZero() {
			c.since = last
		}
		if quiet >= cutFor {
			c.fall(last, nodes)
		}
	}
	c.Ever = c.Ever || len(c.held) > 0 && holds > 0
	for name, f := range nodes {
		f.kept, f.cut = c.held[name] && now.Sub(c.since) < holds, 0
		if !c.since.IsZero() {
			f.cut = now.Sub(c.since)
		}
		f.holds = holds
	}
}

// fall notes that the nodes that fell silent together with the last node must be held, if there are at least two of them.
func (c *cut) fall(last time.Time, nodes map[string]*facts) {
	var together []string
	for name, f := range nodes {
		if c.held[name] || last.Sub(f.renewed) <= atOnce {
			together = append(together, name)
		}
	}
	if len(together) < 2 {
		return
	}
	for _, name := range together {
		c.held[name], c.within[name] = true, true
	}
}

// heal releases nodes. A node that speaks is released if it is Ready and nothing evicts its Pods. A silent node is released if
// nodes have spoken for long enough (the constant heals), a witness exists, and no leader with a young report hears that node. A
// witness is a leader with a young report that hears a node of the cut, not counting its own node. In a pool of two, or without
// any report, no witness is needed.
func (c *cut) heal(now time.Time, nodes map[string]*facts, reports []report) {
	reports = slices.DeleteFunc(slices.Clone(reports), func(r report) bool { return r.at.IsZero() })
	nobody := len(reports) == 0 || len(nodes) <= 2
	reports = slices.DeleteFunc(reports, func(r report) bool { return now.Sub(r.at) >= young })
	witness := slices.ContainsFunc(reports, func(r report) bool {
		return slices.ContainsFunc(r.reached, func(n edge.NodeName) bool { return c.within[string(n)] && string(n) != r.leader })
	})
	healed := now.Sub(c.spoke) >= heals
	for name := range c.held {
		f := nodes[name]
		speaks := now.Sub(f.renewed) < quietFrom
		heard := slices.ContainsFunc(reports, func(r report) bool { return slices.Contains(r.reached, edge.NodeName(name)) })
		if speaks && f.well() || !speaks && healed && (nobody || witness && !heard) {
			delete(c.held, name)
		}
	}
}

// Times of a cut. The product's are in internal/cloud/poolcut; the oracle demands a little less.
const (
	// quietFrom is the age from which on a Lease means that its node does not speak: 3/4 of silence-after, which is 40 s.
	quietFrom = 30 * time.Second
	// cutFor is how long a pool must have been silent before it has to be held. It is less than the 50 s after which
	// kube-controller-manager taints a silent node.
	cutFor = 45 * time.Second
	// atOnce is the most that lies between the last heartbeats of nodes that fell silent together. It is --silence-after (40 s)
	// less the time that kube-controller-manager may take to see a heartbeat.
	atOnce = 40*time.Second - verdict
	// heals is how long nodes must have spoken before a silent node is released. young is the age from which on a report does not
	// count. The product uses --silence-after (40 s) for both. Each differs from that by 2 s, so that the oracle demands a little
	// less.
	heals, young = 38 * time.Second, 42 * time.Second
)
