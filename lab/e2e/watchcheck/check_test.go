package watchcheck

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/watch"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// randomTruth is a recording of the source: one list, one watch that is interrupted now and then, one list at the end.
func randomTruth(r *rand.Rand, changes int) []Observation {
	now := epoch
	revision := 100 + r.Uint64N(1000)
	exists := map[string]Item{}
	for i := range r.IntN(20) {
		exists[fmt.Sprintf("ns/initial-%d", i)] = Item{Revision: revision - r.Uint64N(90), Hash: r.Uint64()}
	}
	all := []Observation{
		{Kind: Listed, At: now, Revision: revision, Items: maps.Clone(exists)}, {Kind: Began, Revision: revision},
	}
	for range changes {
		now = now.Add(time.Millisecond * time.Duration(1+r.IntN(50)))
		revision += 1 + r.Uint64N(4)
		o := Observation{
			Kind: Event, At: now, Revision: revision, Type: watch.Modified,
			Item: Item{Revision: revision, Hash: r.Uint64()},
		}
		keys := slices.Sorted(maps.Keys(exists))
		if len(keys) == 0 || r.IntN(3) == 0 {
			o.Type, o.Key = watch.Added, fmt.Sprintf("ns/at-%d", revision)
		} else {
			o.Key = keys[r.IntN(len(keys))]
		}
		if o.Type == watch.Modified && r.IntN(3) == 0 {
			o.Type, o.Item.Hash = watch.Deleted, exists[o.Key].Hash
			delete(exists, o.Key)
		} else {
			exists[o.Key] = o.Item
		}
		all = append(all, o)
		if r.IntN(10) == 0 {
			revision += r.Uint64N(3)
			all = append(all, Observation{Kind: Bookmark, At: now, Revision: revision})
		}
		if r.IntN(20) == 0 {
			all = append(all, Observation{Kind: Ended, At: now}, Observation{Kind: Began, At: now, Revision: revision})
		}
	}
	revision += r.Uint64N(3)
	return append(all, Observation{Kind: Listed, At: now, Revision: revision, Items: exists, Aside: true})
}

// perfect is what a client of a faultless endpoint observes: random breaks, resumes, bookmarks, 410s, lists and watches
// that begin with all objects.
func perfect(r *rand.Rand, facts *Facts) []Observation {
	p := &player{r: r, facts: facts, lines: newTimeline(facts), now: epoch, server: facts.Start}
	p.begin()
	for p.server < facts.End {
		p.server = min(facts.End, p.server+r.Uint64N(20))
		p.catchUp()
		if r.IntN(3) == 0 {
			p.add(Observation{Kind: Bookmark, Revision: p.server})
			p.position = p.server
		}
		switch r.IntN(12) {
		case 0, 1, 2:
			p.add(Observation{Kind: Ended, Err: []string{"", "cut"}[r.IntN(2)]})
			if r.IntN(3) == 0 {
				p.add(Observation{Kind: Failed, Err: "500"})
			}
			p.add(Observation{Kind: Began, Asked: p.now, Revision: p.position})
		case 3:
			p.add(Observation{Kind: Expired, Err: "410"})
			p.begin()
		case 4:
			p.add(Observation{Kind: Listed, Asked: p.now, Revision: p.server, Items: p.lines.at(p.server), Aside: true})
		}
	}
	p.catchUp()
	return p.told
}

type player struct {
	r        *rand.Rand
	facts    *Facts
	lines    *timeline
	now      time.Time
	server   uint64 // how far the endpoint is
	position uint64 // how far the client is
	told     []Observation
}

func (p *player) add(o Observation) {
	p.now = p.now.Add(time.Millisecond)
	o.At = p.now
	p.told = append(p.told, o)
}

