package keep

import "yurtcoordinator/internal/replica"

// Followed is a selection that is followed.
type Followed struct {
	Selection Selection
	Replica   *replica.Replica
}

// Followed returns what is followed at the moment. A replica may be incomplete, or be closed at any time.
func (s *Set) Followed() []Followed {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]Followed, 0, len(s.kept))
	for selection, k := range s.kept {
		if !k.ending {
			all = append(all, Followed{selection, k.replica})
		}
	}
	return all
}
