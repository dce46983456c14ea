package world

import (
	"slices"
	"time"

	"yurtcoordinator/internal/edge"
)

// cut is what the oracle knows of a pool that falls silent as a whole: which nodes evictions have to be held from. A node speaks
// while its Lease is younger than quietFrom.
type cut struct {
	// since is when a node was heard last before the pool fell silent, which it may have done again since then, while a hold went
	// on. No hold that is in progress has begun before. Zero: none is, and somebody speaks.
	since time.Time
	// held are the nodes that nothing has released, within those that were held since then.
	held, within map[string]bool
	// spoke is since when nodes speak without a pause; zero: none does.
	spoke time.Time
	// Ever says that there was a node to hold.
	Ever bool
}

// report is what the leader of a slot has said last; zero: nothing.
type report struct {
	at      time.Time // when it was stored
	version string
	leader  string
	reached []edge.NodeName
}

// look takes in what is seen of the nodes now, sets which of them have to be held, and since when the pool has been cut off.
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

// fall has those held that fell silent with the last one. One alone says nothing.
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

// heal releases those that are well again, and those that are missed by a witness and heard by no leader: a witness is one whose
// report is young, and which hears another that was held than itself. Where nobody can be a witness, time is enough.
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

// Times of a cut. The product's are in internal/cloud/poolcut; what is asked is a little less.
const (
	// quietFrom is how old the Lease of a node is that does not speak: 3/4 of silence-after, which is 40 s.
	quietFrom = 30 * time.Second
	// cutFor is for how long a pool has been silent that must be held: kube-controller-manager's first taint comes after 50 s.
	cutFor = 45 * time.Second
	// atOnce is how far apart the last heartbeats are of nodes that fell silent together: silence-after, less what
	// kube-controller-manager may take to see one.
	atOnce = 40*time.Second - verdict
	// heals is for how long nodes must speak before one that does not is released, young how old the report may be by which it
	// is.
	heals, young = 38 * time.Second, 42 * time.Second
)
