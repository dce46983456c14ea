package replica

import (
	"sync"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/stream"
)

// View is what one kind of client sees of a replica. A nil View shows everything, verbatim. Safe for concurrent use.
//
// What a view shows may depend on other things than the object, as long as a change of those is a new epoch: within an
// epoch Show is pure.
type View interface {
	// Show returns what the client sees of o, and whether it sees it at all. at is the revision of the list or event that
	// shows it. shown has o's key, an encoding of the same type, and a Revision of at most at.
	Show(t stream.Type, o stream.Object, at edge.Revision) (shown stream.Object, visible bool)
	// Epoch is the current epoch and a channel that is closed when it is over. A new epoch ends the watches of the one
	// before with 410, so that clients list again.
	Epoch() (uint64, <-chan struct{})
}

// maxListed bounds the clients that epochs knows by name.
const maxListed = 256

// epochs decides whether a client may go on from a revision that it says it has, or must list again because it may have
// seen that revision in an epoch that is over.
//
// What a client has seen is known by its revision alone: below the one at which the epoch began, it was another epoch.
// At exactly that revision it may have been either, so only a client (by its User-Agent) that has listed since may go on.
type epochs struct {
	mu     sync.Mutex
	known  bool
	epoch  uint64
	since  edge.Revision // the epoch began at or before it
	listed map[string]struct{}
}

// observe is told of the current epoch, and a revision at which it had begun already.
func (e *epochs) observe(epoch uint64, position edge.Revision) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.known && e.epoch == epoch {
		return
	}
	e.known, e.epoch, e.since, e.listed = true, epoch, position, make(map[string]struct{})
}

// shown notes that a client has been shown everything as of a revision in an epoch.
func (e *epochs) shown(client string, epoch uint64, at edge.Revision) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.epoch == epoch && at == e.since && len(e.listed) < maxListed {
		e.listed[client] = struct{}{}
	}
}

// mayResume reports whether a client may go on from a revision.
func (e *epochs) mayResume(client string, after edge.Revision) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if after != e.since {
		return after > e.since
	}
	_, ok := e.listed[client]
	return ok || len(e.listed) >= maxListed // too many to remember: better one stale client than all in a loop
}
