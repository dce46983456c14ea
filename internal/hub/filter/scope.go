package filter

import "strings"

// annotation on a Service says how near its traffic stays.
const annotation = "openyurt.io/topologyKeys"

// scope is how near.
type scope uint8

const (
	everywhere scope = iota
	onNode
	inPool
)

// scopes are the annotation's values. A zone means the pool: a hub knows of none, and its node is in none as a rule.
var scopes = map[string]scope{
	"kubernetes.io/hostname": onNode, "kubernetes.io/zone": inPool, "openyurt.io/nodepool": inPool,
}

// scopeOf reads the annotation's value. Blanks around it are an accident.
func scopeOf(value string) scope { return scopes[strings.TrimSpace(value)] }
