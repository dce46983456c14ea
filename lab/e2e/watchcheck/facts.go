package watchcheck

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sort"
	"time"

	"k8s.io/apimachinery/pkg/watch"
)

// ErrNoFacts says that a recording can't serve as the truth, because it has a gap or contradicts itself.
var ErrNoFacts = errors.New("the recording has a gap or contradicts itself: it cannot serve as the truth")

// errBehind says that a list holds something that the events have not told, or the other way round.
var errBehind = errors.New("list and events differ")

// Fact is one change that happened.
type Fact struct {
	Revision uint64
	Type     watch.EventType
	Key      string
	Item     Item
	// At is when the truth's own watch told it.
	At time.Time
}

// Facts are what happened to one resource from revision Start to revision End.
type Facts struct {
	Start   uint64
	Initial map[string]Item
	// Changes are in the order of their revisions. Each revision occurs once.
	Changes []Fact
	End     uint64
	// expired says that history was lost, and no list has come since.
	expired bool
}

// FactsOf reads a recording of the source of truth. It fails with ErrNoFacts if the recording overflowed, repeats or reorders
// revisions, or if one of its lists, including those made aside, contradicts its events.
//
// An API server that has just started may answer the recorder with 410. Then the next list stands for what was missed: one
// change of each object that it has at another revision. If there were more changes, a client that was told of them is judged
// wrong, which a reader of the report sees. No wrong client is judged right. If an object is gone, FactsOf fails, since no list
// tells at which revision it went.
func FactsOf(recording []Observation) (*Facts, error) {
	f := &Facts{}
	for i, o := range recording {
		if err := f.take(o); err != nil {
			return nil, fmt.Errorf("%w: observation %d, %s: %w", ErrNoFacts, i, o, err)
		}
	}
	if f.Start == 0 || f.expired {
		return nil, fmt.Errorf("%w: it holds no list, or none since a 410", ErrNoFacts)
	}
	if misfit := f.typed(); misfit != "" {
		return nil, fmt.Errorf("%w: %s", ErrNoFacts, misfit)
	}
	told := f.End
	for _, o := range recording {
		if o.Kind == Listed {
			f.End = max(f.End, o.Revision)
		}
	}
	timeline := newTimeline(f)
	for i, o := range recording {
		if o.Kind != Listed {
			continue
		}
		if difference := diff(timeline.at(o.Revision), o.Items); difference != "" {
			return nil, fmt.Errorf("%w: %w: observation %d, %s, events told up to %d: %s", ErrNoFacts, errBehind,
				i, o, told, difference)
		}
	}
	return f, nil
}

func (f *Facts) take(o Observation) error {
	switch o.Kind {
	case Listed:
		if o.Aside {
			return nil
		}
		if f.expired {
			return f.missed(o)
		}
		if f.Start != 0 {
			return errors.New("it lists a second time")
		}
		f.Start, f.Initial, f.End = o.Revision, o.Items, o.Revision
	case Event:
		if o.Revision <= f.End {
			return fmt.Errorf("after revision %d", f.End)
		}
		if o.Item.Revision != o.Revision {
			return fmt.Errorf("its object has revision %d", o.Item.Revision)
		}
		f.Changes = append(f.Changes, Fact{Revision: o.Revision, Type: o.Type, Key: o.Key, Item: o.Item, At: o.At})
		f.End = o.Revision
	case Bookmark:
		if o.Revision < f.End {
			return fmt.Errorf("after revision %d", f.End)
		}
		f.End = o.Revision
	case Began:
		if o.Revision != f.End {
			return fmt.Errorf("the recording stood at revision %d", f.End)
		}
	case Ended, Failed:
	case Expired:
		f.expired = true
	default:
		return errors.New("it is not whole")
	}
	return nil
}

// missed takes from a list the changes since the history was lost.
func (f *Facts) missed(list Observation) error {
	if list.Revision < f.End {
		return fmt.Errorf("after revision %d", f.End)
	}
	before, then := newTimeline(f).at(f.End), f.End
	for key, item := range list.Items {
		was, existed := before[key]
		delete(before, key)
		if existed && was.Revision == item.Revision {
			continue
		}
		if item.Revision <= then {
			return fmt.Errorf("after revision %d: %s at revision %d", then, key, item.Revision)
		}
		change := Fact{Revision: item.Revision, Type: watch.Added, Key: key, Item: item, At: list.At}
		if existed {
			change.Type = watch.Modified
		}
		f.Changes = append(f.Changes, change)
	}
	for key := range before {
		return fmt.Errorf("after a 410 %s is gone", key)
	}
	slices.SortFunc(f.Changes, func(a, b Fact) int { return cmp.Compare(a.Revision, b.Revision) })
	f.End, f.expired = list.Revision, false
	return nil
}

// state is the state of one key after a change; gone after its deletion.
type state struct {
	revision uint64
	gone     bool
	item     Item
}

// timeline answers what existed at a revision.
type timeline struct {
	keys map[string][]state // each in the order of revisions
}

func newTimeline(f *Facts) *timeline {
	t := &timeline{keys: make(map[string][]state, len(f.Initial))}
	for key, item := range f.Initial {
		t.keys[key] = []state{{revision: f.Start, item: item}}
	}
	for _, c := range f.Changes {
		t.keys[c.Key] = append(t.keys[c.Key], state{revision: c.Revision, gone: c.Type == watch.Deleted, item: c.Item})
	}
	return t
}

func (t *timeline) at(revision uint64) map[string]Item {
	all := map[string]Item{}
	for key, states := range t.keys {
		n := sort.Search(len(states), func(i int) bool { return states[i].revision > revision })
		if n == 0 {
			continue
		}
		if s := states[n-1]; !s.gone {
			all[key] = s.item
		}
	}
	return all
}

// typed names a change whose type does not fit what was before; empty means that all fit.
func (f *Facts) typed() string {
	exists := make(map[string]bool, len(f.Initial))
	for key := range f.Initial {
		exists[key] = true
	}
	for _, c := range f.Changes {
		if (c.Type == watch.Added) == exists[c.Key] {
			return fmt.Sprintf("%s %s at revision %d does not fit what was before", c.Type, c.Key, c.Revision)
		}
		exists[c.Key] = c.Type != watch.Deleted
	}
	return ""
}

// diff returns how got differs from want, in one line; empty means that it does not.
func diff(want, got map[string]Item) string {
	var missing, extra, other []string
	for key, w := range want {
		g, ok := got[key]
		switch {
		case !ok:
			missing = append(missing, key)
		case g.Revision != w.Revision:
			other = append(other, fmt.Sprintf("%s at revision %d instead of %d", key, g.Revision, w.Revision))
		case g.Hash != w.Hash:
			other = append(other, key+" with another content")
		}
	}
	for key := range got {
		if _, ok := want[key]; !ok {
			extra = append(extra, key)
		}
	}
	s := ""
	for _, part := range []struct {
		name string
		keys []string
	}{{"lacks", missing}, {"has too much", extra}, {"differs", other}} {
		if len(part.keys) == 0 {
			continue
		}
		if s != "" {
			s += "; "
		}
		slices.Sort(part.keys)
		s += part.name + ": " + few(part.keys)
	}
	return s
}

func few(all []string) string {
	const most = 5
	if len(all) > most {
		return fmt.Sprintf("%v and %d more", all[:most], len(all)-most)
	}
	return fmt.Sprint(all)
}
