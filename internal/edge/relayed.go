package edge

import (
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// AnnotationRelayedBy on a Lease says that the node writes the Lease itself, over a neighbour's line. Its value is one
// Relayed.String. In the cloud the Lease also has DelegateHeartbeat. The coordinator's copy does not, so that no leader forwards
// the heartbeat.
const AnnotationRelayedBy = "openyurt.io/relayed-by"

// Relayed is how a node reaches the cloud over a neighbour's line. The zero Relayed means that it does not.
type Relayed struct {
	By NodeName
	// HeartbeatsOnly says that only the node's heartbeats and its Node's status take the neighbour's line. kubelet gets nothing
	// else from the cloud.
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

// ParseRelayed reads what String writes. It returns the zero Relayed for any other text, because nodes write it.
func ParseRelayed(text string) Relayed {
	by, only := strings.CutSuffix(text, onlyHeartbeats)
	if len(validation.IsDNS1123Subdomain(by)) > 0 {
		return Relayed{}
	}
	return Relayed{NodeName(by), only}
}
