package heartbeat

import (
	"errors"
	"time"

	"yurtcoordinator/internal/edge"
)

// patience is how long a leader goes on that the cloud takes nothing from, or that hears nothing of its coordinator's Leases. A
// node must not turn NotReady by it, for which Kubernetes waits 40 s or more after the last heartbeat that it knows:
//
//	kubelet's next heartbeat + patience + until that is noticed + change of leader + kubelet's next + its write
//	           10.4 s        +   15 s   +         1 s           +       1 s        +    10.4 s     +   1 s      < 40 s
//
// It is longer than a healthy leader waits for either: 10 s for a write, and 11 s for a sign of the watch. A coordinator's etcd
// looks every 5.5 s at most whether a watch has brought anything since it last looked, and sends a bookmark if not.
const patience = 15 * time.Second

var (
	errUnserved = errors.New("the cloud has taken no heartbeat that this hub forwards for 15 s")
	errDeaf     = errors.New("this hub has heard nothing of the coordinator's Leases for 15 s")
)

// fitness decides when a leader gives its term back because it can't do what it leads for. It does no I/O and asks no clock.
//
// It judges by what is about this hub. That the cloud refuses one node's Lease is about that Lease, which its node may have made
// so: it counts neither for nor against.
type fitness struct {
	taken time.Time                   // when the cloud last took a write
	under map[edge.NodeName]time.Time // the writes under way, and when each began
	since time.Time                   // when the first write began that was not served, since one was taken; zero: none
	last  time.Time                   // when the latest of these began
}

// newFitness returns the fitness of a hub that begins to lead.
func newFitness() *fitness { return &fitness{under: map[edge.NodeName]time.Time{}} }

// anew takes in that this hub begins to lead: what was not served in its last term is another story.
func (f *fitness) anew() { f.since = time.Time{} }

// begins takes in that the write of a node's renewal begins.
func (f *fitness) begins(node edge.NodeName, now time.Time) { f.under[node] = now }

// ends takes in why it was not written; "" means that it was.
func (f *fitness) ends(node edge.NodeName, why reason, now time.Time) {
	began := f.under[node]
	delete(f.under, node)
	switch why {
	case "":
		f.taken, f.since = now, time.Time{}
	case reasonFailed, reasonAged:
		f.since, f.last = f.unserved(began)
	}
}

// unserved returns when the first and the last write began that was not served, with one that began then. What is older than
// patience before that is another story: there was nothing to write in between.
func (f *fitness) unserved(began time.Time) (since, last time.Time) {
	if began.Before(f.taken) {
		began = f.taken
	}
	switch {
	case f.since.IsZero() || began.Sub(f.last) >= patience:
		return began, began
	case began.Before(f.since):
		return began, f.last
	case began.After(f.last):
		return f.since, began
	}
	return f.since, f.last
}

// judge returns why this hub must not lead on at a coordinator, whose watch of Leases last brought anything at the moment heard;
// nil means that it may.
func (f *fitness) judge(now, heard time.Time) error {
	if now.Sub(heard) >= patience {
		return errDeaf
	}
	all := *f
	for _, began := range f.under {
		all.since, all.last = all.unserved(began)
	}
	if !all.since.IsZero() && now.Sub(all.since) >= patience && now.Sub(all.last) < patience {
		return errUnserved
	}
	return nil
}
