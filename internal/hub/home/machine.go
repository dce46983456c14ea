package home

import (
	"time"

	"yurtcoordinator/internal/hub/link"
)

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

// Campaigns returns in which state the election at a slot is to take the link to the cloud: home's takes it as it is. Elsewhere a
// hub stands for election while it leads at home.
func Campaigns(slot, home int, leads bool, cloud link.State) link.State {
	switch {
	case slot == home:
		return cloud
	case leads && cloud == link.Up:
		return link.Up
	}
	return link.Down
}