func (p *player) begin() {
	content := p.lines.at(p.server)
	if p.r.IntN(2) == 0 {
		p.add(Observation{Kind: Listed, Asked: p.now, Revision: p.server, Items: content})
		p.add(Observation{Kind: Began, Asked: p.now, Revision: p.server})
	} else {
		p.add(Observation{Kind: Began, Asked: p.now})
		for key, item := range content {
			p.add(Observation{Kind: Event, Type: watch.Added, Key: key, Revision: item.Revision, Item: item})
		}
		p.add(Observation{Kind: Synced, Revision: p.server})
	}
	p.position = p.server
}

func (p *player) catchUp() {
	for _, w := range p.facts.Changes {
		if w.Revision <= p.position || w.Revision > p.server {
			continue
		}
		if w.At.After(p.now) {
			p.now = w.At
		}
		p.add(Observation{Kind: Event, Type: w.Type, Key: w.Key, Revision: w.Revision, Item: w.Item})
		p.position = w.Revision
	}
}

// live are the indexes of the events that were told after the initial ones.
func live(told []Observation) []int {
	var all []int
	initial := false
	for i, o := range told {
		switch {
		case o.Kind == Began:
			initial = o.Revision == 0
		case o.Kind == Synced:
			initial = false
		case o.Kind == Event && !initial:
			all = append(all, i)
		}
	}
	return all
}

// kinds are the indexes of the observations of a kind.
func kinds(told []Observation, k Kind) []int {
	var all []int
	for i, o := range told {
		if o.Kind == k {
			all = append(all, i)
		}
	}
	return all
}

// mutation breaks a faultless recording, if it has what it breaks, and says what must be found.
type mutation func(r *rand.Rand, f *Facts, told []Observation) (broken []Observation, want Guarantee, ok bool)

// pick draws an index of which a condition holds.
func pick(r *rand.Rand, from []int, ok func(i int) bool) (int, bool) {
	good := slices.DeleteFunc(slices.Clone(from), func(i int) bool { return !ok(i) })
	if len(good) == 0 {
		return 0, false
	}
	return good[r.IntN(len(good))], true
}

func always(int) bool { return true }

// change is a mutation of one live event.
func change(want Guarantee, f func(o *Observation)) mutation {
	return func(r *rand.Rand, _ *Facts, told []Observation) ([]Observation, Guarantee, bool) {
		i, ok := pick(r, live(told), always)
		if ok {
			f(&told[i])
		}
		return told, want, ok
	}
}

// changeItems is a mutation of the objects of one list.
func changeItems(f func(items map[string]Item, key string)) mutation {
	return func(r *rand.Rand, _ *Facts, told []Observation) ([]Observation, Guarantee, bool) {
		i, ok := pick(r, kinds(told, Listed), func(i int) bool { return len(told[i].Items) > 0 })
		if !ok {
			return nil, "", false
		}
		told[i].Items = maps.Clone(told[i].Items)
		keys := slices.Sorted(maps.Keys(told[i].Items))
		f(told[i].Items, keys[r.IntN(len(keys))])
		return told, Listable, true
	}
}

