package edge

import (
	"cmp"
	"fmt"
	"strconv"
)

// History numbers the cloud's histories. Revisions of two histories say nothing about each other, however they compare:
// a cloud that was restored from a backup, or rebuilt, counts from where the backup was. Whoever sees that raises the
// number. 0 is the first history, and what every hub begins with.
type History uint64

// String is the number for people to read.
func (h History) String() string { return strconv.FormatUint(uint64(h), 10) }

// Moment is a revision in a history. Any moment of a later history is after all moments of an earlier one. The zero Moment is
// before all others.
type Moment struct {
	History  History
	Revision Revision
}

// Before reports whether a moment comes before another.
func (m Moment) Before(other Moment) bool {
	return cmp.Or(cmp.Compare(m.History, other.History), cmp.Compare(m.Revision, other.Revision)) < 0
}

// String is the moment for people to read.
func (m Moment) String() string {
	return fmt.Sprintf("revision %d of history %d", m.Revision, m.History)
}

// HeaderHistory says which history the revisions of a push to the coordinator, or of what a mirror answers, count in. Without
// it, they count in the first. A watch that asks for another history than the mirror's is answered with 410.
const HeaderHistory = "Openyurt-History"

// HeaderRevision says, in an answer, how far the mirror has come.
const HeaderRevision = "Openyurt-Revision"

// AnnotationHistory, on LeaseInformerSync, has the history that all revisions in AnnotationAppliedRevisions count in. Without
// it, they count in the first.
const AnnotationHistory = "openyurt.io/cloud-history"

// ParseHistory reads the number; "" is the first history. It fails on what is not a decimal number.
func ParseHistory(text string) (History, error) {
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%.40q is no history: want a decimal number", text)
	}
	return History(n), nil
}
