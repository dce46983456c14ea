package poolcut

import (
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"yurtcoordinator/internal/cloud/heartbeat"
	"yurtcoordinator/internal/edge"
)

// minCut is how many nodes must have fallen silent together. If a pool loses one node, even its only one, a cut link and a dead
// node look alike. Two nodes that are lost within seconds probably have one cause.
const minCut = 2

// Limits are the times of the judgement.
type Limits struct {
	// Silence is how long a Lease may stay unrenewed before the node counts as silent; see New.
	Silence time.Duration
	// Grace is kube-controller-manager's grace period, or a little less. The last renewals of nodes that were cut off together
	// are at most this far apart. After one node has spoken, the others have this long to speak.
	Grace time.Duration
}

// Member is what is known about one node of a pool.
type Member struct {
	Name edge.NodeName
	// Lease is what was seen of the node's Lease.
	Lease heartbeat.Observation
	// Ready is the status of the Node's Ready condition; empty if it has none.
	Ready corev1.ConditionStatus
	// Lost is how long ago kube-controller-manager found the node silent, by wall clocks; zero means that it has not.
	Lost time.Duration
	// Held says that the Node's condition holds its evictions now. Within says that the present hold has covered the node: it is
	// held, or was held until it spoke.
	Held, Within bool
	// Spent says that a hold ended while the node was silent, and the node has not spoken since.
	Spent bool
	// Refused says that the Node is tainted as not ready because its own kubelet says so. Its Pods are evicted for that reason,
	// whether the pool is cut off or not.
	Refused bool
}

// Hold is a hold in progress.
type Hold struct {
	// For is how long the hold may last, Elapsed how long it has lasted.
	For, Elapsed time.Duration
	// Healing says that nodes speak. Healed is for how long they have done so without a pause.
	Healing bool
	Healed  time.Duration
}

// Report is what a leader of a pool says.
type Report struct {
	// Leader wrote it, and Reached are the nodes that it hears at the pool's coordinators.
	Leader  edge.NodeName
	Reached []edge.NodeName
	// Fresh says that it was seen to be written within the last grace period. An older one counts as none.
	Fresh bool
}

// givesUp reports whether a silent member may be given up, now that others speak. reports are those of the pool's leaders,
// however old; only fresh ones count. Some fresh report must come from a leader that hears another of the nodes that were cut off
// together, because only such a leader can witness for other nodes. And no fresh report may name the silent member. Without any
// reports, or without a third node, nobody can be a witness. Then it is enough that another node speaks.
func givesUp(up Member, members []Member, reports []Report) bool {
	const two = 2
	if len(reports) == 0 || len(members) <= two {
		return true
	}
	witnessed := false
	for _, r := range reports {
		if !r.Fresh {
			continue
		}
		if slices.Contains(r.Reached, up.Name) {
			return false
		}
		witnessed = witnessed || slices.ContainsFunc(members, func(m Member) bool {
			return m.Within && m.Name != r.Leader && slices.Contains(r.Reached, m.Name)
		})
	}
	return witnessed
}

// Outcome is how a hold ended; empty means that it did not.
type Outcome string

// Outcomes. They are the values of a metric's label.
const (
	// Spoke: a node of the pool has spoken.
	Spoke Outcome = "Spoke"
	// Expired: the hold has lasted as long as it may.
	Expired Outcome = "Expired"
	// Withdrawn: nothing asks for the hold any more, or the annotation refuses it.
	Withdrawn Outcome = "Withdrawn"
	// Emptied: no held node is left in the pool.
	Emptied Outcome = "Emptied"
)

// Reasons of the EvictionsHeld condition.
const (
	// ReasonCut (status True): the whole pool is silent.
	ReasonCut = "WholePoolCut"
	// ReasonNodeSpeaks (status False): the node renews its Lease again.
	ReasonNodeSpeaks = "NodeSpeaks"
	// ReasonPoolSpeaks (status False): other nodes of the pool speak, this one does not.
	ReasonPoolSpeaks = "OtherNodesSpeak"
	// ReasonExpired (status False): the hold's time is over.
	ReasonExpired = "HoldExpired"
	// ReasonWithdrawn (status False): nothing asks for a hold any more.
	ReasonWithdrawn = "HoldWithdrawn"
	// ReasonLeft (status False): the node is not in a pool that is held.
	ReasonLeft = "NotInHeldPool"
)

// spends reports whether a hold that ended with this reason must not begin again before the node has spoken. Otherwise a silent
// pool would be held forever.
func spends(reason string) bool { return reason == ReasonExpired || reason == ReasonPoolSpeaks }