var mutations = map[string]mutation{
	"an event is lost before another": func(r *rand.Rand, _ *Facts, told []Observation) ([]Observation, Guarantee, bool) {
		i, ok := pick(r, live(told), func(i int) bool {
			return i+1 < len(told) && told[i+1].Kind == Event && told[i-1].Kind == Event
		})
		if !ok {
			return nil, "", false
		}
		return slices.Delete(told, i, i+1), Reliable, true
	},
	"an event is lost before a bookmark": func(r *rand.Rand, _ *Facts, told []Observation) ([]Observation, Guarantee, bool) {
		i, ok := pick(r, live(told), func(i int) bool { return i+1 < len(told) && told[i+1].Kind == Bookmark })
		if !ok {
			return nil, "", false
		}
		return slices.Delete(told, i, i+1), Bookmarkable, true
	},
	"the last event is lost": func(_ *rand.Rand, _ *Facts, told []Observation) ([]Observation, Guarantee, bool) {
		last := len(told) - 1
		return told[:last], Converging, told[last].Kind == Event
	},
	"a resume skips an event": func(r *rand.Rand, _ *Facts, told []Observation) ([]Observation, Guarantee, bool) {
		i, ok := pick(r, live(told), func(i int) bool {
			return told[i-1].Kind == Began && i+1 < len(told) && told[i+1].Kind == Event
		})
		if !ok {
			return nil, "", false
		}
		return slices.Delete(told, i, i+1), Resumable, true
	},
	"an event is told twice": func(r *rand.Rand, _ *Facts, told []Observation) ([]Observation, Guarantee, bool) {
		i, ok := pick(r, live(told), always)
		if !ok {
			return nil, "", false
		}
		return slices.Insert(told, i+1, told[i]), Unique, true
	},
	"an event is told again later": func(r *rand.Rand, _ *Facts, told []Observation) ([]Observation, Guarantee, bool) {
		i, ok := pick(r, live(told), func(i int) bool {
			return i+2 < len(told) && told[i+1].Kind == Event && told[i+2].Kind == Event
		})
		if !ok {
			return nil, "", false
		}
		return slices.Insert(told, i+3, told[i]), Unique, true
	},
	"an event is told again after a resume": func(r *rand.Rand, _ *Facts, told []Observation) ([]Observation, Guarantee, bool) {
		i, ok := pick(r, live(told), func(i int) bool {
			return i+2 < len(told) && told[i+1].Kind == Ended && told[i+2].Kind == Began
		})
		if !ok {
			return nil, "", false
		}
		return slices.Insert(told, i+3, told[i]), Unique, true
	},
	"two events are told in the wrong order": func(r *rand.Rand, _ *Facts, told []Observation) ([]Observation, Guarantee, bool) {
		i, ok := pick(r, live(told), func(i int) bool { return i+1 < len(told) && told[i+1].Kind == Event })
		if !ok {
			return nil, "", false
		}
		told[i], told[i+1] = told[i+1], told[i]
		return told, Ordered, true
	},
	"an event that the list held is told": func(r *rand.Rand, f *Facts, told []Observation) ([]Observation, Guarantee, bool) {
		first := f.Changes
		i, ok := pick(r, kinds(told, Began), func(i int) bool {
			return told[i].Revision != 0 && i > 0 && told[i-1].Kind == Listed &&
				len(first) > 0 && first[0].Revision < told[i].Revision
		})
		if !ok {
			return nil, "", false
		}
		w := first[0]
		o := Observation{Kind: Event, At: told[i].At, Type: w.Type, Key: w.Key, Revision: w.Revision, Item: w.Item}
		return slices.Insert(told, i+1, o), Unique, true
	},
	"a content is changed":         change(Truthful, func(o *Observation) { o.Item.Hash ^= 1 }),
	"an event has another key":     change(Truthful, func(o *Observation) { o.Key += "x" }),
	"an object has another number": change(Truthful, func(o *Observation) { o.Item.Revision-- }),
	"an event has another type": change(Truthful, func(o *Observation) {
		o.Type = map[watch.EventType]watch.EventType{
			watch.Added: watch.Modified, watch.Modified: watch.Deleted, watch.Deleted: watch.Added,
		}[o.Type]
	}),
	"an event that did not happen": func(r *rand.Rand, f *Facts, told []Observation) ([]Observation, Guarantee, bool) {
		i, ok := pick(r, live(told), func(i int) bool {
			return told[i-1].Revision+1 < told[i].Revision && told[i-1].Kind == Event
		})
		if !ok {
			return nil, "", false
		}
		o := told[i]
		o.Revision--
		o.Item.Revision--
		if n := slices.IndexFunc(f.Changes, func(w Fact) bool { return w.Revision == o.Revision }); n >= 0 {
			return nil, "", false
		}
		return slices.Insert(told, i, o), Truthful, true
	},
	"a bookmark comes before its event": func(r *rand.Rand, _ *Facts, told []Observation) ([]Observation, Guarantee, bool) {
		i, ok := pick(r, live(told), always)
		if !ok {
			return nil, "", false
		}
		return slices.Insert(told, i, Observation{Kind: Bookmark, At: told[i].At, Revision: told[i].Revision}), Bookmarkable, true
	},
	"a bookmark goes back": func(r *rand.Rand, _ *Facts, told []Observation) ([]Observation, Guarantee, bool) {
		i, ok := pick(r, live(told), always)
		if !ok {
			return nil, "", false
		}
		back := Observation{Kind: Bookmark, At: told[i].At, Revision: told[i].Revision - 1}
		return slices.Insert(told, i+1, back), Bookmarkable, true
	},
	"a list is older than what was shown": func(r *rand.Rand, f *Facts, told []Observation) ([]Observation, Guarantee, bool) {
		i, ok := pick(r, kinds(told, Listed), func(i int) bool { return i > 0 && told[i].Revision > f.Start && !told[i].Aside })
		if !ok {
			return nil, "", false
		}
		told[i].Revision, told[i].Items = f.Start, newTimeline(f).at(f.Start)
		return told[:i+1], Monotonic, true
	},
	"initial events are older than before": func(r *rand.Rand, f *Facts, told []Observation) ([]Observation, Guarantee, bool) {
		i, ok := pick(r, kinds(told, Synced), func(i int) bool {
			return slices.ContainsFunc(told[:i], func(o Observation) bool {
				return o.Revision > f.Start && slices.Contains([]Kind{Listed, Synced, Bookmark}, o.Kind)
			})
		})
		if !ok {
			return nil, "", false
		}
		told[i].Revision = f.Start
		return told[:i+1], Monotonic, true
	},
	"a list lacks an object":        changeItems(func(items map[string]Item, key string) { delete(items, key) }),
	"a list has an object too much": changeItems(func(items map[string]Item, key string) { items[key+"x"] = items[key] }),
	"a list has another content": changeItems(func(items map[string]Item, key string) {
		i := items[key]
		i.Hash++
		items[key] = i
	}),
	"a list has another state's number": changeItems(func(items map[string]Item, key string) {
		i := items[key]
		i.Revision--
		items[key] = i
	}),
	"an initial event is lost": func(r *rand.Rand, _ *Facts, told []Observation) ([]Observation, Guarantee, bool) {
		i, ok := pick(r, kinds(told, Synced), func(i int) bool { return told[i-1].Kind == Event })
		if !ok {
			return nil, "", false
		}
		return slices.Delete(told, i-1, i), Listable, true
	},
	"a bookmark ends no initial events": func(r *rand.Rand, _ *Facts, told []Observation) ([]Observation, Guarantee, bool) {
		i, ok := pick(r, live(told), always)
		if !ok {
			return nil, "", false
		}
		return slices.Insert(told, i+1, Observation{Kind: Synced, At: told[i].At, Revision: told[i].Revision}), Bookmarkable, true
	},
	"one 410 more than allowed": func(_ *rand.Rand, _ *Facts, told []Observation) ([]Observation, Guarantee, bool) {
		return append(told, Observation{Kind: Expired}), Frugal, true
	},
	"the recording is full": func(_ *rand.Rand, _ *Facts, told []Observation) ([]Observation, Guarantee, bool) {
		return append(told, Observation{Kind: Overflow}), Judged, true
	},
	"the facts end too early": func(_ *rand.Rand, f *Facts, told []Observation) ([]Observation, Guarantee, bool) {
		return append(told, Observation{Kind: Bookmark, Revision: f.End + 1}), Judged, true
	},
	"nothing was observed": func(*rand.Rand, *Facts, []Observation) ([]Observation, Guarantee, bool) {
		return nil, Judged, true
	},
}

