package heartbeat

import "yurtcoordinator/internal/hub/link"

// sending says what goes to the coordinator.
type sending uint8

const (
	nothing sending = iota
	clean           // the copy, without marks: the node reports itself
	marked          // the copy, marked as delegated
	relayed         // the copy, with who relays: the node reports itself, over a neighbour's line
)

// answer says what kubelet is told.
type answer uint8

const (
	later       answer = iota // not known yet
	accepted                  // success
	refused                   // the cloud's own error
	unavailable               // neither cloud nor coordinator has the heartbeat
)

// outcome is how an attempt at one side ended.
type outcome uint8

const (
	took   outcome = iota // it has the heartbeat
	denied                // it answered with an error that is final
	failed                // it did not answer, or could not take it: 429, or 5xx
)

// start returns what to do with a heartbeat at once: whether to send it to the cloud, what to send to the coordinator at the same
// time, and what to answer kubelet. The constant later means that the answer depends on an attempt.
//
// While the link to the cloud is unknown or failing, start sends only to the cloud. If the cloud does not take the heartbeat, the
// copy gets the mark (afterCloud). A mark without need would taint the node after each start of its hub, and a missing mark would
// cost a cut-off node a heartbeat.
func start(cloud, coordinator link.State) (direct bool, send sending, now answer) {
	switch {
	case cloud == link.Down && coordinator == link.Up:
		return false, marked, later
	case cloud == link.Down:
		return false, nothing, unavailable
	case cloud == link.Up && coordinator == link.Up:
		return true, clean, later
	case cloud == link.Relayed && coordinator == link.Up:
		return true, relayed, later
	default:
		return true, nothing, later
	}
}

// afterCloud returns what follows from the cloud's outcome: what to send to the coordinator now, and what to answer kubelet. The
// parameter sent is what the coordinator got before. If the cloud does not answer, the copy is marked at once. Thus the first
// heartbeat that fails is also the first that is delegated.
func afterCloud(result outcome, coordinator link.State, sent sending) (send sending, now answer) {
	switch {
	case result == failed && coordinator == link.Up:
		return marked, later
	case result == failed:
		return nothing, unavailable
	}
	if coordinator == link.Up && sent != clean && sent != relayed {
		send = clean
	}
	if result == denied {
		return send, refused
	}
	return send, accepted
}

// afterCopy says what kubelet is told when only the coordinator could take the heartbeat.
func afterCopy(result outcome) answer {
	if result == took {
		return accepted
	}
	return unavailable
}
