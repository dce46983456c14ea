package watchcheck

import (
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/watch"
)

// Guarantee is what a Violation breaks.
type Guarantee string

// Guarantees. The first five are etcd's for watches, by its own names.
const (
	// Ordered: a watch's events come in the order of their revisions.
	Ordered Guarantee = "ordered"
	// Unique: no event is told twice.
	Unique Guarantee = "unique"
	// Reliable: a watch leaves out no event between its beginning and its position.
	Reliable Guarantee = "reliable"
	// Resumable: a watch that begins after a revision continues with the first event after it.
	Resumable Guarantee = "resumable"
	// Bookmarkable: a bookmark comes after all events up to its revision, and never goes back.
	Bookmarkable Guarantee = "bookmarkable"
	// Monotonic: an endpoint's answer is never older than an earlier one.
	Monotonic Guarantee = "monotonic"
	// Listable: a list, or the initial events of a watch, holds exactly the objects at its revision.
	Listable Guarantee = "listable"
	// Truthful: an event has happened, and has the right type, object and content.
	Truthful Guarantee = "truthful"
	// Converging: at the end the client knows everything that happened.
	Converging Guarantee = "converging"
	// Frugal: there are no more 410s than allowed.
	Frugal Guarantee = "frugal"
	// Judged: the recording and the facts suffice for a judgement.
	Judged Guarantee = "judged"
)

// Violation is one breach of a guarantee.
type Violation struct {
	Guarantee Guarantee
	// Index is the index of the observation; len(observed) if the breach shows only at the end.
	Index int
	// At is when it was observed.
	At time.Time
	// Revisions are the first hundred concerned.
	Revisions []uint64
	// What says what was observed and what should have been.
	What string
}

// String returns the violation in one line.
func (v Violation) String() string {
	return fmt.Sprintf("%s: observation %d (%s): %s", v.Guarantee, v.Index, v.At.Format("15:04:05.000"), v.What)
}

// Bounds are what a scenario demands in addition to the guarantees. The zero Bounds demand only that the client knows all facts
// at the end.
type Bounds struct {
	// Expired is how many 410s are allowed; negative means unbounded.
	Expired int
}

// Report is what Check finds.
type Report struct {
	// Violations are the first thousand, in the order of the observations.
	Violations []Violation
	// Events, Bookmarks, Lists and Watches count what was observed. A refused watch does not count.
	Events, Bookmarks, Lists, Watches int
	// Expired counts 410s, Broken the watches that ended with an error, Failed the requests that failed.
	Expired, Broken, Failed int
	// P50, P99 and Max are how much later events came than on the truth's own watch; 0 if they came earlier.
	P50, P99, Max time.Duration
}

// Err returns nil if nothing was violated, otherwise the first violations.
func (r Report) Err() error {
	if len(r.Violations) == 0 {
		return nil
	}
	const most = 10
	lines := make([]string, 0, most)
	for _, v := range r.Violations[:min(most, len(r.Violations))] {
		lines = append(lines, v.String())
	}
	return fmt.Errorf("%d violations: %s", len(r.Violations), strings.Join(lines, "; "))
}

// String returns the report in one line.
func (r Report) String() string {
	return fmt.Sprintf("%d violations; %d events, %d bookmarks, %d lists, %d watches, %d broken, %d times 410, %d failures; "+
		"lateness p50 %v, p99 %v, max %v", len(r.Violations), r.Events, r.Bookmarks, r.Lists, r.Watches, r.Broken, r.Expired,
		r.Failed, r.P50, r.P99, r.Max)
}

const (
	maxViolations = 1000
	maxRevisions  = 100
)

// Check judges what a client of one endpoint observed.
func Check(facts *Facts, observed []Observation, bounds Bounds) Report {
	j := &judge{
		facts: facts, timeline: newTimeline(facts), bounds: bounds,
		told: map[uint64]bool{}, lost: map[uint64]bool{},
	}
	for i, o := range observed {
		j.index, j.at = i, o.At
		j.judge(o)
	}
	j.index = len(observed)
	j.end()
	return j.report
}

// judge follows a client: its position and its knowledge.
type judge struct {
	facts    *Facts
	timeline *timeline
	bounds   Bounds
	report   Report
	lateness []time.Duration

	index int
	at    time.Time

	position uint64          // revision up to which the client was told everything; 0 before a list and after a 410
	content  map[string]Item // what the client knows
	highest  []mark          // the highest revision so far, each time it rose
	told     map[uint64]bool // revisions of the delivered events
	lost     map[uint64]bool // missing revisions, each reported only once
	resuming bool            // the watch has delivered nothing yet
	initial  map[string]Item // the initial events so far, of a watch that began with all objects
	syncing  bool
}

type mark struct {
	at       time.Time
	revision uint64
}

