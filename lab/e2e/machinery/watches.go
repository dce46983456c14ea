package machinery

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
)

// watchSelectors is watch.go's first: three watches by labels, as objects come and go.
func watchSelectors(e *Env, k kind) {
	open := map[string]*Watch{}
	for _, which := range []string{"A", "B", "A,B"} {
		query := "labelSelector=" + url.QueryEscape("which in ("+which+",end)")
		a := e.Get("list "+which, k.path(e), query)
		open[which] = e.Watch("watch "+which, k.path(e), query+"&resourceVersion="+versionOf(a.JSON))
		defer open[which].Close()
	}
	k.create(e, "one", 1, "which", "A")
	k.change(e, "one", 2)
	k.create(e, "two", 3, "which", "B")
	k.label(e, "one", "which", "B")
	k.label(e, "two", "which", "")
	k.change(e, "two", 4)
	k.label(e, "two", "which", "A")
	k.remove(e, "one")
	k.create(e, "end", 5, "which", "end")
	for which, want := range map[string][]string{
		"A":   {"ADDED one", "MODIFIED one", "DELETED one", "ADDED two", "ADDED end"},
		"B":   {"ADDED two", "ADDED one", "DELETED two", "DELETED one", "ADDED end"},
		"A,B": {"ADDED one", "MODIFIED one", "ADDED two", "MODIFIED one", "DELETED two", "ADDED two", "DELETED one", "ADDED end"},
	} {
		events := open[which].Take(added("end"))
		e.Expect("the events of "+which, slices.Equal(summary(events), want), summary(events))
	}
}

// watchResume does the second and the third check of Kubernetes' watch.go: a watch from a version that was seen, and a watch
// from the last version that a watch delivered.
func watchResume(e *Env, k kind) {
	k.fresh(e, values(mine))
	list := e.Get("list", k.path(e), mine)
	began := e.Watch("from the list", k.path(e), mine+"&resourceVersion="+versionOf(list.JSON))
	k.create(e, "one", 1)
	second := k.change(e, "one", 2)
	events := began.Take(first("MODIFIED"))
	began.Close()
	last := ""
	if len(events) > 0 {
		o, _ := events[len(events)-1]["object"].(map[string]any)
		last = versionOf(o)
	}
	e.Expect("the watch has told the change", last == versionOf(second), last)
	k.change(e, "one", 3)
	k.remove(e, "one")
	k.create(e, "end", 4)
	for _, w := range []struct{ step, version string }{
		{"from the last that was told", last},
		{"from the list again", versionOf(list.JSON)},
		{"from a change", versionOf(second)},
	} {
		resumed := e.Watch(w.step, k.path(e), mine+"&resourceVersion="+w.version)
		resumed.Take(added("end"))
		resumed.Close()
	}
	byName := "fieldSelector=" + url.QueryEscape("metadata.name=one")
	w := e.Watch("of one object, from a change", k.path(e), byName+"&timeoutSeconds=2&resourceVersion="+versionOf(second))
	w.Take(first("DELETED"))
	w.Close()
}

// watchOld begins watches at versions that nobody has asked the examined side about before.
func watchOld(e *Env, k kind) {
	k.fresh(e, values(mine))
	k.create(e, "one", 1, "old", "yes")
	second := k.change(e, "one", 2)
	k.change(e, "one", 3)
	k.remove(e, "one")
	end := k.create(e, "end", 4, "old", "yes")
	k.fresh(e, values(mine), end)
	k.fresh(e, values("labelSelector=old%3Dyes"), end)
	w := e.Watch("from a change", k.path(e), "labelSelector=old%3Dyes&resourceVersion="+versionOf(second))
	events := w.Take(added("end"))
	w.Close()
	want := []string{"MODIFIED one", "DELETED one", "ADDED end"}
	e.Expect("everything since is told", slices.Equal(summary(events), want), summary(events))
	w = e.Watch("from the beginning of time", k.path(e), mine+"&resourceVersion=1&timeoutSeconds=2")
	w.Take(never)
	w.Close()
	w = e.Watch("from no number", k.path(e), mine+"&resourceVersion=new&timeoutSeconds=2")
	w.Take(never)
	w.Close()
}

