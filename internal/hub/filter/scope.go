package filter

import "strings"

// annotation on a Service says how near its traffic stays.
const annotation = "openyurt.io/topologyKeys"

// scope is how near.
type scope uint8

const (
	everywhere scope = iota
	onNode
	inZone
	inPool
)

// String is the value of the annotation.
func (s scope) String() string {
	switch s {
	case onNode:
		return "kubernetes.io/hostname"
	case inZone:
		return "kubernetes.io/zone"
	case inPool:
		return "openyurt.io/nodepool"
	default:
		return ""
	}
}

// scopeOf reads the annotation's value. Blanks around it are an accident.
func scopeOf(value string) scope {
	value = strings.TrimSpace(value)
	for s := onNode; s <= inPool; s++ {
		if value == s.String() {
			return s
		}
	}
	return everywhere
}
