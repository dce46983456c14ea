package replica

import (
	"sort"
	"unsafe"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/stream"
)

// change is an event with the object's former state, which is zero if the object is new. A client gets that state in a Deleted if
// the object leaves the client's selection or view.
type change struct {
	stream.Event
	Old stream.Object
}

// overhead is the memory of an entry besides the bytes of objects.
const overhead = int(unsafe.Sizeof(change{}))

// history is a ring of the latest changes. Changes are numbered from the start, and cursors are such numbers.
type history struct {
	maxBytes, maxEvents int

	ring  []change
	first uint64 // the number of the oldest change that is there
	next  uint64 // the number of the next one to come
	bytes int    // that only the history holds, see cost
	floor edge.Revision
}

func (h *history) len() int { return int(h.next - h.first) }

func (h *history) at(n uint64) *change { return &h.ring[n%uint64(len(h.ring))] }

// cost is the memory that only the history holds for a change: the entry itself and the object's former state. For a deletion it
// includes the new state, which the store does not keep.
func cost(c *change) int {
	n := overhead + len(c.Old.Raw)
	if c.Type == stream.Deleted {
		n += len(c.Object.Raw)
	}
	return n
}

// begin empties the history; floor is the earliest revision that a cursor can start after.
func (h *history) begin(floor edge.Revision) {
	h.ring = nil
	h.first = h.next
	h.bytes = 0
	h.floor = floor
}

// changed is the revision of the latest change, or the floor if there was none.
func (h *history) changed() edge.Revision {
	if h.len() == 0 {
		return h.floor
	}
	return h.at(h.next - 1).Object.Revision
}

func (h *history) add(c change) {
	if h.len() == len(h.ring) {
		h.grow()
	}
	*h.at(h.next) = c
	h.next++
	h.bytes += cost(&c)
	for h.len() > h.maxEvents || (h.bytes > h.maxBytes && h.len() > 1) {
		h.evict()
	}
}

func (h *history) evict() {
	oldest := h.at(h.first)
	h.bytes -= cost(oldest)
	h.floor = oldest.Object.Revision
	*oldest = change{}
	h.first++
}

func (h *history) grow() {
	larger := make([]change, min(max(16, 2*len(h.ring)), h.maxEvents+1)) // the one more is there until evict
	for n := h.first; n < h.next; n++ {
		larger[n%uint64(len(larger))] = *h.at(n)
	}
	h.ring = larger
}

// after returns the number of the first change after a revision; ok is false if it is no longer known.
func (h *history) after(revision edge.Revision) (n uint64, ok bool) {
	if revision < h.floor {
		return 0, false
	}
	i := sort.Search(h.len(), func(i int) bool { return h.at(h.first+uint64(i)).Object.Revision > revision })
	return h.first + uint64(i), true
}
