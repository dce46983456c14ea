package role

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// remembered is how many renewals a term remembers for NotBefore: at one a second, more than half a minute's.
const remembered = 40

// Term is one period of leadership, and the fence for what is done in it. Safe for concurrent use.
type Term struct {
	// Transitions is the election Lease's count of changes of leader. With LeaseUID it names the term: a coordinator
	// that came back empty counts anew.
	Transitions int32
	// LeaseUID is the uid of the election Lease.
	LeaseUID types.UID

	fence *fence
}

// Valid reports whether this hub may act as the leader right now: whether its last acknowledged renewal was sent less
// than 3.5 s ago, which is less than other hubs wait, and the term has not been given up. A process that was stopped
// for a while finds it false at once when it goes on, whatever its goroutines have noticed by then. Ask before every
// write.
func (t Term) Valid() bool { return t.fence.valid(time.Now()) }

// NotBefore returns a moment that is certainly earlier than the coordinator's write of the given revision, by this
// machine's monotonic clock, and as late as can be told: a renewal of the election Lease was sent at that moment, and
// was given an earlier revision. It is how the age of an event can be bounded, however long the event was on its way:
// in a stopped process, on a slow connection, in a buffer. The bound is sharp to a second or so. It returns false for
// what was written before the term began, or longer ago than is remembered (about 40 s).
func (t Term) NotBefore(revision uint64) (time.Time, bool) { return t.fence.notBefore(revision) }

// renewal is one acknowledged write of the election Lease.
type renewal struct {
	revision uint64
	sent     time.Time
}

// fence is what makes and ends a Term's validity.
type fence struct {
	mu       sync.Mutex
	renewals []renewal // in the order of their revisions; the last ones only
	fallen   bool
}

// acknowledge notes that a renewal sent at a moment was acknowledged with a revision.
func (f *fence) acknowledge(revision uint64, sent time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if n := len(f.renewals); n > 0 && f.renewals[n-1].revision >= revision {
		return
	}
	if len(f.renewals) == remembered {
		f.renewals = append(f.renewals[:0], f.renewals[1:]...)
	}
	f.renewals = append(f.renewals, renewal{revision, sent})
}

// fall ends the term for good.
func (f *fence) fall() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fallen = true
}

func (f *fence) valid(now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fallen || len(f.renewals) == 0 {
		return false
	}
	return elapsed(f.renewals[len(f.renewals)-1].sent, now) < leaseDuration-fenceMargin
}

func (f *fence) notBefore(revision uint64) (time.Time, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := len(f.renewals) - 1; i >= 0; i-- {
		if f.renewals[i].revision < revision {
			return f.renewals[i].sent, true
		}
	}
	return time.Time{}, false
}

// elapsed is the time between two moments by the monotonic clock, or by the wall clock if that says more: Linux stops
// the monotonic clock while the machine sleeps or its virtual machine is paused. A step of the wall clock can only
// make it longer, and then costs one renewal's time of validity.
func elapsed(from, to time.Time) time.Duration {
	return max(to.Sub(from), to.Round(0).Sub(from.Round(0)))
}