func (j *judge) judge(o Observation) {
	switch o.Kind {
	case Listed:
		j.report.Lists++
		j.list(o)
	case Began:
		j.report.Watches++
		j.begin(o)
	case Event:
		j.report.Events++
		if j.syncing {
			j.initially(o)
		} else {
			j.event(o)
		}
	case Bookmark:
		j.report.Bookmarks++
		j.bookmark(o)
	case Synced:
		j.synced(o)
	case Ended:
		if o.Err != "" {
			j.report.Broken++
		}
		j.syncing, j.initial = false, nil
	case Expired:
		j.report.Expired++
		j.position, j.syncing, j.initial = 0, false, nil
	case Failed:
		j.report.Failed++
	case Overflow:
		j.violated(Judged, nil, "the recording is full, the rest was not recorded: give it a higher Limit")
	default:
		j.violated(Judged, nil, "%s is no observation", o.Kind)
	}
}

func (j *judge) violated(g Guarantee, revisions []uint64, format string, args ...any) {
	if len(j.report.Violations) >= maxViolations {
		return
	}
	j.report.Violations = append(j.report.Violations, Violation{
		Guarantee: g, Index: j.index, At: j.at, Revisions: revisions[:min(len(revisions), maxRevisions)],
		What: fmt.Sprintf(format, args...),
	})
}

// rose records that the endpoint has shown a revision.
func (j *judge) rose(revision uint64) {
	if n := len(j.highest); n == 0 || j.highest[n-1].revision < revision {
		j.highest = append(j.highest, mark{j.at, revision})
	}
}

// shown returns the highest revision that the endpoint had shown before a request was sent.
func (j *judge) shown(asked time.Time) uint64 {
	for _, m := range slices.Backward(j.highest) {
		if asked.IsZero() || !m.at.After(asked) {
			return m.revision
		}
	}
	return 0
}

// known reports whether the facts cover a revision.
func (j *judge) known(o Observation) bool {
	if o.Revision >= j.facts.Start && o.Revision <= j.facts.End {
		return true
	}
	j.violated(Judged, []uint64{o.Revision}, "%s: the facts reach from %d to %d: record the truth from before to after",
		o, j.facts.Start, j.facts.End)
	return false
}

func (j *judge) list(o Observation) {
	if shown := j.shown(o.Asked); o.Revision < shown {
		j.violated(Monotonic, []uint64{o.Revision, shown}, "%s, after revision %d had been shown", o, shown)
	}
	if j.known(o) {
		if d := diff(j.timeline.at(o.Revision), o.Items); d != "" {
			j.violated(Listable, []uint64{o.Revision}, "%s %s", o, d)
		}
	}
	j.rose(o.Revision)
	if o.Aside {
		return
	}
	j.position, j.content = o.Revision, maps.Clone(o.Items)
	if j.content == nil {
		j.content = map[string]Item{}
	}
}

func (j *judge) begin(o Observation) {
	j.resuming = true
	if o.Revision == 0 {
		j.syncing, j.initial = true, map[string]Item{}
		return
	}
	if o.Revision != j.position {
		j.violated(Judged, []uint64{o.Revision, j.position}, "a watch was opened after revision %d by a client that stood at %d",
			o.Revision, j.position)
		if j.position == 0 {
			j.position = o.Revision
		}
	}
}

// after returns the index of the first change after a revision.
func (j *judge) after(revision uint64) int {
	return sort.Search(len(j.facts.Changes), func(i int) bool { return j.facts.Changes[i].Revision > revision })
}

// passed judges a client's move to a revision. The client must have been told all that happened before; passed reports what was
// missing.
func (j *judge) passed(to uint64, g Guarantee, o Observation) {
	var missing []uint64
	for _, w := range j.facts.Changes[j.after(j.position):] {
		if w.Revision >= to {
			break
		}
		if !j.lost[w.Revision] {
			j.lost[w.Revision] = true
			missing = append(missing, w.Revision)
		}
	}
	if len(missing) > 0 {
		j.violated(g, missing, "%s: before it, after revision %d, %d events were not told: revisions %v",
			o, j.position, len(missing), missing[:min(len(missing), 5)])
	}
}

