package openings

import (
	"cmp"
	"slices"
	"time"

	"yurtcoordinator/internal/edge"
)

const (
	// settle is how long an opening waits for more of its kind, or for its end, before it is handed out.
	settle = 10 * time.Second

	// maxOfAct bounds the openings of an act, and maxUsersOfAct those that have a user's name alone, when there are too many.
	maxOfAct, maxUsersOfAct = 256, 64
)

// order is that in which acts are told: refusals last, because anybody who has a certificate makes as many as he likes.
var order = []edge.Act{edge.ActBegan, edge.ActOpened, edge.ActEnded, edge.ActRefused}

// entry is an opening that the cloud does not know yet.
type entry struct {
	edge.Opening
	sealed bool // it was handed out
}

// ledger is what the cloud does not know yet. It does no I/O and asks no clock.
type ledger struct {
	last    uint64
	entries []*entry // by number
	growing map[edge.Attempt]*entry
}

// newLedger returns the ledger of a coordinator that begins.
func newLedger(now time.Time) *ledger {
	l := &ledger{growing: map[edge.Attempt]*entry{}}
	l.add(edge.Attempt{Act: edge.ActBegan}, now, now)
	return l
}

// add counts an attempt.
func (l *ledger) add(a edge.Attempt, first, last time.Time) *entry {
	a = l.roomFor(a)
	e := l.growing[a]
	if e == nil {
		l.last++
		e = &entry{Opening: edge.Opening{Number: l.last, Attempt: a, First: first, Last: last}}
		l.entries, l.growing[a] = append(l.entries, e), e
	}
	e.Count++
	if first.Before(e.First) {
		e.First = first
	}
	if last.After(e.Last) {
		e.Last = last
	}
	return e
}

// roomFor returns what an attempt counts as: itself, or one of its user, or one of anybody.
func (l *ledger) roomFor(a edge.Attempt) edge.Attempt {
	ofUser := edge.Attempt{Act: a.Act, User: a.User, Groups: a.Groups, Certificate: a.Certificate, Serial: a.Serial}
	n := 0
	for _, e := range l.entries {
		if e.Act == a.Act {
			n++
		}
	}
	switch {
	case l.growing[a] != nil || n < maxOfAct:
		return a
	case l.growing[ofUser] != nil || n < maxOfAct+maxUsersOfAct:
		return ofUser
	}
	return edge.Attempt{Act: a.Act}
}

// end notes that one stream of an opening, open since began, has ended.
func (l *ledger) end(e *entry, began, now time.Time) {
	if !e.sealed {
		e.Over++
		e.End = &now
		return
	}
	ended := e.Attempt
	ended.Act, ended.Of = edge.ActEnded, e.Number
	l.add(ended, began, now)
}

// due reports whether there is nothing more to wait for.
func (e *entry) due(now time.Time) bool {
	switch e.Act {
	case edge.ActBegan, edge.ActEnded:
		return true
	case edge.ActOpened:
		if e.Over == e.Count {
			return true
		}
	}
	return now.Sub(e.First) >= settle
}

// take hands out up to n openings: first those that were before, which the leader of then may not have told.
func (l *ledger) take(n int, now time.Time) []edge.Opening {
	var found []*entry
	for _, e := range l.entries {
		if e.sealed || e.due(now) {
			found = append(found, e)
		}
	}
	rank := func(e *entry) int {
		if e.sealed {
			return -1
		}
		return slices.Index(order, e.Act)
	}
	slices.SortStableFunc(found, func(a, b *entry) int { return cmp.Compare(rank(a), rank(b)) })
	all := []edge.Opening{}
	for _, e := range found[:min(len(found), n)] {
		if !e.sealed {
			e.sealed = true
			delete(l.growing, e.Attempt)
		}
		all = append(all, e.Opening)
	}
	return all
}

// told forgets what was handed out and the cloud has. It returns how many those are.
func (l *ledger) told(numbers []uint64) int {
	before := len(l.entries)
	l.entries = slices.DeleteFunc(l.entries, func(e *entry) bool { return e.sealed && slices.Contains(numbers, e.Number) })
	return before - len(l.entries)
}
