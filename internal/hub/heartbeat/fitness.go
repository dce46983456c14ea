package heartbeat

import (
	"errors"
	"time"

	"yurtcoordinator/internal/edge"
)

// patience is how long a leader stays leader while the cloud takes none of its writes, or while no news of the coordinator's
// Leases arrives. No node may turn NotReady in that time. Kubernetes waits at least 40 s after the last heartbeat that it knows.
// The longest time between two heartbeats that Kubernetes gets is:
//
//	kubelet's next heartbeat + patience + until that is noticed + change of leader + kubelet's next + its write
//	           10.4 s        +   15 s   +         1 s           +       1 s        +    10.4 s     +   1 s      < 40 s
//
// A healthy leader does not reach that limit. It waits at most 10 s for a write. A coordinator sends the leader a line at least
// every 10 s, also without news.
const patience = 15 * time.Second

var (
	errUnserved = errors.New("the cloud has taken no heartbeat that this hub forwards for 15 s")
	errDeaf     = errors.New("this hub has heard nothing of the coordinator's Leases for 15 s")
)

// fitness decides when a leader gives up its term because it can't do a leader's work. It does no I/O and asks no clock.
//
// fitness counts only failures that are about this hub. It ignores a refusal of one node's Lease, because that node may have
// caused it.
type fitness struct {
	taken time.Time                   // when the cloud last took a write
	under map[edge.NodeName]time.Time // the writes under way, and when each began
	since time.Time                   // when the first unserved write since taken began; zero means none
	last  time.Time                   // when the latest of these began
}

// newFitness returns the fitness of a hub that begins to lead.
func newFitness() *fitness { return &fitness{under: map[edge.NodeName]time.Time{}} }

// anew records that this hub begins to lead. Failures of its last term no longer count.
func (f *fitness) anew() { f.since = time.Time{} }

// begins records that the write of a node's renewal begins.
func (f *fitness) begins(node edge.NodeName, now time.Time) { f.under[node] = now }

// ends records that the write of a node's renewal has ended. The parameter why says why the renewal was not written; "" means
// that it was written.
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

// unserved returns what fitness.since and fitness.last become with one more unserved write, which began at the time began. If the
// last unserved write began 15 s (patience) or more before that, the new write becomes both the first and the last.
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

// unfit returns why this hub must give up its term at a coordinator; nil means that it may continue to lead. The parameter heard
// is when that coordinator last sent news of heartbeats.
func (f *fitness) unfit(now, heard time.Time) error {
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
