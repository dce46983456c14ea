package edge

import (
	"fmt"
	"strconv"
	"time"
)

// AnnotationLine, on the coordinator's copy of a node's Lease, says how good the node's own link to the cloud is, as its hub
// measures it. The value is one Line.String, and never reaches the cloud. Without it, nothing is known of the link.
const AnnotationLine = "openyurt.io/cloud-line"

// AnnotationYielded, on the election Lease, says when a leader last left the lead to a node of its choice, in seconds since 1970
// by that leader's clock. AnnotationYieldedTo names that node, until a hub leads again.
const (
	AnnotationYielded   = "openyurt.io/yielded"
	AnnotationYieldedTo = "openyurt.io/yielded-to"
)

// Line is the quality of a node's link to the cloud, measured by its own heartbeats.
type Line struct {
	// Answer is how long the cloud takes to answer a heartbeat, and Spread is how much that varies. They are the smoothed round
	// trip and its variation of RFC 6298, to the millisecond. Losses raise both, because what is lost is sent again.
	Answer, Spread time.Duration
	// Lost is how many heartbeats of the last ten minutes the cloud did not answer.
	Lost int
	// Metered says that each byte is paid for.
	Metered bool
}

// metered and free are the words in String for a metered line, and any other.
const metered, free = "metered", "free"

// String returns "answer/spread/lost/kind", the first two in milliseconds. ParseLine reads it.
func (l Line) String() string {
	kind := free
	if l.Metered {
		kind = metered
	}
	return fmt.Sprintf("%d/%d/%d/%s", l.Answer.Milliseconds(), l.Spread.Milliseconds(), l.Lost, kind)
}

// ParseLine reads what String wrote. It returns false for anything else.
func ParseLine(value string) (Line, bool) {
	var answer, spread uint32
	var l Line
	var kind string
	if n, err := fmt.Sscanf(value, "%d/%d/%d/%s", &answer, &spread, &l.Lost, &kind); n != 4 || err != nil || l.Lost < 0 {
		return Line{}, false
	}
	l.Answer, l.Spread = time.Duration(answer)*time.Millisecond, time.Duration(spread)*time.Millisecond
	l.Metered = kind == metered
	return l, l.String() == value
}

// FormatYielded returns the value of AnnotationYielded; ParseYielded reads it, and returns false for anything else.
func FormatYielded(at time.Time) string { return strconv.FormatInt(at.Unix(), 10) }

// ParseYielded reads what FormatYielded wrote.
func ParseYielded(value string) (time.Time, bool) {
	seconds, err := strconv.ParseInt(value, 10, 64)
	if err != nil || seconds <= 0 {
		return time.Time{}, false
	}
	return time.Unix(seconds, 0), true
}
