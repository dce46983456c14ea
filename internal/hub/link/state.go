package link

// State is what a hub believes of a link.
type State uint8

const (
	// Unknown is the state before the first evidence.
	Unknown State = iota
	// Up: the other end answers.
	Up
	// Down: the other end has failed to answer so often that only probes are sent to it.
	Down
	// Failing means that the other end answers, but core reads and Leases fail (see Monitor.CoreAnswered). Requests go out as
	// before, and nothing is reset. Callers that can do without an answer do not wait for one.
	Failing
	// Relayed means that the node's own line is down, and the other end answers through a neighbour's line. No Monitor returns
	// Relayed: an Upstream derives it from two links (see upstream.Detour). A hub acts for others only while the state is Up,
	// because for that it needs a line of its own.
	Relayed
)

// Answers reports whether the other end answers what it is asked, over whichever line.
func (s State) Answers() bool { return s == Up || s == Relayed }

// Reachable reports whether the other end is known to be there, whatever it answers.
func (s State) Reachable() bool { return s == Failing || s.Answers() }

// String returns "unknown", "up", "down", "failing" or "relayed".
func (s State) String() string {
	switch s {
	case Up:
		return "up"
	case Down:
		return "down"
	case Failing:
		return "failing"
	case Relayed:
		return "relayed"
	default:
		return "unknown"
	}
}
