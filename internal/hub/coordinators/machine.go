package coordinators

import (
	"time"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/hub/lead"
	"yurtcoordinator/internal/hub/link"
)

// vacancy is how long a standby must have no leader before a hub that does not lead at home campaigns there. If the leader at
// home reached the standby, it would lead there by then.
const vacancy = 5 * time.Second

// settled is how long a lower slot must be up before home goes back there.
const settled = 30 * time.Second

// Sight is one slot as a hub sees it.
type Sight struct {
	// Link is the state of the link to it; Down for a slot without a coordinator.
	Link link.State
	// Complete says that the coordinator has all that this hub could bring there. It matters only for slots below home.
	Complete bool
}

// Machine decides where home is. The zero Machine belongs to a hub that has reached nothing yet: its home is slot 0.
type Machine struct {
	at     int
	chosen bool // home was reached once
	since  map[int]time.Time
}

// Step processes the state of all slots, the lowest slot first. It returns the slot of home, and when to call Step again if
// nothing changes before; zero means never.
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

// choose finds the first home. It waits for a lower slot that has not answered yet.
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

// leave finds the next home. If no slot can be reached, home stays.
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

// Stand decides whether a hub campaigns at one slot. The zero Stand belongs to a hub that has reached nothing yet.
type Stand struct {
	vacant time.Time // since when no hub leads there, as it seems; zero means that one does, or that it is unknown
}

// Step returns the link state that the slot's election must use as its link to the cloud. The second result is when to call
// Step again; zero means never. The parameter there is this hub's standing in the slot's election, and renewed is when this hub
// last saw a leader renew its term there.
//
// The election at home uses the state of the real link. At another slot this hub campaigns while it leads at home, so that
// normally one hub leads at all slots. But some node may reach only a coordinator that the leader at home does not reach. So a
// hub also campaigns at a slot where no hub has led for a while (vacancy), and then stays the leader there.
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
