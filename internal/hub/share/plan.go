package share

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/stream"
)

// These resources, all of v1, are pushed in the order of the variable order, and deleted in reverse order. The coordinator
// accepts some objects only after others, for example a ConfigMap after a Pod that uses it.
const (
	nodes      = "nodes"
	pods       = "pods"
	configMaps = "configmaps"
	secrets    = "secrets"
	events     = "events"

	serviceAccounts = "serviceaccounts"
)

var order = []string{nodes, pods, configMaps, secrets, serviceAccounts, events}

// kinds maps the resources to their kinds.
var kinds = map[string]string{
	nodes: "Node", pods: "Pod", configMaps: "ConfigMap", secrets: "Secret", serviceAccounts: "ServiceAccount", events: "Event",
}

const (
	// maxNodeBytes bounds a push in bytes, unless it is a single object. It is small, because a coordinator keeps a buffer for
	// each connection that grows with the largest push.
	maxNodeBytes = 64 << 10
	// refusedPause is the pause before an unchanged object that was refused is pushed again.
	refusedPause = 30 * time.Second
)

// inOrder compares objects by the order in which they are pushed.
func inOrder(a, b stream.ID) int {
	return cmp.Or(slices.Index(order, a.Resource)-slices.Index(order, b.Resource), a.Compare(b.Key))
}

// want is what the coordinator should have of this node.
type want struct {
	// left says that the node is not in this pool, so that the coordinator should have nothing of it.
	left    bool
	objects map[stream.ID]stream.Object
	// in has the histories of the objects' revisions; a missing entry means the first history.
	in map[stream.ID]edge.History
	// known returns the moment up to which an object that is not in objects is known not to exist; zero means unknown.
	known func(stream.ID) edge.Moment
	// locals has the digests of the objects that show what the node says, on top of the cloud's state at their revision.
	locals map[stream.ID]uint64
	// cut: the cloud is cut off, or was until a moment ago.
	cut bool
}

// have is what the coordinator has of this node.
type have map[stream.ID]mark

const (
	// fromCloud marks content as the cloud's own. foreign marks what the node said in place of the cloud's content, if this hub
	// no longer knows its digest. All other values are digests.
	fromCloud uint64 = iota
	foreign
)

// mark is the state of an object at the coordinator: the cloud's content at a moment, or what the node says on top of that.
type mark struct {
	edge.Moment        // zero means that the coordinator wants the object again
	local       uint64 // fromCloud, foreign or a digest
}

// offer is the state of an object whose push was refused.
type offer struct {
	mark
	at time.Time
}

// forever is later than anything that a cloud says.
var forever = edge.Moment{History: math.MaxInt64}

// batchOf is what all objects of a push have in common.
type batchOf struct {
	resource string
	in       edge.History // that their revisions count in
	local    bool         // they are as the node says
}

// batch is one push.
type batch struct {
	of     batchOf
	events []stream.Event
}

// plan returns the pushes to make, in order.
func plan(w want, h have, refused map[stream.ID]offer, now time.Time) []batch {
	var puts, deletes []stream.ID
	for i := range w.objects {
		at, there := h[i]
		no, was := refused[i]
		wait := was && no.mark == w.mark(i) && now.Sub(no.at) < refusedPause
		if !w.left && !wait && (!there || w.differs(i, at)) {
			puts = append(puts, i)
		}
	}
	for i, at := range h {
		_, wanted := w.objects[i]
		if known := w.known(i); w.left || !wanted && known != (edge.Moment{}) && !known.Before(at.Moment) {
			deletes = append(deletes, i)
		}
	}
	slices.SortFunc(puts, inOrder)
	slices.SortFunc(deletes, func(a, b stream.ID) int { return inOrder(b, a) })
	var all []batch
	size := 0
	add := func(of batchOf, e stream.Event) {
		last := len(all) - 1
		if last < 0 || all[last].of != of || len(all[last].events) == maxEvents || size+len(e.Object.Raw) > maxNodeBytes {
			all = append(all, batch{of: of})
			last, size = len(all)-1, 0
		}
		all[last].events = append(all[last].events, e)
		size += len(e.Object.Raw)
	}
	for _, i := range puts {
		add(batchOf{i.Resource, w.in[i], w.locals[i] != fromCloud}, stream.Event{Type: stream.Modified, Object: w.objects[i]})
	}
	for _, i := range deletes {
		add(batchOf{resource: i.Resource, in: h[i].History}, stream.Event{Type: stream.Deleted, Object: stream.Object{
			Key: i.Key, Revision: max(h[i].Revision, 1),
		}})
	}
	return all
}

// add puts an object into w, unless w has a later state of it.
func (w want) add(i stream.ID, o stream.Object, in edge.History) {
	if _, there := w.objects[i]; !there || w.mark(i).Before(edge.Moment{History: in, Revision: o.Revision}) {
		w.objects[i], w.in[i] = o, in
	}
}

// mark returns the mark of an object that the coordinator should have.
func (w want) mark(i stream.ID) mark {
	return mark{edge.Moment{History: w.in[i], Revision: w.objects[i].Revision}, w.locals[i]}
}

// differs reports whether to push an object; at is its state at the coordinator.
func (w want) differs(i stream.ID, at mark) bool {
	switch now := w.mark(i); {
	case at.Moment != now.Moment:
		return at.Before(now.Moment)
	case at.local == now.local:
		return false
	default:
		// What an earlier run of this hub showed is newer than the cloud's state before the cut. It stays until the node says it
		// again, or the cut is over.
		return now.local != fromCloud || !w.cut
	}
}

// latest returns the latest history among the coordinator's objects.
func (h have) latest() (in edge.History) {
	for _, at := range h {
		in = max(in, at.History)
	}
	return in
}

// note records the result of a push.
func (h have) note(b batch, w want, refused map[stream.ID]offer, reasons map[stream.Key]string, now time.Time) {
	for _, e := range b.events {
		i := stream.ID{Resource: b.of.resource, Key: e.Object.Key}
		_, no := reasons[e.Object.Key]
		switch {
		case no:
			refused[i] = offer{mark{edge.Moment{History: b.of.in, Revision: e.Object.Revision}, w.locals[i]}, now}
		case e.Type == stream.Deleted:
			delete(h, i)
			delete(refused, i)
		default:
			h[i] = w.mark(i)
			delete(refused, i)
		}
	}
}

// forget drops refusals that are older than refusedPause.
func forget(refused map[stream.ID]offer, now time.Time) {
	maps.DeleteFunc(refused, func(_ stream.ID, r offer) bool { return now.Sub(r.at) >= refusedPause })
}
