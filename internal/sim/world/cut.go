package world

import (
	"slices"
	"time"

	"yurtcoordinator/internal/edge"
)

// cut is what the oracle knows of a pool that falls silent as a whole: for which nodes evictions must be held. A node speaks
// while its Lease is younger than quietFrom.
type cut struct {
	// since is when the last node was heard before the pool fell silent. If the pool speaks and falls silent again while a hold
	// goes on, since stays, so no hold in progress has begun before it. Zero means that some node speaks and no hold is in
	// progress.
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

// look takes in the present state of the nodes. In their facts it sets which of them must be held, and for how long the pool
// has been cut off.
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

// fall notes that the nodes that fell silent together with the last one must be held. A single node proves nothing.
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

// heal releases the nodes that are well again. Once others have spoken for long enough (heals), it also releases a silent node
// that no leader hears, if there is a witness. A witness is a leader with a young report, which hears a node of the cut other
// than its own. If nobody can be a witness, none is needed.
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
	// cutFor is how long a pool must have been silent before it has to be held. kube-controller-manager's first taint comes
	// after 50 s.
	cutFor = 45 * time.Second
	// atOnce is how far apart the last heartbeats of nodes that fell silent together may be. It is silence-after, less the time
	// that kube-controller-manager may take to see a heartbeat.
	atOnce = 40*time.Second - verdict
	// heals is how long other nodes must speak before a silent node is released. young is how old the report of a witness may
	// be.
	heals, young = 38 * time.Second, 42 * time.Second
)
