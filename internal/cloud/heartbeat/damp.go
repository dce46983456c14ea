package heartbeat

import (
	"sync"
	"time"

	"yurtcoordinator/internal/edge"
)

// changesMost is how often a node's taint may change within the damper's time. A link that comes and goes, or somebody who
// forwards for a node that reports itself, would otherwise cost two writes of the Node and an Event for each heartbeat.
const changesMost = 2

// damper keeps a node's taint, and the condition that goes with it, from changing with each heartbeat. A node that goes to and
// fro ends up tainted, and stays so until its heartbeats have been its own for the damper's time. It is safe for concurrent
// use.
type damper struct {
	within time.Duration // zero means that nothing is damped

	mu    sync.Mutex
	nodes map[edge.NodeName]damped
}

// damped is what a damper knows of a node.
type damped struct {
	known bool
	// says is what the node's Lease says now, delegated or not, and since when; shown is what the Node was last told.
	says, shown bool
	since       time.Time
	// changes are the last changes of shown, the oldest first.
	changes [changesMost]time.Time
	// held says that a change had to wait, and that the node has not been calm since.
	held bool
}

func newDamper(within time.Duration) *damper {
	return &damper{within: within, nodes: make(map[edge.NodeName]damped)}
}

// peek returns what to make of a finding at the moment now. It changes nothing.
func (d *damper) peek(node edge.NodeName, f Finding, now time.Time) Finding {
	d.mu.Lock()
	defer d.mu.Unlock()
	was := d.nodes[node]
	is, _ := damp(was, f, now, d.within)
	return f.as(is.shown)
}

// take is peek for who acts on the answer. If the finding has to wait, wait is how long; begins says that it is the first to
// wait since the node was calm.
func (d *damper) take(node edge.NodeName, f Finding, now time.Time) (steady Finding, wait time.Duration, begins bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	was := d.nodes[node]
	is, wait := damp(was, f, now, d.within)
	if is.known {
		d.nodes[node] = is
	}
	return f.as(is.shown), wait, is.held && !was.held
}

func (d *damper) forget(node edge.NodeName) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.nodes, node)
}

// damp decides what a node is shown as that is found to be f, and how long that may not change; zero means that it is as found.
func damp(d damped, f Finding, now time.Time, within time.Duration) (damped, time.Duration) {
	says, ok := f.delegated()
	switch {
	case !ok:
		return d, 0
	case !d.known:
		d = damped{known: true, says: says, shown: says, since: now}
		if says { // perhaps the Node says so already
			d.changes[changesMost-1] = now
		}
		return d, 0
	}
	if says != d.says {
		d.says, d.since = says, now
	}
	if says == d.shown {
		return d, 0
	}
	var earliest time.Time
	if !d.changes[0].IsZero() {
		earliest = d.changes[0].Add(within)
	}
	if calm := d.since.Add(within); d.held && !says && calm.After(earliest) {
		earliest = calm
	}
	if wait := earliest.Sub(now); within > 0 && wait > 0 {
		d.held = true
		return d, wait
	}
	copy(d.changes[:], d.changes[1:])
	d.changes[changesMost-1] = now
	d.shown, d.held = says, d.held && says
	return d, 0
}

// delegated reports whether a Finding says that heartbeats are delegated; not ok means that it says nothing about that.
func (f Finding) delegated() (says, ok bool) {
	switch f.Verdict {
	case Delegated, Direct:
		return f.Verdict == Delegated, true
	case Unobserved:
		return f.Annotated, true
	case NoLease, Silent:
	}
	return false, false
}

// as returns the Finding as if its heartbeats were delegated, or not; one that says nothing about that stays.
func (f Finding) as(delegated bool) Finding {
	if says, ok := f.delegated(); !ok || says == delegated {
		return f
	}
	f.Annotated, f.Relayed, f.NewPods = delegated, false, false
	switch {
	case f.Verdict == Unobserved:
	case delegated:
		f.Verdict = Delegated
	default:
		f.Verdict = Direct
	}
	return f
}