// watchOrder is watch.go's last: watches that begin at different times deliver the same in the same order.
func watchOrder(e *Env, k kind) {
	const writes = 30
	k.fresh(e, values(mine))
	list := e.Get("list", k.path(e), mine)
	version := versionOf(list.JSON)
	var open []*Watch
	var began []string
	there, objects := map[int]string{}, map[string]Object{}
	for i := range writes {
		if i%6 == 0 {
			k.fresh(e, values(mine), slices.Collect(maps.Values(objects))...)
			w := e.Watch(fmt.Sprintf("watch that begins before write %d", i), k.path(e), mine+"&resourceVersion="+version)
			defer w.Close()
			open, began = append(open, w), append(began, version)
		}
		n := i * i % 5
		switch name := there[n]; {
		case name == "":
			// Never the same name again: the controller of Endpoints deletes them late.
			there[n] = fmt.Sprintf("o-%d", i)
			objects[there[n]] = k.createdQuietly(e, there[n], i)
			version = versionOf(objects[there[n]])
		case i%4 == 3:
			k.remove(e, name)
			delete(objects, name)
			there[n] = ""
		default:
			objects[name] = k.change(e, name, i)
			version = versionOf(objects[name])
		}
	}
	k.create(e, "end", 1)
	var longest []string
	for i, w := range open {
		events := summary(w.Take(added("end")))
		if i == 0 {
			longest = events
			e.Expect("the first watch tells every write", len(events) == writes+1, events)
			continue
		}
		tail := longest[max(0, len(longest)-len(events)):]
		e.Expect(fmt.Sprintf("watch %d tells the end of the first one's", i), slices.Equal(events, tail), began[i], events)
	}
}

// watchList is watchlist.go: present objects come as events, before later changes.
func watchList(e *Env, k kind) {
	all := some(e, k, 4)
	k.fresh(e, values(mine), all...)
	const initial = mine + "&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan"
	for _, o := range []struct{ step, query string }{
		{"the newest", initial},
		{"any", initial + "&resourceVersion=0"},
		{"at least the newest", initial + "&resourceVersion=" + versionOf(all[3])},
	} {
		w := e.Watch(o.step, k.path(e), o.query)
		events := w.Take(first("BOOKMARK"))
		end := Object{}
		if len(events) > 0 {
			end = events[len(events)-1]
		}
		e.Expect(o.step+": the bookmark ends the initial events",
			text(end, "object", "metadata", "annotations", "k8s.io/initial-events-end") == "true")
		w.Close()
	}
	w := e.Watch("and then what happens", k.path(e), initial)
	defer w.Close()
	w.Take(first("BOOKMARK"))
	k.change(e, "a-01", 9)
	k.remove(e, "a-00")
	w.Take(first("DELETED"))
	e.watches(k.path(e), mine+"&fieldSelector=metadata.name%3Da-02", []watchOf{
		{"without bookmarks", "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&timeoutSeconds=1"},
		{"none", "sendInitialEvents=false&resourceVersionMatch=NotOlderThan&timeoutSeconds=1"},
		{"none, of any version", "sendInitialEvents=false&resourceVersionMatch=NotOlderThan&resourceVersion=0&timeoutSeconds=1"},
		{"without a match", "sendInitialEvents=true&timeoutSeconds=1"},
		{"with another match", "sendInitialEvents=true&resourceVersionMatch=Exact&resourceVersion=1"},
		{"a match alone", "resourceVersionMatch=NotOlderThan&timeoutSeconds=1"},
		{"of a version that is no number", "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=new"},
	})
}

// watchEnds checks how watches end, and what they begin with if no version is given.
func watchEnds(e *Env, k kind) {
	one := k.create(e, "one", 1)
	k.fresh(e, values(mine), one)
	e.watches(k.path(e), mine, []watchOf{
		{"of the newest", "timeoutSeconds=1"},
		{"of any version", "timeoutSeconds=1&resourceVersion=0"},
		{"with bookmarks", "timeoutSeconds=1&allowWatchBookmarks=true"},
		{"of a limit", "timeoutSeconds=1&limit=1"},
		{"of a time that is no number", "timeoutSeconds=soon"},
	})
	list := e.Get("list", k.path(e), mine)
	w := e.Watch("with a last bookmark", k.path(e),
		mine+"&timeoutSeconds=4&allowWatchBookmarks=true&resourceVersion="+versionOf(list.JSON))
	bookmarks := 0
	w.Take(func(event Object) bool {
		if isBookmark(event) {
			bookmarks++
		}
		return false
	})
	w.Close()
	e.Expect("a bookmark came before the end", bookmarks > 0, bookmarks)
}

// watchOf is a watch with an additional query.
type watchOf struct{ step, query string }

// watches reads several watches to their ends at the same time.
func (e *Env) watches(path, query string, all []watchOf) {
	var open []*Watch
	for _, o := range all {
		w := e.Watch(o.step, path, query+"&"+o.query)
		defer w.Close()
		open = append(open, w)
	}
	for _, w := range open {
		w.Take(never)
	}
}
