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
	// Leader is the pool's leader as far as this hub knows; empty if it knows of none.
	Leader edge.NodeName
	// Transitions is how often the election Lease has changed its leader, so it tells the terms of one Lease apart. It is 0 while
	// Leader is empty.
	Transitions int32
}

// campaign is the state of this hub's own candidacy.
type campaign uint8

const (
	idle    campaign = iota // there is none
	running                 // it tries to get the Lease
	holding                 // it holds the Lease
	ending                  // it was told to stop, or lost the Lease, and has not fully stopped yet
)

// Event is an input of a Machine: one of Links, Won, Lost, Ended and Observed.
type Event interface{ fmt.Stringer }

// Links is the state of the hub's links.
type Links struct{ Cloud, Coordinator link.State }

// Won says that the campaign has won the Lease, with its count of transitions.
type Won struct{ Transitions int32 }

// Lost says that the campaign no longer holds the Lease, or that its duty failed; it is stopping by itself.
type Lost struct{}

// Ended says that the campaign and all its goroutines have stopped, so that another may begin.
type Ended struct{}

// Observed is the holder that the Lease names, and its transitions. An empty Holder means nobody.
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

// Action is what the Elector must do after an event.
type Action uint8

const (
	// Nothing is to be done.
	Nothing Action = iota
	// Campaign: start a campaign for the Lease. The machine then expects Won, Lost or Ended.
	Campaign
	// Release: stop the campaign, first the duty and last the Lease. The machine then expects Ended.
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

// Step processes an event and returns what to do now.
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
		// This hub's term, as the Lease showed it, is over. The next leader is unknown until it is observed.
		m.observed = Observed{}
	}
	m.campaign = c
}

// Standing returns the hub's place, as it follows from the events so far.
func (m *Machine) Standing() Standing {
	switch {
	case m.links.Coordinator != link.Up:
		return Standing{Role: Pending}
	case m.campaign == holding:
		return Standing{Role: Leader, Leader: m.self, Transitions: m.won}
	case m.observed.Holder == "", m.campaign == running && m.observed.Holder == m.self:
		// The coordinator may tell of this hub's term before the write that won it returns. To show it as another hub's term
		// would, at a standby, end the campaign and the term with it.
		return Standing{Role: Follower}
	default:
		return Standing{Role: Follower, Leader: m.observed.Holder, Transitions: m.observed.Transitions}
	}
}
