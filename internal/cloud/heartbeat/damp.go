package heartbeat

import (
	"sync"
	"time"

	"yurtcoordinator/internal/edge"
)

// changesMost is how often the source of a node's heartbeats may change within Config.Calm. The sources are the node itself, the
// node over a relay (all of its requests, or only heartbeats), and another node that forwards. If a link is down for a short
// time, the source changes three times: forwarded, relayed, and healed. Without the limit each heartbeat could cost two writes of
// the Node and an Event. That happens when a link comes and goes, or when somebody forwards heartbeats for a node that reports
// itself.
const changesMost = 3

// damper keeps a node's taint and condition from changing with each heartbeat. If the source of a Lease's renewals changes more
// than changesMost times within Config.Calm, the node is unsettled until the source has stayed the same for that time. A damper
// is safe for concurrent use.
//
// An unsettled node keeps one taint, by default with the effect PreferNoSchedule (wish.effect). NoSchedule would keep
// replacements away for as long as the link comes and goes. A Pod that somebody deletes while the link is up would be lost to the
// node. Without a taint, the scheduler would treat a node with a bad link like any other.
type damper struct {
	within time.Duration // zero means that nothing is damped

	mu    sync.Mutex
	nodes map[edge.NodeName]damped
}

// damped is what a damper knows of a node; the zero value means nothing.
type damped struct {
	// says is what the node's Lease says now, and since when.
	says  word
	since time.Time
	// changes are the last changes of says, and the last end of being unsettled, the oldest first.
	changes   [changesMost]time.Time
	unsettled bool
}

// word is what a Lease says of its node's link.
type word uint8

const (
	nothing word = iota
	byItself
	relayed
	relayedHeartbeats
	forwarded
)

func newDamper(within time.Duration) *damper {
	return &damper{within: within, nodes: make(map[edge.NodeName]damped)}
}

// peek returns what to make of a finding now. It changes nothing.
func (d *damper) peek(node edge.NodeName, f Finding, now time.Time) Finding {
	d.mu.Lock()
	defer d.mu.Unlock()
	is, _ := damp(d.nodes[node], f, now, d.within)
	return f.settle(is)
}

// settle returns what to make of f now, as the method peek does, and remembers f. wait is the least time for which the node stays
// unsettled; zero means that the node is settled. begins says that the node has just become unsettled.
func (d *damper) settle(node edge.NodeName, f Finding, now time.Time) (steady Finding, wait time.Duration, begins bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	was := d.nodes[node]
	is, wait := damp(was, f, now, d.within)
	if is.says != nothing {
		d.nodes[node] = is
	}
	return f.settle(is), wait, is.unsettled && !was.unsettled
}

func (d *damper) forget(node edge.NodeName) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.nodes, node)
}

// damp returns what a damper knows of a node once its Lease says f, and how long the node at least stays unsettled.
func damp(d damped, f Finding, now time.Time, within time.Duration) (damped, time.Duration) {
	says := f.says()
	switch {
	case says == nothing:
		return d, 0
	case d.says == nothing:
		return damped{says: says, since: now}, 0
	}
	if d.unsettled && now.Sub(d.since) >= within {
		d.unsettled = false
		d.changed(now)
	}
	if says != d.says {
		d.unsettled = d.unsettled || now.Sub(d.changes[0]) < within
		d.changed(now)
		d.says, d.since = says, now
	}
	if !d.unsettled {
		return d, 0
	}
	return d, within - now.Sub(d.since)
}

func (d *damped) changed(now time.Time) {
	copy(d.changes[:], d.changes[1:])
	d.changes[changesMost-1] = now
}

func (f Finding) says() word {
	switch delegated, ok := f.delegated(); {
	case !ok:
		return nothing
	case !delegated:
		return byItself
	case f.HeartbeatsOnly:
		return relayedHeartbeats
	case f.Relayed:
		return relayed
	}
	return forwarded
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

// settle returns what to make of the Finding for such a node.
func (f Finding) settle(d damped) Finding {
	if _, ok := f.delegated(); !ok || !d.unsettled {
		return f
	}
	f.Annotated, f.Relayed, f.HeartbeatsOnly, f.Unsettled = true, false, false, true
	if f.Verdict == Direct {
		f.Verdict = Delegated
	}
	return f
}
