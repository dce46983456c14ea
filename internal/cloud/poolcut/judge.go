package poolcut

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"yurtcoordinator/internal/cloud/heartbeat"
	"yurtcoordinator/internal/edge"
)

// minCut is how many nodes must have fallen silent together. That all nodes of a pool are lost at once tells nothing if all
// is one: a link and a node look alike. Two that are lost within seconds of each other have something in common.
const minCut = 2

// Limits are the times that the judgement goes by.
type Limits struct {
	// Silence is for how long a Lease is not renewed until the node is called silent; see New.
	Silence time.Duration
	// Grace is what kube-controller-manager gives a node, or a little less: the last renewals of nodes that were cut off
	// together are not further apart, and after one node has spoken the others have this long to speak too.
	Grace time.Duration
}

// Member is what is known of one node of a pool.
type Member struct {
	Name edge.NodeName
	// Lease is what was seen of the node's Lease.
	Lease heartbeat.Observation
	// Ready is the status of the Node's Ready condition; empty where it has none.
	Ready corev1.ConditionStatus
	// Held: the Node says that its evictions are held.
	Held bool
	// Spent: a hold has ended while the node was silent, and the node has not spoken since.
	Spent bool
	// Refused: the Node is tainted as not ready, by its own kubelet's word. Its Pods are evicted for that, cut or not.
	Refused bool
}

// Hold is a hold in progress.
type Hold struct {
	// For is how long it may last, Elapsed how long it has.
	For, Elapsed time.Duration
	// Healing: a node has spoken, Healed ago.
	Healing bool
	Healed  time.Duration
}

// Outcome is how a hold ended; empty: it did not.
type Outcome string

// Outcomes. They are the values of a metric's label.
const (
	// Spoke: a node of the pool has spoken.
	Spoke Outcome = "Spoke"
	// Expired: it has lasted as long as it may.
	Expired Outcome = "Expired"
	// Withdrawn: the annotation has gone, or the NodePool.
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
	// ReasonPoolSpeaks (status False): others of its pool do and the node does not.
	ReasonPoolSpeaks = "OtherNodesSpeak"
	// ReasonExpired (status False): the time is over.
	ReasonExpired = "HoldExpired"
	// ReasonWithdrawn (status False): the pool is not to be held any more.
	ReasonWithdrawn = "HoldWithdrawn"
	// ReasonLeft (status False): the node is not in a pool that is held.
	ReasonLeft = "NotInHeldPool"
)

// spends reports whether a hold that ended for this reason, in the Node's condition, may not begin again before the node
// has spoken. Otherwise a pool that stays silent would be held for ever.
func spends(reason string) bool { return reason == ReasonExpired || reason == ReasonPoolSpeaks }

// Change is what the EvictionsHeld condition of a Node is to say; the zero Change leaves it.
type Change struct {
	Status corev1.ConditionStatus
	Reason string
}

// Decision is what to do about a pool.
type Decision struct {
	// Changes has one for each Member, in their order.
	Changes []Change
	// Ended: the hold that was in progress is over. Begins: one begins now, perhaps right after another.
	Ended  Outcome
	Begins bool
	// Speaking: a node of the pool speaks.
	Speaking bool
	// Next is when to look again if nothing happens; zero: then there is no need to.
	Next time.Duration
}

// Holds reports whether the pool is held by this Decision.
func (d Decision) Holds() bool {
	for _, c := range d.Changes {
		if c.Status == corev1.ConditionTrue {
			return true
		}
	}
	return false
}

// Decide decides about a pool, given what is known of its nodes, what its NodePool asks for and the hold in progress; nil
// where there is none. It changes nothing.
func Decide(members []Member, t Terms, h *Hold, l Limits) Decision {
	s := survey(members, l)
	d := Decision{Changes: make([]Change, len(members)), Speaking: s.speaking > 0}
	for i, m := range members {
		if m.Spent && s.speaks[i] {
			d.Changes[i] = released(ReasonNodeSpeaks)
		}
	}
	wanted := t.Rule == Asked && len(s.cut) > 0
	switch {
	case h == nil && !wanted:
		d.release(members, s, ReasonLeft)
		if t.Rule == Asked {
			d.Next = s.untilSilent
		}
	case h == nil:
		d.begin(members, s, t)
	case t.Rule == Off, h.For <= 0: // never longer than somebody says who can be understood
		d.Ended = Withdrawn
		d.release(members, s, ReasonWithdrawn)
	case h.Elapsed >= h.For:
		d.Ended = Expired
		d.release(members, s, ReasonExpired)
	case wanted && h.Healing && h.Healed >= l.Grace: // cut again
		d.Ended = Spoke
		d.begin(members, s, t)
	default:
		d.goOn(members, s, *h, l)
	}
	if d.Ended != "" && !d.Begins && t.Rule == Asked {
		d.Next = s.untilSilent
	}
	return d
}

