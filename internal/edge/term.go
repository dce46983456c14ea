package edge

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Term is one period in which a hub leads its pool, and the fence for what a leader does in it. Its functions are safe for
// concurrent use.
type Term struct {
	// Transitions is the election Lease's count of changes of leader. With LeaseUID it names the term: a coordinator
	// that came back empty counts anew.
	Transitions int32
	// LeaseUID is the uid of the election Lease.
	LeaseUID types.UID
	// Valid reports whether this hub may act as the leader right now. A process that was stopped for a while finds it
	// false at once when it goes on, whatever its goroutines have noticed by then. Ask before every write.
	Valid func() bool
	// NotBefore returns a moment that is certainly earlier than the coordinator's write of a revision, by this machine's
	// monotonic clock, and as late as can be told. So the age of an event is bounded however long it was on its way: in a
	// stopped process, on a slow connection, in a buffer. It returns false if that can't be told.
	NotBefore func(revision uint64) (time.Time, bool)
}
