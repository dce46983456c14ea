package heartbeat

import (
	"time"
)

// Verdict is what a node's Lease means.
type Verdict string

const (
	// NoLease: no Lease of this node was seen since the start. Nothing is known.
	NoLease Verdict = ""

	// Unobserved: a Lease was found, but not yet seen to be renewed. It may be hours old.
	Unobserved Verdict = "Unobserved"

	// Direct: the node renews its Lease itself. Link and node are fine.
	Direct Verdict = "Direct"

	// Delegated: another node of the pool renews the Lease, or passes on the node's own renewals (see Finding.Relayed). The
	// link is down, and the node is fine.
	Delegated Verdict = "Delegated"

	// Silent: nobody renews the Lease, or it was deleted. The node is dead, or all of its links are.
	Silent Verdict = "Silent"
)

// Observation is what is known about a node's Lease at one instant. The zero Observation means that the node has no Lease.
type Observation struct {
	// Found says that a Lease of this node was seen since the start.
	Found bool

	// Gone says that the Lease has been deleted.
	Gone bool

	// Annotated says that the Lease's annotation marks its heartbeats as delegated.
	Annotated bool

	// Relayed says that the node itself wrote the Lease, over another node's line.
	Relayed bool

	// HeartbeatsOnly says that only heartbeats take that line.
	HeartbeatsOnly bool

	// Renewed says that the Lease's renewTime was seen to change at least once.
	Renewed bool

	// Age is the time since renewTime was last seen to change, by our monotonic clock. Before the first change, it is the time
	// since the Lease was first seen.
	Age time.Duration

	// LeaseDuration is the Lease's own; zero or less means none.
	LeaseDuration time.Duration
}

// Finding is a verdict with all that is needed to act on it. Findings are compared with ==: a different one is news.
type Finding struct {
	Verdict Verdict

	// Annotated says that the Lease has the annotation, whatever the verdict.
	Annotated bool

	// Relayed says that the node itself marked the Lease, because it reaches the cloud over another node's line. Its kubelet
	// reaches the cloud, too, although the node's own link is down.
	Relayed bool

	// HeartbeatsOnly says that the node is Relayed, but only its heartbeats and its Node's status go over the other node's
	// line. Its kubelet learns of no deletions.
	HeartbeatsOnly bool

	// Unsettled says that the source of the Lease's renewals changes too often. The Verdict is then Delegated. Before the first
	// renewal the Verdict stays as it is, and Annotated is true. The damper sets Unsettled; Judge does not.
	Unsettled bool

	// Gone says that the Lease was deleted; the verdict is then Silent.
	Gone bool

	// Patience is how long this Lease may stay unrenewed before it counts as silent.
	Patience time.Duration
}

// maxPatience bounds what a Lease's own duration can ask for: any writer of the Lease can set it.
const maxPatience = 5 * time.Minute

// Judge decides what an Observation means. A Lease is silent if nobody has renewed it for the Finding's Patience, which is
// silenceAfter or longer. The second result is how long the verdict holds if nothing else happens; zero means forever.
func Judge(o Observation, silenceAfter time.Duration) (Finding, time.Duration) {
	if !o.Found {
		return Finding{}, 0
	}
	f := Finding{
		Annotated: o.Annotated, Relayed: o.Annotated && o.Relayed, HeartbeatsOnly: o.Annotated && o.Relayed && o.HeartbeatsOnly,
		Gone:     o.Gone,
		Patience: patience(o.LeaseDuration, silenceAfter),
	}
	switch {
	case o.Gone, o.Age >= f.Patience:
		f.Verdict = Silent
		return f, 0
	case !o.Renewed:
		f.Verdict = Unobserved
	case o.Annotated:
		f.Verdict = Delegated
	default:
		f.Verdict = Direct
	}
	return f, f.Patience - o.Age
}

// patience returns silenceAfter, or two of the node's renewal intervals if they are longer, up to maxPatience. A kubelet renews
// every quarter of the Lease's duration (nodeLeaseRenewIntervalFraction in its source). With less patience, a healthy node with
// a long interval would count as silent between two heartbeats.
func patience(leaseDuration, silenceAfter time.Duration) time.Duration {
	return max(silenceAfter, min(leaseDuration/2, maxPatience))
}
