package conns

import (
	"container/list"
	"net"
	"sync"
)

// tally knows the connections of each source: an address, a user of this host, or who is named in a certificate.
type tally[S comparable] struct {
	most   int  // of one source
	all    int  // of all; 0 means any number
	yields bool // the oldest connection of a source that has most gives way to the next

	mu    sync.Mutex
	open  map[S]*list.List // of net.Conn, the oldest first; without empty ones
	total int
}

func newTally[S comparable](most, all int) *tally[S] {
	return &tally[S]{most: most, all: all, open: map[S]*list.List{}}
}

// enter adds a connection. It returns false if the connection's source already has t.most and t.yields is false. crowded is the
// connection that gives way: the oldest of the same source or, if all sources together have too many, the oldest of the source
// with the most. crowded has lost its place, and the caller must close it. Whoever closes the added connection calls leave, once
// or more.
func (t *tally[S]) enter(source S, c net.Conn) (leave func(), crowded net.Conn, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch own := t.open[source]; {
	case own != nil && own.Len() >= t.most && !t.yields:
		return nil, nil, false
	case own != nil && own.Len() >= t.most:
		crowded = t.crowdOutLocked(source)
	case t.all > 0 && t.total >= t.all:
		crowded = t.crowdOutLocked(t.largestLocked())
	}
	if t.open[source] == nil {
		t.open[source] = list.New()
	}
	place := t.open[source].PushBack(c)
	t.total++
	return sync.OnceFunc(func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.removeLocked(source, place)
	}), crowded, true
}

// crowdOutLocked takes the place of a source's oldest connection.
func (t *tally[S]) crowdOutLocked(source S) net.Conn {
	oldest := t.open[source].Front()
	crowded, _ := oldest.Value.(net.Conn)
	t.removeLocked(source, oldest)
	return crowded
}

// largestLocked returns the source with the most connections.
func (t *tally[S]) largestLocked() (largest S) {
	most := 0
	for source, own := range t.open {
		if own.Len() > most {
			largest, most = source, own.Len()
		}
	}
	return largest
}

// removeLocked removes a place, unless it is lost already.
func (t *tally[S]) removeLocked(source S, place *list.Element) {
	own := t.open[source]
	if own == nil {
		return
	}
	before := own.Len()
	own.Remove(place)
	t.total -= before - own.Len()
	if own.Len() == 0 {
		delete(t.open, source)
	}
}
