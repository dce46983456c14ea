package edge

import "time"

// Term is one period in which a hub leads its pool, or is a filler. The hub calls Valid before each write that needs the
// Term. The functions are safe for concurrent use.
type Term struct {
	// Transitions is the leaseTransitions of the Lease under which the hub acts. It identifies the term. A coordinator that
	// restarts empty counts from 0 again.
	Transitions int32
	// Valid reports whether this hub may act under the term right now. If the process was suspended until after the end of the
	// term, Valid is false as soon as the process runs again.
	Valid func() bool
	// NotBefore returns the latest time, by this machine's monotonic clock, at which this hub knows that the coordinator had not
	// yet written the given revision. So an event of that revision is no older than that time, wherever the event was delayed: in
	// a suspended process, on a slow connection, in a buffer. NotBefore returns false if this hub knows no such time. A filler's
	// Term has no NotBefore.
	NotBefore func(revision uint64) (time.Time, bool)
}
