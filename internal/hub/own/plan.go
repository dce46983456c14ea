package own

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/stream"
)

// Resources of what is pushed; all are of v1. They are pushed in this order, and given up in the opposite one: what others
// are taken for comes first.
const (
	nodes      = "nodes"
	pods       = "pods"
	configMaps = "configmaps"
	secrets    = "secrets"
	events     = "events"
)

var order = []string{nodes, pods, configMaps, secrets, events}

// kinds are those of the resources.
var kinds = map[string]string{nodes: "Node", pods: "Pod", configMaps: "ConfigMap", secrets: "Secret", events: "Event"}

const (
	// maxEvents and maxBytes bound a push, which has at least one event.
	maxEvents = 256
	maxBytes  = 1 << 20
	// refusedPause is when an object is pushed again that was refused and has not changed.
	refusedPause = 30 * time.Second
)

// id names an object.
type id struct {
	resource string
	stream.Key
}

func (a id) compare(b id) int {
	return cmp.Or(slices.Index(order, a.resource)-slices.Index(order, b.resource), a.Compare(b.Key))
}

// want is what the coordinator is to have of this node.
type want struct {
	// left: the node is not of this pool, and the coordinator is to have nothing of it.
	left    bool
	objects map[id]stream.Object
	// known is up to which revision it is known of an object that is not among them that there is none; 0: it is not.
	known func(id) edge.Revision
}

// have is what the coordinator has of this node, and at which revisions; 0: it wants to be told again.
type have map[id]edge.Revision

// refusal is that of an object.
type refusal struct {
	revision edge.Revision
	at       time.Time
}

// batch is one push.
type batch struct {
	resource string
	events   []stream.Event
}

// plan is what is to be pushed, in this order.
func plan(w want, h have, refused map[id]refusal, now time.Time) []batch {
	var puts, deletes []id
	for i, o := range w.objects {
		at, there := h[i]
		no, was := refused[i]
		wait := was && no.revision == o.Revision && now.Sub(no.at) < refusedPause
		if !w.left && !wait && (!there || at < o.Revision) {
			puts = append(puts, i)
		}
	}
	for i, at := range h {
		_, wanted := w.objects[i]
		if w.left || !wanted && w.known(i) != 0 && w.known(i) >= at {
			deletes = append(deletes, i)
		}
	}
	slices.SortFunc(puts, id.compare)
	slices.SortFunc(deletes, func(a, b id) int { return b.compare(a) })
	var all []batch
	size := 0
	add := func(resource string, e stream.Event) {
		last := len(all) - 1
		if last < 0 || all[last].resource != resource || len(all[last].events) == maxEvents ||
			size+len(e.Object.Raw) > maxBytes {
			all = append(all, batch{resource: resource})
			last, size = len(all)-1, 0
		}
		all[last].events = append(all[last].events, e)
		size += len(e.Object.Raw)
	}
	for _, i := range puts {
		add(i.resource, stream.Event{Type: stream.Modified, Object: w.objects[i]})
	}
	for _, i := range deletes {
		add(i.resource, stream.Event{Type: stream.Deleted, Object: stream.Object{
			Key: i.Key, Revision: max(h[i], 1),
		}})
	}
	return all
}

// note takes in what a push has changed.
func (h have) note(b batch, refused map[id]refusal, reasons map[stream.Key]string, now time.Time) {
	for _, e := range b.events {
		i := id{b.resource, e.Object.Key}
		_, no := reasons[e.Object.Key]
		switch {
		case no:
			refused[i] = refusal{e.Object.Revision, now}
		case e.Type == stream.Deleted:
			delete(h, i)
			delete(refused, i)
		default:
			h[i] = e.Object.Revision
			delete(refused, i)
		}
	}
}

// forget keeps what is remembered of refusals from growing.
func forget(refused map[id]refusal, now time.Time) {
	maps.DeleteFunc(refused, func(_ id, r refusal) bool { return now.Sub(r.at) >= refusedPause })
}

// nameOf is the name in a field selector that stands for a single object.
func nameOf(selector string) (name string, single bool) {
	name, single = strings.CutPrefix(selector, "metadata.name=")
	return name, single && name != "" && !strings.ContainsAny(name, "=,!\\")
}
