package edge

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
)

// History is the number of the cloud's past. A cloud that was restored from a backup, or rebuilt, goes back to earlier revisions,
// so revisions of two histories can't be compared. A hub that sees such a cloud raises the number. Every hub begins with history
// 0.
//
// What a filler brings belongs to a history of its own (Filled), which is before all histories of the cloud. So anything that a
// leader brings from the cloud is later, and replaces it.
type History int64

// histories bounds the cloud's histories. A filled history is the cloud's number minus this, so it is below 0.
const histories = 1 << 62

// mostHistories is more than a cloud has: if it is restored from a backup each hour, it has fewer in a century.
const mostHistories = 1 << 20

// Believable reports whether a hub may believe somebody else who says that the cloud is in this history. A hub's number never
// falls, so a false report of a very high one would leave no numbers for later histories. The bound is fixed, because a bound
// relative to the hub's own number could be raised in steps. A hub does not apply the bound to what it has seen by itself.
func (h History) Believable() bool { return h.OfCloud() <= mostHistories }

// Filled is the history of objects that a filler brought, if the filler had them from history h of the cloud. Filled histories
// have the same order as those of the cloud.
func (h History) Filled() History {
	if h.IsFilled() {
		return h
	}
	return h - histories
}

// IsFilled reports whether a filler brought the objects, and not the cloud or a leader that reads there.
func (h History) IsFilled() bool { return h < 0 }

// OfCloud is the history of the cloud. For a filled history it is the one that the filler had its objects from.
func (h History) OfCloud() History {
	if h.IsFilled() {
		return h + histories
	}
	return h
}

// filledPrefix stands before the number of a filled history.
const filledPrefix = "filled-"

// String is what ParseHistory reads: the number, with "filled-" before it if it is filled.
func (h History) String() string {
	if h.IsFilled() {
		return filledPrefix + h.OfCloud().String()
	}
	return strconv.FormatInt(int64(h), 10)
}

// Moment is a revision in a history. Every moment of a later history is after every moment of an earlier one. The zero Moment is
// before all other moments of the cloud, and after all filled ones.
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
	return fmt.Sprintf("revision %d of history %s", m.Revision, m.History)
}

// HeaderHistory names the history of the revisions in a push to the coordinator, or in a mirror's answer. Without the header, the
// history is the first one. If a watch names another history than the mirror's own, the mirror answers 410, or 503 if the
// mirror's own history is filled.
const HeaderHistory = "Openyurt-History"

// HeaderRevision, in an answer, is the revision that the mirror has reached.
const HeaderRevision = "Openyurt-Revision"

// AnnotationHistory, on LeaseInformerSync, is the history of all revisions in AnnotationAppliedRevisions. Without it, the history
// is the first one.
const AnnotationHistory = "openyurt.io/cloud-history"

// ParseHistory reads what String writes; "" is the first history. It fails on anything else.
func ParseHistory(text string) (History, error) {
	if text == "" {
		return 0, nil
	}
	digits, filled := strings.CutPrefix(text, filledPrefix)
	n, err := strconv.ParseUint(digits, 10, 64)
	if err != nil || n >= histories {
		return 0, fmt.Errorf("%.40q is not a history: it must be a decimal number, less than 2^62, which %q may be before", text,
			filledPrefix)
	}
	if filled {
		return History(n).Filled(), nil
	}
	return History(n), nil
}
