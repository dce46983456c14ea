package upgrades

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"yurtcoordinator/internal/edge"
)

// part is the share of all pools that may be under way at a time, one at least.
const part = 10

// patience is how long a node that can't be reached still counts as under way, from when its upgrader was made. That long, the
// other nodes of its pool wait for it.
const patience = 15 * time.Minute

// work is what a node's upgrader has done.
type work uint8

const (
	// idle says that it has none.
	idle work = iota
	// pulling says that its image comes.
	pulling
	// pulled says that the image is there.
	pulled
	// busy says that the program is delivered, and the node has not answered.
	busy
	// done says that the node has answered that it is upgraded.
	done
	// refused says that the node does not take the program.
	refused
	// wentBack says that the hub did not work with the program, and the node went back.
	wentBack
	// lost says that the upgrader ended without an answer.
	lost
)

// node is what is known of a node.
type node struct {
	name edge.NodeName
	// version is the version that its hub reports; empty means that it reports none.
	version string
	// takes says that it takes upgrades from the cloud.
	takes bool
	// ready and connected say that the cloud sees it Ready, over its own line.
	ready, connected bool
	// leads says that the others of its pool depend on it.
	leads bool
	work  work
	// of is the version of its upgrader, since is when the upgrader was made, and why is what it says.
	of    string
	since time.Time
	why   string
}

// is reports whether the node is of a version.
func (n node) is(version string) bool { return n.version == version }

// can reports whether the node could be upgraded now.
func (n node) can() bool { return n.takes && n.ready && n.connected }

// warns reports whether the node's upgrader keeps other pools from a version that their hubs are to have, and its own are not.
func (n node) warns(own string, wanted map[string]bool) bool {
	return n.work == wentBack && n.of != own && wanted[n.of]
}

// pool is what is known of a pool, and what somebody wants of it.
type pool struct {
	name edge.PoolName
	// version is the version that its hubs are to have; empty means that nobody asks for one.
	version string
	// most is how many of its nodes may be under way at a time.
	most   int
	paused bool
	// open says that it is the time of day for it; opens is when that changes next.
	open  bool
	opens time.Time
	// bad is why its settings can't be used.
	bad   string
	nodes []node
}

// state is how far a pool is, as its status says.
type state string

// States of pools.
const (
	// UpToDate: all of its hubs are of the version.
	UpToDate state = "UpToDate"
	// Upgrading: some of its nodes are under way, or are next.
	Upgrading state = "Upgrading"
	// WaitsItsTurn: other pools come first.
	WaitsItsTurn state = "WaitsItsTurn"
	// OutsideWindow: it is not the time for it.
	OutsideWindow state = "OutsideWindow"
	// Paused: somebody has said so.
	Paused state = "Paused"
	// Waiting: some of what is left can't be reached, or is not Ready.
	Waiting state = "Waiting"
	// NotUpgradable: what is left stays as it is until somebody changes that.
	NotUpgradable state = "NotUpgradable"
	// Stopped: a node was not well with the version, or refuses it. Somebody must look.
	Stopped state = "Stopped"
	// BadSettings: what somebody wants can't be used.
	BadSettings state = "BadSettings"
)

// step is something that is to be done for a node.
type step struct {
	node edge.NodeName
	of   string
}

// decision is what is done for a pool, and said of it.
type decision struct {
	pool    edge.PoolName
	version string
	state   state
	message string
	// upgraded of nodes are of the version.
	upgraded, nodes int
	// pull are the nodes that are to pull the image. deliver are those whose turn it is. forget are nodes whose upgrader is no
	// longer needed.
	pull, deliver []step
	forget        []edge.NodeName
}

// plan decides which nodes are upgraded next. The second result is when to look again; zero means after the next change of a
// Node, an upgrader or settings.
//
// If a node went back from a version, no other node of any pool gets that version, for as long as any pool wants it. A node that
// refuses a version is not harmed, so a refusal stops only that node's pool. At most a tenth of the pools upgrade at a time, but
// one at least. In each of them one node upgrades, unless settings say more. Meanwhile the next node pulls its image. The next
// node gets its turn when the one before it has the version and is Ready. The pool's leaders are last. A node that can't be
// reached is skipped, and takes its turn when it is back.
func plan(pools []pool, now time.Time) (all []decision, again time.Duration) {
	pools = slices.Clone(pools)
	slices.SortFunc(pools, func(a, b pool) int { return strings.Compare(string(a.name), string(b.name)) })
	soon := func(after time.Duration) {
		if after = max(after, time.Second); again == 0 || after < again {
			again = after
		}
	}
	bad := map[string]string{}  // versions that a node was not well with, and what it says
	wanted := map[string]bool{} // versions that some pool's hubs are to have
	under := 0
	for _, p := range pools {
		wanted[p.version] = true
		for _, n := range p.nodes {
			if n.work == wentBack && bad[n.of] == "" {
				bad[n.of] = fmt.Sprintf("%s went back: %s", n.name, n.why)
			}
		}
		if p.underWay(now) {
			under++
		}
	}
	may := max(1, len(pools)/part) - under
	for _, p := range pools {
		d := decision{pool: p.name, version: p.version, nodes: len(p.nodes)}
		p.forget(&d, wanted, now)
		for _, n := range p.nodes {
			if !n.connected && n.onTheWay(p.version, now) {
				soon(n.since.Add(patience).Sub(now))
			}
		}
		if p.version == "" {
			all = append(all, d)
			continue
		}
		left := p.left()
		d.upgraded = len(p.nodes) - len(left)
		ready := slices.DeleteFunc(slices.Clone(left), func(n node) bool { return !n.can() || n.warns(p.version, wanted) })
		on := p.onTheWay(now)
		switch why := p.refusal(); {
		case p.bad != "":
			d.state, d.message = BadSettings, p.bad
		case len(left) == 0 && on == 0:
			d.state = UpToDate
		case bad[p.version] != "":
			d.state, d.message = Stopped, "No other node gets "+p.version+", since "+bad[p.version]
		case why != "":
			d.state, d.message = Stopped, why
		case p.paused:
			d.state, d.message = Paused, "No upgrade begins while it is paused."
		case len(ready) == 0 && on == 0:
			d.state, d.message = p.waiting(left, wanted)
		case !p.open:
			d.state = OutsideWindow
			d.message = "The next window begins at " + p.opens.UTC().Format("2006-01-02 15:04") + " UTC."
			if !p.opens.IsZero() {
				soon(min(p.opens.Sub(now), clockAgain))
			}
		case on == 0 && may <= 0:
			d.state, d.message = WaitsItsTurn, "A tenth of all pools upgrades at a time; others come first."
		default:
			if on == 0 {
				may--
			}
			d.state, d.message = Upgrading, p.next(&d, ready, on)
		}
		all = append(all, d)
	}
	return all, again
}