// Change is what a Node's EvictionsHeld condition must say; the zero Change leaves it.
type Change struct {
	Status corev1.ConditionStatus
	Reason string
}

// Decision is what to do about a pool.
type Decision struct {
	// Changes has one entry for each Member, in their order.
	Changes []Change
	// Ended says how the hold in progress ended. Begins says that one begins now, perhaps right after another.
	Ended  Outcome
	Begins bool
	// Since is how long ago the hold has begun, if Begins is set.
	Since time.Duration
	// Speaking says that a node of the pool speaks.
	Speaking bool
	// Next is when to look again if nothing happens; zero means never.
	Next time.Duration
}

// Holds reports whether this Decision holds the pool.
func (d Decision) Holds() bool {
	for _, c := range d.Changes {
		if c.Status == corev1.ConditionTrue {
			return true
		}
	}
	return false
}

// Decide decides what to do about a pool, and is pure. t is what the NodePool asks for. h is the hold in progress; nil means that
// there is none.
func Decide(members []Member, reports []Report, t Terms, h *Hold, l Limits) Decision {
	s := survey(members, l)
	d := Decision{Changes: make([]Change, len(members)), Speaking: s.speaking > 0}
	for i, m := range members {
		if m.Spent && s.speaks[i] {
			d.Changes[i] = released(ReasonNodeSpeaks)
		}
	}
	wanted := len(s.cut) > 0 && t.For > s.since
	switch {
	case h == nil && !wanted:
		d.release(members, s, ReasonLeft)
		if t.For > 0 {
			d.Next = s.untilSilent
		}
	case h == nil:
		d.begin(members, s, t)
	case h.For <= 0: // nothing readable asks for one any more
		d.Ended = Withdrawn
		d.release(members, s, ReasonWithdrawn)
	case h.Elapsed >= h.For:
		d.Ended = Expired
		d.release(members, s, ReasonExpired)
	default:
		d.goOn(members, s, reports, *h, l)
	}
	if d.Ended != "" && !d.Begins && t.For > 0 {
		d.Next = s.untilSilent
	}
	return d
}

// begin holds the nodes that were cut off together, and no others.
func (d *Decision) begin(members []Member, s state, t Terms) {
	d.Begins = true
	d.release(members, s, ReasonLeft)
	for _, i := range s.cut {
		d.Changes[i] = held()
	}
	d.Since, d.Next = s.since, t.For-s.since
}

// goOn decides about each node of a held pool. It releases nodes only while some node speaks, because a single heartbeat that
// slips through does not mean that the link is back. When no node speaks any more, nodes that spoke in between are held again,
// and the hold ends when it would have ended anyway.
func (d *Decision) goOn(members []Member, s state, reports []Report, h Hold, l Limits) {
	over := h.Healing && s.speaking > 0 && h.Healed >= l.Grace
	for i, m := range members {
		switch {
		case !m.Held && s.speaking == 0 && m.Within && s.silent[i] && !m.Refused:
			d.Changes[i] = held()
		case !m.Held:
		case s.speaks[i] && m.Ready != corev1.ConditionUnknown && m.Ready != "":
			d.Changes[i] = released(ReasonNodeSpeaks)
		case !s.speaks[i] && over && givesUp(m, members, reports):
			d.Changes[i] = released(ReasonPoolSpeaks)
		default:
			// This includes a node that speaks but is still shown Unknown, which kube-controller-manager would taint. It stays
			// held until its kubelet says Ready, or the heartbeat policy does while its heartbeats are delegated.
			d.Changes[i] = held()
		}
	}
	for _, i := range s.cut { // add those that a failed write or a restart left out
		d.Changes[i] = held()
	}
	switch {
	case d.Holds():
		d.Next = h.For - h.Elapsed
		if s.speaking > 0 {
			d.Next = sooner(d.Next, l.Grace-h.Healed, s.nextSilent)
		}
	case s.speaking > 0:
		d.Ended = Spoke
	default:
		d.Ended = Emptied
	}
}

// release withdraws the condition of every node that has it. A silent node gets this reason.
func (d *Decision) release(members []Member, s state, reason string) {
	for i, m := range members {
		switch {
		case m.Held && s.speaks[i]:
			d.Changes[i] = released(ReasonNodeSpeaks)
		case m.Held:
			d.Changes[i] = released(reason)
		}
	}
}

func held() Change { return Change{corev1.ConditionTrue, ReasonCut} }

func released(reason string) Change { return Change{corev1.ConditionFalse, reason} }

