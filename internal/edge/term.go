package edge

import "time"

// Term is one period in which a hub leads its pool. It is the fence for the leader's writes: the leader checks Valid before
// each. Its functions are safe for concurrent use.
type Term struct {
	// Transitions is how often the election Lease has changed its leader. It identifies the term until the coordinator restarts
	// empty, which counts from 0 again.
	Transitions int32
	// Valid reports whether this hub may act as the leader right now. If the process was suspended for too long, Valid is false
	// as soon as it runs again, even if no goroutine has noticed yet. Call it before every write.
	Valid func() bool
	// NotBefore returns a time by this machine's monotonic clock that is certainly earlier than the coordinator's write of a
	// revision, and as late as this hub can tell. So it bounds the age of an event, wherever the event was delayed: in a
	// suspended process, on a slow connection, in a buffer. It returns false if no such time is known.
	NotBefore func(revision uint64) (time.Time, bool)
}
