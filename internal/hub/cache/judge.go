package cache

import "yurtcoordinator/internal/edge"

// Verdict is what the cloud's answers say about the hub's history.
type Verdict uint8

const (
	// Ask means that the witness has changed. Its state as of the revision at which the hub saw it will decide.
	Ask Verdict = iota
	// Same means that the hub's content belongs to the cloud's own past.
	Same
	// Changed means that the cloud has another past.
	Changed
	// Unknown means that the cloud has forgotten the revision that would decide.
	Unknown
)

// String returns "ask", "same", "changed" or "unknown".
func (v Verdict) String() string { return [...]string{"ask", "same", "changed", "unknown"}[v] }

// Answer is what the cloud says about a witness.
type Answer struct {
	// Current is the cloud's revision.
	Current edge.Revision
	// Object is the present revision of the witness; 0 means that the witness is gone.
	Object edge.Revision
}

// Compare judges by the witness's present state whether the cloud's history is still the same. seen is the revision at which the
// hub saw the witness; 0 means that the collection was empty. held is the highest revision up to which the hub knows any
// collection of the resource.
func Compare(seen, held edge.Revision, now Answer) Verdict {
	switch {
	case now.Current < held || now.Current < seen:
		return Changed // a history only grows
	case now.Object == seen:
		return Same
	case now.Object != 0 && now.Object < seen:
		return Changed // so does an object's revision
	case seen == 0 && now.Object <= held:
		return Changed // it was not there
	case seen == 0:
		return Unknown // it came later; others may have been there
	default:
		return Ask
	}
}