func (j *judge) event(o Observation) {
	if j.position == 0 {
		j.violated(Judged, []uint64{o.Revision}, "%s: of no watch", o)
		return
	}
	if !j.known(o) {
		return
	}
	n := j.after(o.Revision - 1)
	happened := n < len(j.facts.Changes) && j.facts.Changes[n].Revision == o.Revision
	switch {
	case j.told[o.Revision]:
		j.violated(Unique, []uint64{o.Revision}, "%s: told before", o)
	case o.Revision <= j.position && j.lost[o.Revision]:
		j.violated(Ordered, []uint64{o.Revision, j.position}, "%s: late, after revision %d", o, j.position)
	case o.Revision <= j.position && happened:
		j.violated(Unique, []uint64{o.Revision, j.position}, "%s: the client already stood at revision %d", o, j.position)
	case o.Revision <= j.position:
		j.violated(Ordered, []uint64{o.Revision, j.position}, "%s: after revision %d", o, j.position)
	default:
		g := Reliable
		if j.resuming {
			g = Resumable
		}
		j.passed(o.Revision, g, o)
	}
	j.resuming = false
	j.told[o.Revision] = true
	if !happened {
		j.violated(Truthful, []uint64{o.Revision}, "%s: did not happen", o)
	} else {
		j.compare(o, j.facts.Changes[n])
	}
	if o.Type == watch.Deleted {
		delete(j.content, o.Key)
	} else if j.content != nil {
		j.content[o.Key] = o.Item
	}
	j.position = max(j.position, o.Revision)
	j.rose(o.Revision)
}

func (j *judge) compare(o Observation, w Fact) {
	j.lateness = append(j.lateness, max(0, o.At.Sub(w.At)))
	switch {
	case o.Key != w.Key:
		j.violated(Truthful, []uint64{o.Revision}, "%s: it happened to %s", o, w.Key)
	case o.Type != w.Type:
		j.violated(Truthful, []uint64{o.Revision}, "%s: should be %s", o, w.Type)
	case o.Item.Revision != o.Revision:
		j.violated(Truthful, []uint64{o.Revision, o.Item.Revision}, "%s: its object has revision %d", o, o.Item.Revision)
	case o.Item.Hash != w.Item.Hash:
		j.violated(Truthful, []uint64{o.Revision}, "%s: with another content than the truth's", o)
	}
}

func (j *judge) bookmark(o Observation) {
	if j.syncing {
		j.violated(Bookmarkable, []uint64{o.Revision}, "%s: before the end of the initial events", o)
		return
	}
	if o.Revision < j.position {
		j.violated(Bookmarkable, []uint64{o.Revision, j.position}, "%s: after revision %d", o, j.position)
		return
	}
	if !j.known(o) {
		return
	}
	j.passed(o.Revision+1, Bookmarkable, o)
	j.resuming = false
	j.position = o.Revision
	j.rose(o.Revision)
}

// initially judges an event before the end of the initial events. These are an ADDED for each present object, in any order, and
// then perhaps later changes.
func (j *judge) initially(o Observation) {
	last, exists := j.initial[o.Key]
	if exists && o.Revision <= last.Revision {
		j.violated(Unique, []uint64{o.Revision, last.Revision}, "%s: told at revision %d before", o, last.Revision)
	}
	if !exists && o.Type != watch.Added {
		j.violated(Truthful, []uint64{o.Revision}, "%s: of an object that was not told before", o)
	}
	if o.Type == watch.Deleted {
		delete(j.initial, o.Key)
		return
	}
	j.initial[o.Key] = o.Item
}

func (j *judge) synced(o Observation) {
	if !j.syncing {
		j.violated(Bookmarkable, []uint64{o.Revision}, "%s: of a watch that did not begin with all objects", o)
		return
	}
	if shown := j.shown(time.Time{}); o.Revision < shown {
		j.violated(Monotonic, []uint64{o.Revision, shown}, "%s, after revision %d had been shown", o, shown)
	}
	if j.known(o) {
		if d := diff(j.timeline.at(o.Revision), j.initial); d != "" {
			j.violated(Listable, []uint64{o.Revision}, "%s %s", o, d)
		}
	}
	j.position, j.content = o.Revision, j.initial
	j.syncing, j.initial = false, nil
	j.rose(o.Revision)
}

func (j *judge) end() {
	if j.report.Expired > j.bounds.Expired && j.bounds.Expired >= 0 {
		j.violated(Frugal, nil, "%d times 410, allowed are %d", j.report.Expired, j.bounds.Expired)
	}
	if j.report.Lists+j.report.Watches == 0 {
		j.violated(Judged, nil, "nothing was observed")
	}
	slices.Sort(j.lateness)
	if n := len(j.lateness); n > 0 {
		j.report.P50, j.report.P99, j.report.Max = j.lateness[n/2], j.lateness[n*99/100], j.lateness[n-1]
	}
	if j.position == 0 {
		j.violated(Converging, nil, "the client ended without content")
		return
	}
	var behind []uint64
	for _, w := range j.facts.Changes[j.after(j.position):] {
		if !j.lost[w.Revision] {
			behind = append(behind, w.Revision)
		}
	}
	if len(behind) > 0 {
		j.violated(Converging, behind, "the client ended at revision %d, %d events of the facts, up to %d, were not told",
			j.position, len(behind), j.facts.End)
		return
	}
	// Whatever else was seen: the client must now know the truth's last state.
	if d := diff(j.timeline.at(j.facts.End), j.content); d != "" {
		j.violated(Converging, nil, "the client's content at the end %s", d)
	}
}