func TestCheckPassesWhatIsFaultless(t *testing.T) {
	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(seed, 1))
		facts, err := FactsOf(randomTruth(r, r.IntN(200)))
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		told := perfect(r, facts)
		report := Check(facts, told, Bounds{Expired: -1})
		if err := report.Err(); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if n := len(kinds(told, Expired)); report.Expired != n {
			t.Fatalf("seed %d: %d times 410 counted, want %d", seed, report.Expired, n)
		}
	}
}

func TestCheckFindsEveryFault(t *testing.T) {
	for name, mutate := range mutations {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			applied := 0
			for seed := range uint64(200) {
				r := rand.New(rand.NewPCG(seed, 2))
				facts, err := FactsOf(randomTruth(r, 20+r.IntN(100)))
				if err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
				told := perfect(r, facts)
				allowed := len(kinds(told, Expired))
				broken, want, ok := mutate(r, facts, told)
				if !ok {
					continue
				}
				applied++
				report := Check(facts, broken, Bounds{Expired: allowed})
				found := slices.ContainsFunc(report.Violations, func(v Violation) bool { return v.Guarantee == want })
				if !found {
					t.Fatalf("seed %d: no violation of %q, only: %v", seed, want, report.Err())
				}
			}
			if applied < 20 {
				t.Fatalf("the fault was made in %d recordings only: the test shows little", applied)
			}
		})
	}
}