// begin holds the nodes that were cut off together, and no others.
func (d *Decision) begin(members []Member, s state, t Terms) {
	d.Begins = true
	d.release(members, s, ReasonPoolSpeaks)
	for _, i := range s.cut {
		d.Changes[i] = held()
	}
	d.Next = t.For
}

// goOn decides about each node of a pool that is held.
func (d *Decision) goOn(members []Member, s state, h Hold, l Limits) {
	if s.speaking > 0 {
		h.Healing = true
	}
	over := h.Healing && h.Healed >= l.Grace
	for i, m := range members {
		switch {
		case !m.Held:
		case s.speaks[i] && m.Ready != corev1.ConditionUnknown && m.Ready != "":
			d.Changes[i] = released(ReasonNodeSpeaks)
		case !s.speaks[i] && over:
			d.Changes[i] = released(ReasonPoolSpeaks)
		default:
			// Also a node that speaks and is still shown Unknown: kube-controller-manager would taint it until its kubelet
			// has said that it is Ready, or, while its heartbeats are delegated, the heartbeat policy has.
			d.Changes[i] = held()
		}
	}
	if !h.Healing { // whom a failed write, or a restart in the middle, has left out
		for _, i := range s.cut {
			d.Changes[i] = held()
		}
	}
	switch {
	case d.Holds():
		d.Next = h.For - h.Elapsed
		if h.Healing {
			d.Next = sooner(d.Next, l.Grace-h.Healed, s.nextSilent)
		}
	case h.Healing:
		d.Ended = Spoke
	default:
		d.Ended = Emptied
	}
}

// release withdraws the condition of every node that has it: for this reason where it is silent.
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
	speaks   []bool
	speaking int
	// cut are the nodes to hold, if there is a whole-pool cut; else none.
	cut []int
	// untilSilent is when all nodes that may be alive can be silent at the earliest, nextSilent when one can; zero: there
	// is none.
	untilSilent, nextSilent time.Duration
}

// survey finds out whether all nodes that were alive have fallen silent together. A node counts as having been alive if its
// Lease was seen to be renewed. One that was found and not yet seen to be renewed may be either: while there is such a node,
// nothing is concluded; it is one or the other within the time that makes a node silent.
func survey(members []Member, l Limits) state {
	s := state{speaks: make([]bool, len(members))}
	undecided := 0
	var fallen []int
	newest := time.Duration(-1)
	for i, m := range members {
		finding, rest := heartbeat.Judge(m.Lease, l.Silence)
		switch finding.Verdict {
		case heartbeat.Direct, heartbeat.Delegated:
			s.speaks[i] = true
			s.speaking++
		case heartbeat.Unobserved:
			undecided++
		case heartbeat.Silent:
			if m.Lease.Renewed && !m.Lease.Gone && !m.Spent {
				fallen = append(fallen, i)
				if newest < 0 || m.Lease.Age < newest {
					newest = m.Lease.Age
				}
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
	together := 0
	for _, i := range fallen {
		if members[i].Lease.Age-newest > l.Grace {
			continue // dead before
		}
		together++
		if !members[i].Refused {
			s.cut = append(s.cut, i)
		}
	}
	if together < minCut {
		s.cut = nil
	}
	return s
}

// sooner returns the least of some times, of which zero and less mean never.
func sooner(times ...time.Duration) time.Duration {
	var least time.Duration
	for _, t := range times {
		if t > 0 && (least <= 0 || t < least) {
			least = t
		}
	}
	return least
}

// Rule is what a NodePool asks for.
type Rule uint8

const (
	// Off: no annotation. Nothing is held.
	Off Rule = iota
	// Asked: evictions are to be held for Terms.For.
	Asked
	// Unreadable: the annotation can't be read. No hold begins; one in progress lasts as long as was said before.
	Unreadable
)

func (r Rule) String() string {
	switch r {
	case Off:
		return "Off"
	case Asked:
		return "Asked"
	case Unreadable:
		return "Unreadable"
	}
	return fmt.Sprintf("Rule(%d)", uint8(r))
}

// Terms are a NodePool's.
type Terms struct {
	Rule Rule
	// For is how long evictions are held where it is Asked.
	For time.Duration
	// Problem says what is wrong where it is Unreadable.
	Problem string
}

// maxHold is the longest hold.
const maxHold = edge.MaxHoldEvictionsHours * time.Hour

// maxQuoted bounds what of an annotation is repeated in messages.
const maxQuoted = 64

// TermsOf reads the annotations of a NodePool.
func TermsOf(annotations map[string]string) Terms {
	text, found := annotations[edge.AnnotationHoldEvictions]
	if !found {
		return Terms{}
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 || d > maxHold {
		if len(text) > maxQuoted {
			text = text[:maxQuoted] + "..."
		}
		return Terms{Rule: Unreadable, Problem: fmt.Sprintf(
			"The annotation %s is %q: want a duration as 90s, 2h or 1h30m, more than 0s and up to %dh. Nothing is held for it.",
			edge.AnnotationHoldEvictions, text, edge.MaxHoldEvictionsHours)}
	}
	return Terms{Rule: Asked, For: d}
}
