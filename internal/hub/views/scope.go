package views

import "strings"

// annotation on a Service says how near its traffic stays.
const annotation = "openyurt.io/topologyKeys"

// scope says on which nodes the endpoints of a Service count as near.
type scope uint8

const (
	everywhere scope = iota
	onNode
	inPool
)

// scopes maps the annotation's values. A zone means the pool, because a node at the edge usually has no zone.
var scopes = map[string]scope{
	"kubernetes.io/hostname": onNode, "kubernetes.io/zone": inPool, "openyurt.io/nodepool": inPool,
}

// scopeOf reads the annotation's value, without the blanks around it.
func scopeOf(value string) scope { return scopes[strings.TrimSpace(value)] }