// TestCheckBlamesNothingElse: one small fault in an otherwise faultless recording is one violation, at its place.
func TestCheckBlamesNothingElse(t *testing.T) {
	facts := &Facts{Start: 10, End: 20, Initial: map[string]Item{}, Changes: []Fact{
		{Revision: 11, Type: watch.Added, Key: "a", Item: Item{11, 1}},
		{Revision: 13, Type: watch.Modified, Key: "a", Item: Item{13, 2}},
		{Revision: 17, Type: watch.Modified, Key: "a", Item: Item{17, 3}},
	}}
	event := func(n int) Observation {
		c := facts.Changes[n]
		return Observation{Kind: Event, Type: c.Type, Key: c.Key, Revision: c.Revision, Item: c.Item}
	}
	list, watching := Observation{Kind: Listed, Revision: 10}, Observation{Kind: Began, Revision: 10}
	for _, c := range []struct {
		name  string
		told  []Observation
		want  []Guarantee
		index int
	}{
		{"faultless", []Observation{list, watching, event(0), event(1), event(2)}, nil, 0},
		{"the middle is lost", []Observation{list, watching, event(0), event(2)}, []Guarantee{Reliable}, 3},
		{"the end is lost", []Observation{list, watching, event(0), event(1)}, []Guarantee{Converging}, 4},
		{"late by one", []Observation{list, watching, event(0), event(2), event(1)},
			[]Guarantee{Reliable, Ordered, Converging}, 3},
		{"a bookmark too far, then right",
			[]Observation{list, watching, {Kind: Bookmark, Revision: 12}, event(0), event(1), event(2)},
			[]Guarantee{Bookmarkable, Ordered}, 2},
		{"a watch without a list", []Observation{{Kind: Began, Revision: 10}, event(0), event(1), event(2)},
			[]Guarantee{Judged, Converging}, 0},
		{"resumed elsewhere", []Observation{list, {Kind: Began, Revision: 12}, event(1), event(2)},
			[]Guarantee{Judged, Resumable}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			report := Check(facts, c.told, Bounds{})
			var got []Guarantee
			for _, v := range report.Violations {
				got = append(got, v.Guarantee)
			}
			if !slices.Equal(got, c.want) {
				t.Fatalf("got %v, want %v: %v", got, c.want, report.Err())
			}
			if len(got) > 0 && report.Violations[0].Index != c.index {
				t.Errorf("the first is at observation %d, want %d", report.Violations[0].Index, c.index)
			}
		})
	}
}

