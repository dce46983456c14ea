package edge

import (
	"cmp"
	"fmt"
	"strconv"
)

// History numbers the cloud's histories. Revisions of two histories can't be compared: a cloud that was restored from a
// backup, or rebuilt, counts on from where the backup was. A hub that sees this raises the number. Every hub begins
// with history 0, the first.
type History uint64

// String is the number for people to read.
func (h History) String() string { return strconv.FormatUint(uint64(h), 10) }

// Moment is a revision in a history. Every moment of a later history is after every moment of an earlier one. The zero
// Moment is before all others.
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

// HeaderHistory names the history of the revisions in a push to the coordinator, or in a mirror's answer. Without it
// they belong to the first history. The mirror answers 410 to a watch that asks for a history other than its own.
const HeaderHistory = "Openyurt-History"

// HeaderRevision, in an answer, is the revision that the mirror has reached.
const HeaderRevision = "Openyurt-Revision"

// AnnotationHistory, on LeaseInformerSync, is the history of all revisions in AnnotationAppliedRevisions. Without it
// they belong to the first history.
const AnnotationHistory = "openyurt.io/cloud-history"

// ParseHistory reads the number; "" is the first history. It fails on what is not a decimal number.
func ParseHistory(text string) (History, error) {
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%.40q is not a history: it must be a decimal number", text)
	}
	return History(n), nil
}
