package heartbeat

import (
	"maps"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/utils/ptr"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/hub/lead"
)

// The bounds of forwarding.
const (
	// maxAge and ageShare bound how long the leader may take to write a renewal that it has seen: a quarter of the lease
	// duration, and at most 10 s. A quarter is kubelet's own interval (nodeLeaseRenewIntervalFraction), after which the next
	// renewal is due.
	maxAge   = 10 * time.Second
	ageShare = 4

	// transit is the time allowed for a renewal's way from the coordinator to the leader. Counted from when the coordinator
	// stored the renewal, the bound on its age (ageBound) is longer by transit. The leader knows only to about 1 s when the
	// coordinator stored it, because it tells that from its renewals of the election Lease, one a second.
	transit = 2 * time.Second

	// parallelMin and parallelMax bound how many writes to the cloud may be under way at a time, each for another node. Between
	// these bounds, their number is just enough to serve all delegated nodes within serveWithin, which is half of kubelet's
	// interval. The queue computes the number from the round trip of earlier writes.
	parallelMin = 4
	parallelMax = 32
	serveWithin = 5 * time.Second

	// remembered is how many of a node's renewals the queue remembers, to recognize a renewal that another coordinator repeats.
	// Four renewals span some 40 s. No coordinator is that far behind another.
	remembered = 4

	// refusedMin and refusedMax bound the pause of a node whose Lease the cloud has refused; it doubles each time.
	refusedMin = time.Second
	refusedMax = 30 * time.Second
	// largePause is the pause of a node whose Lease in the cloud has more than maxLease bytes. Each write first reads that Lease
	// over the leader's line. An honest Lease has about 1 KB; a node with root can have one of 1.5 MB.
	largePause = 10 * time.Minute
	maxLease   = 32 << 10
)

// reason says why a renewal was not forwarded.
type reason string

const (
	reasonSuperseded reason = "superseded" // a newer renewal of the node took its place
	reasonAged       reason = "aged"       // it waited too long, or was too long on its way here
	reasonDeposed    reason = "deposed"    // the term is not, or not certainly, valid
	reasonUnmarked   reason = "unmarked"   // the node took its mark off, or is being deleted
	reasonForeign    reason = "foreign"    // the Lease's name is not its holder's
	reasonRepeated   reason = "repeated"   // not a new renewal: the same stamp, or an older revision
	reasonReported   reason = "reported"   // the cloud has this renewal or a later one
	reasonRefused    reason = "refused"    // the cloud does not take this Lease: 4xx, but not 429
	reasonFailed     reason = "failed"     // the cloud did not answer, or answered 429 or 5xx
)

// sighting is a renewal that the leader saw happen.
type sighting struct {
	node     edge.NodeName
	slot     int // of the coordinator where it was seen first
	lease    *coordinationv1.Lease
	seen     time.Time // when the leader saw it
	deadline time.Time // the moment at which it is too old to be written
	// cloud is the node's Lease in the cloud as this leader last read or wrote it; nil if it does not know.
	cloud *coordinationv1.Lease
}

// delegated is the queue's state of one delegated node.
type delegated struct {
	copies  map[int]copied // by slot: where it is marked
	stamps  []time.Time    // kubelet's, of the last renewals that were seen to happen
	first   bool           // to be served before others
	waiting *sighting
	since   uint64 // orders nodes by when they began to wait; kept when a newer renewal takes the waiting one's place
	turn    uint64 // the number of its last write; 0 means that it had none
	writing bool
	cloud   *coordinationv1.Lease
}

// copied is a coordinator's newest copy of a node's Lease.
type copied struct {
	revision uint64
	renewed  time.Time // kubelet's stamp
}

// queue decides which renewals a leader writes. Its input is what the leader sees at its coordinators. A node sends each renewal
// to all coordinators, so the queue ignores a renewal that it has already seen at another one. It does no I/O and asks no clock.
//
// queue serves next the node whose last write is longest ago, and not the node that has waited longest. In an overload, renewals
// expire before they are served, so all nodes have waited equally long.
type queue struct {
	self    edge.NodeName
	nodes   map[edge.NodeName]*delegated
	refused map[edge.NodeName]refusal
	writing int
	took    time.Duration // the writes' round trip, smoothed
	places  uint64
	turns   uint64
	drop    func(edge.NodeName, reason)
}

// refusal is the pause after the cloud has refused a node's Lease: the leader does not write that Lease until the pause ends. The
// queue keeps the pause if the node's mark goes. Otherwise a node could end its pause: it removes the mark and sets it again.
type refusal struct {
	pause time.Duration
	until time.Time
}

