package link

// State is what a hub believes of a link.
type State uint8

const (
	// Unknown is the state before the first evidence.
	Unknown State = iota
	// Up: the other end answers.
	Up
	// Down: the other end has failed to answer often enough that nothing more is sent to it but probes.
	Down
)

// String returns "unknown", "up" or "down".
func (s State) String() string {
	switch s {
	case Up:
		return "up"
	case Down:
		return "down"
	default:
		return "unknown"
	}
}
