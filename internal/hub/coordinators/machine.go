package coordinators

import (
	"time"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/hub/lead"
	"yurtcoordinator/internal/hub/link"
)

// vacancy is how long nobody must have led at a standby before a hub that doesn't lead at home stands there. By then the leader
// at home would lead there, too, if it reached it.
const vacancy = 5 * time.Second

// settled is how long a lower slot must be up before home goes back there.
const settled = 30 * time.Second

// Sight is what a hub sees of one slot.
type Sight struct {
	// Link is the state of the way there; Down for a slot without a coordinator.
	Link link.State
	// Complete says that the coordinator has all that this hub could bring there. It counts only for slots below home.
	Complete bool
}

// Machine decides where home is. The zero Machine is that of a hub that has reached nothing yet: its home is slot 0.
type Machine struct {
	at     int
	chosen bool // home was reached once
	since  map[int]time.Time
}

// Step takes in what is seen of all slots, the lowest first, and returns home, and when to look again if nothing changes before;
// zero means never.
func (m *Machine) Step(now time.Time, slots []Sight) (at int, again time.Time) {
	if m.since == nil {
		m.since = map[int]time.Time{}
	}
	for i, s := range slots {
		if s.Link != link.Up {
			delete(m.since, i)
		} else if _, before := m.since[i]; !before {
			m.since[i] = now
		}
	}
	switch {
	case !m.chosen:
		m.choose(slots)
	case slots[m.at].Link != link.Up:
		m.leave(slots)
	default:
		again = m.back(now, slots)
	}
	return m.at, again
}

// choose finds the first home. A slot that has not answered yet may be about to.
func (m *Machine) choose(slots []Sight) {
	for i, s := range slots {
		switch s.Link {
		case link.Unknown:
			return
		case link.Up:
			m.at, m.chosen = i, true
			return
		}
	}
}

// leave finds the next home. Where nobody is reached, home stays.
func (m *Machine) leave(slots []Sight) {
	for i, s := range slots {
		if s.Link == link.Up {
			m.at = i
			return
		}
	}
}

// back goes to a lower slot that has proven itself.
func (m *Machine) back(now time.Time, slots []Sight) (again time.Time) {
	for i, s := range slots[:m.at] {
		since, up := m.since[i]
		switch due := since.Add(settled); {
		case !up:
		case now.Before(due):
			if again.IsZero() || due.Before(again) {
				again = due
			}
		case s.Complete:
			m.at = i
			return time.Time{}
		}
	}
	return again
}

// Stand is what decides of one slot whether a hub stands for election there. The zero Stand is that of a hub that has reached
// nothing yet.
type Stand struct {
	vacant time.Time // from when on nobody leads there, as it looks; zero: somebody does, or nobody knows
}

// Step takes in how this hub stands in the slot's election, and when it last saw a leader renew its term. It returns in which
// state the election is to take the link to the cloud, and when to look again; zero means never.
//
// Home's election takes the link as it is. Elsewhere this hub stands while it leads at home, so that one hub leads everywhere as
// a rule. But the leader may not reach a coordinator that others reach, and a node may reach no other one. So a hub stands where
// nobody has led for a while, too, and goes on to lead there.
func (s *Stand) Step(
	now time.Time, there lead.Standing, renewed time.Time, elsewhere, leadsAtHome bool, cloud link.State,
) (link.State, time.Time) {
	switch {
	case there.Role != lead.Follower:
		s.vacant = time.Time{}
	case there.Leader != "":
		s.vacant = renewed.Add(edge.ElectionTerm) // who died, or can't reach it any more, has not released it
	case s.vacant.IsZero() || s.vacant.After(now):
		s.vacant = now
	}
	due := s.vacant.Add(vacancy)
	switch {
	case !elsewhere:
		return cloud, time.Time{}
	case cloud != link.Up:
		return link.Down, time.Time{}
	case leadsAtHome || there.Role == lead.Leader:
		return link.Up, time.Time{}
	case s.vacant.IsZero():
		return link.Down, time.Time{}
	case now.Before(due):
		return link.Down, due
	}
	return link.Up, time.Time{}
}