// newQueue returns an empty queue. The parameter self is the leader's own node. The queue calls the function drop for every
// renewal that it gives up or does not accept.
func newQueue(self edge.NodeName, drop func(edge.NodeName, reason)) *queue {
	return &queue{self: self, nodes: map[edge.NodeName]*delegated{}, refused: map[edge.NodeName]refusal{}, drop: drop}
}

// count is the number of nodes that are delegated now.
func (q *queue) count() int {
	n := 0
	for _, a := range q.nodes {
		if len(a.copies) > 0 {
			n++
		}
	}
	return n
}

// baseline takes in a list of all Leases at a coordinator. They do not count as renewals, because nobody knows when they were
// written.
func (q *queue) baseline(slot int, leases []coordinationv1.Lease) {
	found := make(map[edge.NodeName]*coordinationv1.Lease, len(leases))
	for i := range leases {
		lease := &leases[i]
		if q.check(lease) == "" {
			found[edge.NodeName(lease.Name)] = lease
		}
	}
	for node := range q.nodes {
		if found[node] == nil {
			q.unmark(slot, node, reasonUnmarked)
		}
	}
	for node, lease := range found {
		a := q.open(node, lease)
		renewed := renewTime(lease)
		if w := a.waiting; w != nil && w.slot == slot && !renewed.Equal(renewTime(w.lease)) {
			// The copy changed unseen, so the waiting renewal is no longer the node's latest.
			q.dropWaiting(node, a, reasonSuperseded)
		}
		a.copies[slot] = copied{lead.LeaseRevision(lease), renewed}
	}
}

// end records that this hub no longer leads at a coordinator.
func (q *queue) end(slot int) {
	for node := range q.nodes {
		q.unmark(slot, node, reasonDeposed)
	}
}

// check says why a Lease must not be forwarded; "" means that it may.
func (q *queue) check(lease *coordinationv1.Lease) reason {
	marked := lease.Labels[edge.DelegateHeartbeat] == edge.DelegateHeartbeatOn &&
		lease.Annotations[edge.DelegateHeartbeat] == edge.DelegateHeartbeatOn
	switch {
	case ptr.Deref(lease.Spec.HolderIdentity, "") != lease.Name:
		return reasonForeign
	case !marked || lease.DeletionTimestamp != nil || renewTime(lease).IsZero():
		return reasonUnmarked
	}
	return ""
}

// change takes in a change of a Lease that a coordinator has reported. The parameter stored is a time before the coordinator
// stored the change; known is false if no such time is known.
//
// A copy that has just been marked is a renewal, because a hub writes a copy only for a heartbeat from kubelet. A Lease whose
// stamp the queue remembers is no renewal, whoever wrote it.
func (q *queue) change(slot int, lease *coordinationv1.Lease, now, stored time.Time, known bool) {
	node := edge.NodeName(lease.Name)
	if why := q.check(lease); why != "" {
		q.unmark(slot, node, why)
		if a := q.nodes[node]; a != nil && a.older(renewTime(lease)) {
			for other := range a.copies { // the node's newest word, which has yet to come there, or can't
				q.unmark(other, node, why)
			}
		}
		q.drop(node, why)
		return
	}
	is := copied{lead.LeaseRevision(lease), renewTime(lease)}
	if a := q.nodes[node]; a != nil && is.revision <= a.copies[slot].revision {
		q.drop(node, reasonRepeated)
		return
	}
	a := q.open(node, lease)
	was, before := a.copies[slot]
	a.copies[slot] = is
	if before && is.renewed.Equal(was.renewed) || slices.ContainsFunc(a.stamps, is.renewed.Equal) {
		q.drop(node, reasonRepeated)
		return
	}
	a.remember(is.renewed)
	bound := ageBound(lease)
	deadline := now.Add(bound)
	if !known {
		deadline = now
	} else if latest := stored.Add(bound + transit); latest.Before(deadline) {
		deadline = latest
	}
	if a.waiting == nil {
		q.places++
		a.since = q.places
	} else {
		q.drop(node, reasonSuperseded)
	}
	a.waiting = &sighting{node: node, slot: slot, lease: lease, seen: now, deadline: deadline}
}

// remember notes that a renewal was seen.
func (a *delegated) remember(stamp time.Time) {
	if len(a.stamps) == remembered {
		a.stamps = append(a.stamps[:0], a.stamps[1:]...)
	}
	a.stamps = append(a.stamps, stamp)
}

// older reports whether all renewals that were seen are older than a stamp.
func (a *delegated) older(stamp time.Time) bool {
	return !slices.ContainsFunc(a.stamps, func(s time.Time) bool { return !s.Before(stamp) })
}