func TestLateness(t *testing.T) {
	facts := &Facts{Start: 1, End: 3, Changes: []Fact{
		{Revision: 2, Type: watch.Added, Key: "a", Item: Item{2, 1}, At: epoch},
		{Revision: 3, Type: watch.Deleted, Key: "a", Item: Item{3, 1}, At: epoch},
	}}
	told := []Observation{
		{Kind: Listed, Revision: 1}, {Kind: Began, Revision: 1},
		{Kind: Event, Type: watch.Added, Key: "a", Revision: 2, Item: Item{2, 1}, At: epoch.Add(-time.Second)},
		{Kind: Event, Type: watch.Deleted, Key: "a", Revision: 3, Item: Item{3, 1}, At: epoch.Add(time.Second)},
	}
	report := Check(facts, told, Bounds{})
	if report.Err() != nil || report.Max != time.Second || report.P50 != time.Second {
		t.Errorf("got %v: %v", report, report.Err())
	}
}

// TestFactsAfterA410: the list that follows stands for what was missed.
func TestFactsAfterA410(t *testing.T) {
	recording := func(last map[string]Item) []Observation {
		return []Observation{
			{Kind: Listed, Revision: 10, Items: map[string]Item{"a": {4, 1}, "b": {5, 1}}},
			{Kind: Began, Revision: 10},
			{Kind: Event, Type: watch.Modified, Key: "a", Revision: 11, Item: Item{11, 2}},
			{Kind: Ended, Err: "cut"}, {Kind: Expired}, {Kind: Failed},
			{Kind: Listed, Revision: 20, Items: last, At: epoch}, {Kind: Began, Revision: 20},
			{Kind: Event, Type: watch.Modified, Key: "a", Revision: 21, Item: Item{21, 9}},
		}
	}
	facts, err := FactsOf(recording(map[string]Item{"a": {11, 2}, "b": {18, 3}, "c": {15, 1}}))
	want := []Fact{
		{11, watch.Modified, "a", Item{11, 2}, time.Time{}},
		{15, watch.Added, "c", Item{15, 1}, epoch},
		{18, watch.Modified, "b", Item{18, 3}, epoch},
		{21, watch.Modified, "a", Item{21, 9}, time.Time{}},
	}
	if err != nil || !slices.Equal(facts.Changes, want) || facts.End != 21 {
		t.Errorf("got %+v, %v", facts, err)
	}
	for name, last := range map[string]map[string]Item{
		"one is gone":      {"a": {11, 2}},
		"one goes back":    {"a": {10, 2}, "b": {5, 1}},
		"one is from then": {"a": {11, 2}, "b": {5, 1}, "c": {11, 2}},
		"other content":    {"a": {11, 3}, "b": {5, 1}},
	} {
		if _, err := FactsOf(recording(last)); !errors.Is(err, ErrNoFacts) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestFactsRefusesWhatHasGaps(t *testing.T) {
	breaks := map[string]func(all []Observation) []Observation{
		"ends with a 410":  func(all []Observation) []Observation { return append(all, Observation{Kind: Expired}) },
		"an overflow":      func(all []Observation) []Observation { return append(all, Observation{Kind: Overflow}) },
		"no list":          func(all []Observation) []Observation { return nil },
		"a second list":    func(all []Observation) []Observation { return append(all, all[0]) },
		"an event lost":    func(all []Observation) []Observation { return slices.Delete(all, 2, 3) },
		"an event doubled": func(all []Observation) []Observation { return slices.Insert(all, 3, all[2]) },
		"another type":     func(all []Observation) []Observation { all[2].Type = "MODIFIED"; all[2].Key = "none"; return all },
		"resumed later": func(all []Observation) []Observation {
			return append(all, Observation{Kind: Began, Revision: all[len(all)-1].Revision + 1})
		},
		"the list at the end differs": func(all []Observation) []Observation {
			last := len(all) - 1
			all[last].Items["x"] = Item{Revision: 1}
			return all
		},
	}
	for name, spoil := range breaks {
		t.Run(name, func(t *testing.T) {
			all := spoil(randomTruth(rand.New(rand.NewPCG(7, 7)), 50))
			if _, err := FactsOf(all); !errors.Is(err, ErrNoFacts) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got %v", err)
			}
		})
	}
}
