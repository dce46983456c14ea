package lead

import (
	"fmt"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/hub/link"
)

// Role is what a hub is in its pool.
type Role uint8

const (
	// Pending: the coordinator is not known to be reachable. The hub behaves as if there were none.
	Pending Role = iota
	// Follower: the coordinator is reachable and this hub does not lead.
	Follower
	// Leader: this hub holds the election Lease and does the leader's duty.
	Leader
)

// String returns "pending", "follower" or "leader".
func (r Role) String() string {
	switch r {
	case Follower:
		return "follower"
	case Leader:
		return "leader"
	default:
		return "pending"
	}
}

// Standing is a hub's place in its pool.
type Standing struct {
	// Role is this hub's own.
	Role Role
	// Leader is the node that leads the pool as far as this hub knows; empty when it knows of none.
	Leader edge.NodeName
	// Transitions is the election Lease's count of changes of leader, which tells terms of one Lease apart. It is 0
	// while Leader is empty.
	Transitions int32
}

// campaign is how this hub's own candidacy stands.
type campaign uint8

const (
	idle    campaign = iota // there is none
	running                 // it tries to get the Lease
	holding                 // it holds the Lease
	ending                  // it was told to stop, or lost the Lease, and has not fully stopped yet
)

// Event is something that a Machine is told. It is one of Links, Won, Lost, Ended and Observed.
type Event interface{ fmt.Stringer }

// Links says what state the hub's links are in.
type Links struct{ Cloud, Coordinator link.State }

// Won says that the campaign has won the Lease, as its n-th transition.
type Won struct{ Transitions int32 }

// Lost says that the campaign no longer holds the Lease, or that its duty failed; it is stopping by itself.
type Lost struct{}

// Ended says that the campaign has stopped with all that belongs to it, and that another may begin.
type Ended struct{}

// Observed says whom the Lease names, with its transitions; nobody if Holder is empty.
type Observed struct {
	Holder      edge.NodeName
	Transitions int32
}

func (e Links) String() string {
	return fmt.Sprintf("links cloud=%s coordinator=%s", e.Cloud, e.Coordinator)
}
func (e Won) String() string { return fmt.Sprintf("won transitions=%d", e.Transitions) }
func (Lost) String() string  { return "lost" }
func (Ended) String() string { return "ended" }
func (e Observed) String() string {
	return fmt.Sprintf("observed holder=%q transitions=%d", e.Holder, e.Transitions)
}

// Action is what has to be done after an event.
type Action uint8

const (
	// Nothing is to be done.
	Nothing Action = iota
	// Campaign: start a campaign for the Lease. The machine then waits for Won, Lost or Ended.
	Campaign
	// Release: stop the campaign, with the duty first and the Lease last. The machine then waits for Ended.
	Release
)

// Machine decides the role of one hub. Make one with NewMachine; it is not safe for concurrent use.
type Machine struct {
	self     edge.NodeName
	links    Links
	campaign campaign
	won      int32
	observed Observed
}

// NewMachine returns the machine of the hub of a node, before any event: Pending.
func NewMachine(self edge.NodeName) *Machine { return &Machine{self: self} }

// Step takes an event and returns what has to be done now.
func (m *Machine) Step(event Event) Action {
	switch e := event.(type) {
	case Links:
		m.links = e
	case Observed:
		m.observed = e
	case Won:
		if m.campaign == running {
			m.won = e.Transitions
			m.become(holding)
		}
	case Lost:
		if m.campaign == running || m.campaign == holding {
			m.become(ending)
		}
	case Ended:
		m.become(idle)
	}
	wanted := m.links.Cloud == link.Up && m.links.Coordinator == link.Up
	switch {
	case wanted && m.campaign == idle:
		m.become(running)
		return Campaign
	case !wanted && (m.campaign == running || m.campaign == holding):
		m.become(ending)
		return Release
	}
	return Nothing
}

// become is the only place where the campaign's state changes.
func (m *Machine) become(c campaign) {
	if c == ending && m.campaign == holding && m.observed.Holder == m.self {
		// This hub's term, as the Lease showed it, is over. Who leads next is unknown until it is observed.
		m.observed = Observed{}
	}
	m.campaign = c
}

// Standing returns what follows from the events so far.
func (m *Machine) Standing() Standing {
	switch {
	case m.links.Coordinator != link.Up:
		return Standing{Role: Pending}
	case m.campaign == holding:
		return Standing{Role: Leader, Leader: m.self, Transitions: m.won}
	case m.observed.Holder == "":
		return Standing{Role: Follower}
	default:
		return Standing{Role: Follower, Leader: m.observed.Holder, Transitions: m.observed.Transitions}
	}
}