// ageBound is how long a renewal that was seen may wait to be written.
func ageBound(lease *coordinationv1.Lease) time.Duration {
	if d := duration(lease); d > 0 {
		return min(d/ageShare, maxAge)
	}
	return maxAge
}

func (q *queue) open(node edge.NodeName, lease *coordinationv1.Lease) *delegated {
	a := q.nodes[node]
	if a == nil {
		a = &delegated{copies: map[int]copied{}}
		q.nodes[node] = a
	}
	a.first = node == q.self || lease.Annotations[edge.AnnotationCoordinatorHost] == "true"
	return a
}

// unmark records that a node has no marked copy at a coordinator. The queue forgets a node that has no marked copy anywhere, as
// soon as no write for the node is under way.
func (q *queue) unmark(slot int, node edge.NodeName, why reason) {
	a := q.nodes[node]
	if a == nil {
		return
	}
	delete(a.copies, slot)
	if a.waiting != nil && a.waiting.slot == slot || len(a.copies) == 0 {
		q.dropWaiting(node, a, why)
	}
	if len(a.copies) > 0 {
		return
	}
	a.stamps = nil
	if !a.writing {
		delete(q.nodes, node)
	}
}

func (q *queue) dropWaiting(node edge.NodeName, a *delegated, why reason) {
	if a.waiting != nil {
		a.waiting = nil
		q.drop(node, why)
	}
}

// next returns the renewal to write now; nil means that there is none. The renewal counts as being written until the method done
// is called. next drops renewals that are too old, and all from a coordinator where the term is not valid. The leader's own node
// and the coordinators' nodes come first, then the node whose last write is longest ago. A node whose Lease the cloud has refused
// is skipped until its pause is over.
func (q *queue) next(now time.Time, valid func(slot int) bool) *sighting {
	var best *delegated
	parallel := q.parallel()
	for node, a := range q.nodes {
		switch {
		case a.waiting == nil:
		case !valid(a.waiting.slot):
			q.dropWaiting(node, a, reasonDeposed)
		case !now.Before(a.waiting.deadline):
			q.dropWaiting(node, a, reasonAged)
		case a.writing || q.writing >= parallel || now.Before(q.refused[node].until):
		case best == nil || a.before(best):
			best = a
		}
	}
	if best == nil {
		return nil
	}
	s := best.waiting
	s.cloud = best.cloud
	q.turns++
	best.waiting, best.writing, best.turn = nil, true, q.turns
	q.writing++
	return s
}

// before reports whether a node is to be served before another.
func (a *delegated) before(b *delegated) bool {
	switch {
	case a.first != b.first:
		return a.first
	case a.turn != b.turn:
		return a.turn < b.turn
	}
	return a.since < b.since
}

// parallel is how many writes may be under way.
func (q *queue) parallel() int {
	return min(max(parallelMin, int(time.Duration(q.count())*q.took/serveWithin)+1), parallelMax)
}

// done records that the write of a node's renewal has ended, successful or not. The parameter cloud is the node's Lease in the
// cloud; nil means unknown. The parameter took is how long a successful write took; zero means that the write failed.
func (q *queue) done(node edge.NodeName, cloud *coordinationv1.Lease, took time.Duration) {
	a := q.nodes[node]
	q.writing--
	a.writing, a.cloud = false, cloud
	if len(a.copies) == 0 {
		delete(q.nodes, node)
	}
	switch {
	case took == 0:
	case q.took == 0:
		q.took = took
	default:
		q.took += (took - q.took) / 8
	}
}

// refuse records that the cloud has refused a node's Lease, and makes the node's next renewal wait, for the time least or longer.
// The node may have caused the refusal. Without the wait, the node could use up the writes that all nodes need.
func (q *queue) refuse(node edge.NodeName, now time.Time, least time.Duration) {
	was, pause := q.refused[node], refusedMin
	if now.Sub(was.until) < refusedMax {
		pause = min(2*was.pause, refusedMax)
	}
	pause = max(pause, least)
	q.refused[node] = refusal{pause, now.Add(pause)}
}

// forgive forgets the refusals that no longer lengthen a pause. A coordinator can invent any number of nodes.
func (q *queue) forgive(now time.Time) {
	maps.DeleteFunc(q.refused, func(_ edge.NodeName, r refusal) bool { return now.Sub(r.until) >= refusedMax })
}

// accepted records that the cloud has accepted a node's Lease.
func (q *queue) accepted(node edge.NodeName) { delete(q.refused, node) }

// left reports whether a node took its mark off while a renewal of it is being written.
func (q *queue) left(node edge.NodeName) bool {
	a := q.nodes[node]
	return a == nil || a.writing && len(a.copies) == 0
}
