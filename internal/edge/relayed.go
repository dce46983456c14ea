package edge

import "strings"

// AnnotationRelayedBy, beside the mark, says that the node writes its Lease itself, over a neighbour's line: it is one
// Relayed.String. On the coordinator's copy it stands alone: nobody is to forward such a heartbeat.
const AnnotationRelayedBy = "openyurt.io/relayed-by"

// Relayed is how a node reaches the cloud over a neighbour's line. The zero Relayed means that it does not.
type Relayed struct {
	By NodeName
	// HeartbeatsOnly: only its heartbeats and its Node's status take that line. Its kubelet hears nothing from the cloud.
	HeartbeatsOnly bool
}

// onlyHeartbeats follows the name of a neighbour whose line only heartbeats take. A node's name has no slash.
const onlyHeartbeats = "/heartbeats"

// String is the neighbour's name, and "/heartbeats" if nothing else takes its line. ParseRelayed reads it.
func (r Relayed) String() string {
	if r.HeartbeatsOnly && r.By != "" {
		return string(r.By) + onlyHeartbeats
	}
	return string(r.By)
}

// ParseRelayed reads what String writes.
func ParseRelayed(text string) Relayed {
	by, only := strings.CutSuffix(text, onlyHeartbeats)
	return Relayed{NodeName(by), only}
}