// state is what the Leases of a pool mean together.
type state struct {
	speaks, silent []bool
	speaking       int
	// cut are the nodes to hold if the whole pool is cut off; otherwise it is empty. since is how long ago the pool was cut off
	// if only kube-controller-manager has seen that; zero means now.
	cut   []int
	since time.Duration
	// untilSilent is the least time until all nodes that may be alive are silent. nextSilent is the time until the first of them
	// is. Zero means never.
	untilSilent, nextSilent time.Duration
}

// survey finds out whether all living nodes have fallen silent together. A node has lived if its Lease was seen to be renewed,
// or if kube-controller-manager says when it was lost. Any other node whose Lease was not yet seen to be renewed may be alive
// or dead. While there is such a node, survey concludes nothing. That ends within the time that makes a node silent.
func survey(members []Member, l Limits) state {
	s := state{speaks: make([]bool, len(members)), silent: make([]bool, len(members))}
	undecided := 0
	seen, lost := map[int]time.Duration{}, map[int]time.Duration{} // how long ago, each by one clock
	for i, m := range members {
		finding, rest := heartbeat.Judge(m.Lease, l.Silence)
		mayBegin := !m.Lease.Gone && !m.Spent
		if mayBegin && m.Lost > 0 && finding.Verdict != heartbeat.NoLease {
			lost[i] = m.Lost
		}
		switch finding.Verdict {
		case heartbeat.Direct, heartbeat.Delegated:
			s.speaks[i] = true
			s.speaking++
		case heartbeat.Unobserved:
			if m.Lost > 0 {
				continue
			}
			undecided++
		case heartbeat.Silent:
			s.silent[i] = !m.Lease.Gone
			if mayBegin && m.Lease.Renewed {
				seen[i] = m.Lease.Age
			}
			continue
		case heartbeat.NoLease:
			continue
		}
		s.untilSilent = max(s.untilSilent, rest)
		s.nextSilent = sooner(s.nextSilent, rest)
	}
	if s.speaking+undecided > 0 {
		return s
	}
	s.cut = together(seen, l.Grace)
	if known := together(lost, l.Grace); len(s.cut) == 0 {
		for _, i := range known {
			s.since = max(s.since, lost[i])
		}
		s.cut = known
	} else {
		s.cut = append(s.cut, known...)
	}
	slices.Sort(s.cut)
	s.cut = slices.DeleteFunc(slices.Compact(s.cut), func(i int) bool { return members[i].Refused })
	return s
}

// together returns the nodes that fell silent within the grace period before the last one did, if they are minCut or more.
// Nodes that fell silent earlier were dead already.
func together(ago map[int]time.Duration, grace time.Duration) []int {
	if len(ago) < minCut {
		return nil
	}
	last := slices.Min(slices.Collect(maps.Values(ago)))
	maps.DeleteFunc(ago, func(_ int, age time.Duration) bool { return age-last > grace })
	if len(ago) < minCut {
		return nil
	}
	return slices.Collect(maps.Keys(ago))
}

// sooner returns the least of some times. Zero or less means never.
func sooner(times ...time.Duration) time.Duration {
	var least time.Duration
	for _, t := range times {
		if t > 0 && (least <= 0 || t < least) {
			least = t
		}
	}
	return least
}

// Terms are what holds for one pool.
type Terms struct {
	// For is how long evictions are held by a hold that begins; zero means that none does.
	For time.Duration
	// Problem says what is wrong with the annotation; empty means nothing. If the annotation can't be read, a new hold begins as
	// if the annotation were missing. A hold in progress keeps its last readable duration.
	Problem string
}

// MaxHold is the longest hold.
const MaxHold = edge.MaxHoldEvictionsHours * time.Hour

// maxQuoted bounds how much of an annotation messages quote.
const maxQuoted = 64

// TermsOf reads the annotations of a NodePool. unless is what holds where they say nothing; zero means no hold.
func TermsOf(annotations map[string]string, unless time.Duration) Terms {
	text, found := annotations[edge.AnnotationHoldEvictions]
	if !found {
		return Terms{For: unless}
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 || d > MaxHold {
		if len(text) > maxQuoted {
			text = text[:maxQuoted] + "..."
		}
		return Terms{For: unless, Problem: fmt.Sprintf(
			"The annotation %s is %q: it must be a duration such as 90s, 2h or 1h30m, up to %dh, or 0s to hold nothing. It is "+
				"not heeded.", edge.AnnotationHoldEvictions, text, edge.MaxHoldEvictionsHours)}
	}
	return Terms{For: d}
}
