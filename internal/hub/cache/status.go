package cache

import (
	"cmp"
	"slices"
	"strings"

	"yurtcoordinator/internal/edge"
)

// Status is the state of one selection.
type Status struct {
	// Client is the client of the selection: Hub, empty for the node's programs, or a caller.
	Client    string
	Selection Selection
	Shared    bool
	// Source is the source of the content: cloud, coordinator or none.
	Source string
	// Revision is the cloud's revision up to which the content is complete; 0 means that it is not.
	Revision edge.Revision
	Objects  int
	// Bytes is the size of the encoded objects, HistoryBytes that of the changes kept for watches that resume.
	Bytes, HistoryBytes int
	// Watches counts the replica's watches, Requests the programs' requests that read it now. Most of these are watches.
	Watches, Requests int
}

// Status returns the state of each selection, by client and selection.
func (s *Set) Status() []Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]Status, 0, len(s.members))
	for _, m := range s.members {
		if m.fixed() && m.ending {
			continue // another member has its place
		}
		stats := m.Replica.Stats()
		all = append(all, Status{
			Client: m.Client, Selection: m.Selection, Shared: m.Shared, Source: m.feed.Status().Get().Source.String(),
			Revision: stats.Position, Objects: stats.Objects, Bytes: stats.ObjectBytes, HistoryBytes: stats.HistoryBytes,
			Watches: stats.Watchers, Requests: m.users,
		})
	}
	slices.SortFunc(all, func(a, b Status) int {
		return cmp.Or(strings.Compare(a.Client, b.Client), strings.Compare(a.Selection.String(), b.Selection.String()))
	})
	return all
}
