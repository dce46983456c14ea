package store

import (
	"cmp"
	"slices"
	"time"
)

// refuseFor is how long a collection is not taken again that had to go for others, unless somebody needs it: else it would
// be written and dropped in turns.
const refuseFor = time.Hour

// candidate is a collection as far as it matters for collecting.
type candidate struct {
	id    Collection
	bytes int64
	read  time.Duration
	last  int // 1: goes after those with 0
}

// victims says which collections go, and whether for space: those that nobody has read for unread (0: whenever they were
// read), and of the others, those that do not go last, and of them those read least recently, until excess bytes are
// free. Who is spared by that one which goes after it, being larger, stays.
func victims(all []candidate, excess int64, now, unread time.Duration) map[Collection]bool {
	gone, space := map[Collection]bool{}, []candidate(nil)
	slices.SortFunc(all, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.last, b.last), cmp.Compare(a.read, b.read))
	})
	for _, c := range all {
		old := unread > 0 && now-c.read >= unread
		if old || excess > 0 {
			gone[c.id] = !old
			excess -= c.bytes
			if !old {
				space = append(space, c)
			}
		}
	}
	for _, c := range slices.Backward(space) {
		if c.bytes <= -excess {
			delete(gone, c.id)
			excess += c.bytes
		}
	}
	return gone
}
