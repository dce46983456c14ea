package history

import "yurtcoordinator/internal/edge"

// Verdict is what the cloud's answers say of the history that a hub knows.
type Verdict uint8

const (
	// Ask: the witness has changed since. The answer is in its state at the revision that it was seen at.
	Ask Verdict = iota
	// Same: what the hub has is the cloud's own past.
	Same
	// Changed: the cloud has another past.
	Changed
	// Unknown: the cloud no longer remembers the time that would tell.
	Unknown
)

// String returns "ask", "same", "changed" or "unknown".
func (v Verdict) String() string { return [...]string{"ask", "same", "changed", "unknown"}[v] }

// Answer is what the cloud says of a witness.
type Answer struct {
	// Current is the cloud's revision.
	Current edge.Revision
	// Object is the revision of the witness now; 0 means that there is none.
	Object edge.Revision
}

// Compare judges by what is so now. seen is the revision that the witness was seen at, held the highest that anything
// here is known up to.
func Compare(seen, held edge.Revision, now Answer) Verdict {
	switch {
	case now.Current < held || now.Current < seen:
		return Changed // a history only grows
	case now.Object == seen:
		return Same
	case now.Object != 0 && now.Object < seen:
		return Changed // and an object's revision does, too
	default:
		return Ask
	}
}

// Past is the witness's state at the revision that it was seen at.
type Past uint8

const (
	// There: it is as it was seen.
	There Past = iota
	// Other: it is not there, or not as it was seen.
	Other
	// Forgotten: the cloud keeps nothing of that time.
	Forgotten
	// Ahead: the cloud has not come as far.
	Ahead
)

// Conclude judges by what was so then.
func Conclude(then Past) Verdict {
	switch then {
	case There:
		return Same
	case Forgotten:
		return Unknown
	default:
		return Changed
	}
}
