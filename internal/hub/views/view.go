package views

import (
	"maps"
	"slices"
	"sync"

	"yurtcoordinator/internal/live"
	"yurtcoordinator/internal/replica"
	"yurtcoordinator/internal/stream"
)

// EndpointsView is a replica.View of EndpointSlices and Endpoints as the pool knows them. Safe for concurrent use.
type EndpointsView struct {
	mu  sync.Mutex // orders changes
	now *live.Value[*look]
}

// NewEndpointsView returns a view that shows all objects as they are.
func NewEndpointsView() *EndpointsView { return &EndpointsView{now: live.NewValue(&look{})} }

// Look implements replica.View.
func (v *EndpointsView) Look() (replica.Look, <-chan struct{}) { return v.now.Watch() }

// Set makes the view show objects as the pool knows them; nil means as the cloud has them. A Pod that has not changed since the
// last call must have the same pointer, because the view compares pointers.
func (v *EndpointsView) Set(k *Known) {
	v.mu.Lock()
	defer v.mu.Unlock()
	old := v.now.Get()
	switch {
	case k == nil && old.known == nil:
	case k == nil:
		v.now.Set(&look{})
	case old.known == nil:
		v.now.Set(newLook(k))
	default:
		if next := old.next(k); next != nil {
			v.now.Set(next)
		}
	}
}

// Changed returns how many of the objects shown last differ from the cloud's.
func (v *EndpointsView) Changed() (n int) {
	l := v.now.Get()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, each := range l.shown {
		if each.as != nil {
			n++
		}
	}
	return n
}

// look is a replica.Look that shows objects by one Known; without a Known it shows them unchanged. It caches its results.
type look struct {
	known *Known
	in    *index

	mu    sync.Mutex
	shown map[id]shown
}

// id names an EndpointSlice or Endpoints object.
type id struct {
	slice bool
	stream.Key
}

// shown is the cached result for an object.
type shown struct {
	of *byte  // the first of the object's own bytes: objects with the same pointer are the same
	as []byte // nil means unchanged
}

// index maps each known Pod to the objects that have it as an endpoint, or once had. A look adds an object's Pods to the index
// before it caches the result.
type index struct {
	mu      sync.Mutex
	objects map[stream.Key][]id // by Pod
}

func newLook(k *Known) *look {
	return &look{known: k, in: &index{objects: map[stream.Key][]id{}}, shown: map[id]shown{}}
}

// next returns the look for a new Known; nil means that it would show the same.
func (l *look) next(k *Known) *look {
	was := l.known
	if was.Node != k.Node || was.OwnAsOf != k.OwnAsOf || !maps.Equal(was.Silent, k.Silent) ||
		!maps.Equal(was.Unready, k.Unready) {
		return newLook(k)
	}
	var changed []stream.Key
	for key, pod := range k.Pods {
		switch old := was.Pods[key]; {
		case old == nil:
			return newLook(k) // nobody knows which objects it is in
		case old != pod:
			changed = append(changed, key)
		}
	}
	if len(k.Pods) < len(was.Pods) { // all of the new ones were there before
		for key := range was.Pods {
			if k.Pods[key] == nil {
				changed = append(changed, key)
			}
		}
	}
	if len(changed) == 0 {
		return nil
	}
	n := &look{known: k, in: l.in}
	l.mu.Lock()
	n.shown = maps.Clone(l.shown)
	l.mu.Unlock()
	l.in.mu.Lock()
	defer l.in.mu.Unlock()
	for _, key := range changed {
		for _, each := range l.in.objects[key] {
			delete(n.shown, each)
		}
	}
	return n
}

// Show implements replica.Look.
func (l *look) Show(t stream.Type, o stream.Object) (raw []byte, visible bool) {
	if l.known == nil || len(o.Raw) == 0 {
		return o.Raw, true
	}
	this := id{t.Kind == "EndpointSlice", o.Key}
	l.mu.Lock()
	before, ok := l.shown[this]
	l.mu.Unlock()
	if ok && before.of == &o.Raw[0] {
		if before.as == nil {
			return o.Raw, true
		}
		return before.as, true
	}
	raw, pods := l.known.show(t, o)
	l.in.add(pods, this)
	now := shown{of: &o.Raw[0]}
	if &raw[0] != &o.Raw[0] {
		now.as = raw
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.shown[this] = now
	return raw, true
}

// add records the Pods of an object.
func (i *index) add(pods []*KnownPod, object id) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, pod := range pods {
		if all := i.objects[pod.Key]; !slices.Contains(all, object) {
			i.objects[pod.Key] = append(all, object)
		}
	}
}