// underWay reports whether one of its nodes is.
func (p pool) underWay(now time.Time) bool { return p.onTheWay(now) > 0 }

// onTheWay is how many of its nodes are without their hub, or not known to be well with the new one yet.
func (p pool) onTheWay(now time.Time) (n int) {
	for _, node := range p.nodes {
		if node.onTheWay(p.version, now) {
			n++
		}
	}
	return n
}

func (n node) onTheWay(wanted string, now time.Time) bool {
	switch {
	case n.work == busy:
	case n.work == done && n.of == wanted && (!n.is(wanted) || !n.ready):
	default:
		return false
	}
	return n.connected || now.Sub(n.since) < patience
}

// left are the nodes that do not have the version. Those on which others depend come last.
func (p pool) left() []node {
	left := slices.DeleteFunc(slices.Clone(p.nodes), func(n node) bool { return n.is(p.version) })
	slices.SortFunc(left, func(a, b node) int {
		last := func(n node) int {
			if n.leads {
				return 1
			}
			return 0
		}
		return cmp.Or(cmp.Compare(last(a), last(b)), strings.Compare(string(a.name), string(b.name)))
	})
	return left
}

// refusal is why a node of the pool does not take the version; empty means that none refuses.
func (p pool) refusal() string {
	for _, n := range p.nodes {
		if n.work == refused && n.of == p.version {
			return fmt.Sprintf("%s refuses %s: %s", n.name, p.version, n.why)
		}
	}
	return ""
}

// waiting says why none of those that are left can be upgraded, and whether that may pass by itself.
func (p pool) waiting(left []node, wanted map[string]bool) (is state, text string) {
	is = NotUpgradable
	var texts []string
	for _, n := range left {
		why := "takes no upgrades: run yurthub join there with --release-key"
		switch {
		case n.warns(p.version, wanted):
			why = "went back from " + n.of + ", which other pools are to have"
		case n.version == "":
			why = "does not report its version"
		case !n.takes:
		case !n.connected:
			is, why = Waiting, "is cut off"
		case !n.ready:
			is, why = Waiting, "is not Ready"
		}
		texts = append(texts, fmt.Sprintf("%s %s", n.name, why))
	}
	return is, edge.Some(texts)
}

// forget lists the upgraders that are no longer needed: those of another version, and those of nodes that already have the
// version. It also lists upgraders without an answer, which are tried again. An upgrader stays while it keeps other pools from a
// version (node.warns).
func (p pool) forget(d *decision, wanted map[string]bool, now time.Time) {
	for _, n := range p.nodes {
		switch {
		case n.work == idle, n.warns(p.version, wanted):
		case n.work == busy && n.of != p.version && n.onTheWay(p.version, now): // it ends by itself
		case n.of != p.version, n.is(p.version) && n.ready && n.work != busy, n.work == lost:
			d.forget = append(d.forget, n.name)
		}
	}
}

// next says what is done now, of those that can be upgraded, while some are on the way.
func (p pool) next(d *decision, ready []node, on int) string {
	var under, comes []string
	most := max(1, p.most)
	for _, n := range p.nodes {
		if n.work == busy || n.work == done && !n.is(p.version) {
			under = append(under, n.text())
		}
	}
	fetching := 0
	for _, n := range ready {
		if n.of != "" && n.of != p.version || slices.Contains(d.forget, n.name) {
			continue // once its former upgrader is gone
		}
		switch n.work {
		case pulled:
			if on < most {
				on++
				d.deliver = append(d.deliver, step{n.name, p.version})
				under = append(under, string(n.name))
			}
		case pulling:
			fetching++
			comes = append(comes, n.text())
		case idle:
			if fetching < most {
				fetching++
				d.pull = append(d.pull, step{n.name, p.version})
				comes = append(comes, string(n.name))
			}
		}
	}
	text := "Upgrading: " + edge.Some(under) + "."
	if len(under) == 0 {
		text = ""
	}
	if len(comes) > 0 {
		text = strings.TrimSpace(text + " The image is pulled on " + edge.Some(comes) + ".")
	}
	return text
}

// text names a node, with what its upgrader says.
func (n node) text() string {
	if n.why == "" {
		return string(n.name)
	}
	return fmt.Sprintf("%s (%s)", n.name, n.why)
}
