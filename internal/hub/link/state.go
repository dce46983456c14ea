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
	// Failing: the other end answers, but it, or a balancer in front of it, answers core reads and Leases with 502, 503 or
	// 504. Requests go out as before, and nothing is reset; whoever can do without an answer does.
	Failing
)

// Answers reports whether the other end answers what it is asked.
func (s State) Answers() bool { return s == Up }

// Reachable reports whether the other end is known to be there, whatever it answers.
func (s State) Reachable() bool { return s == Up || s == Failing }

// String returns "unknown", "up", "down" or "failing".
func (s State) String() string {
	switch s {
	case Up:
		return "up"
	case Down:
		return "down"
	case Failing:
		return "failing"
	default:
		return "unknown"
	}
}
