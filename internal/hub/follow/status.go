package follow

import (
	"cmp"
	"slices"
	"strings"

	"yurtcoordinator/internal/edge"
)

// Status is what the set says of a selection.
type Status struct {
	// Client is whose it is: Hub, empty for the node's programs, or a caller with credentials of its own.
	Client    string
	Selection Selection
	Shared    bool
	// Source is where the content comes from: cloud, coordinator or none.
	Source string
	// Revision is the cloud's revision up to which it is complete; 0: it is not.
	Revision edge.Revision
	Objects  int
	// Bytes is what the objects take, encoded; HistoryBytes what is kept besides for watches that resume.
	Bytes, HistoryBytes int
	// Watches are those of the replica; Requests are those of programs that read it now, watches most of them.
	Watches, Requests int
}

// Status returns the state of each selection, by client and selection.
func (s *Set) Status() []Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]Status, 0, len(s.members))
	for _, m := range s.members {
		if m.fixed() && m.ending {
			continue // another has taken its place
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
