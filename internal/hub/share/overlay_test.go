package share

import (
	"errors"
	"sync"
	"time"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/hub/link"
	"yurtcoordinator/internal/stream"
)

// cut cuts the cloud off, heal brings it back.
func (w *nodeWorld) cut() {
	w.cloud.set(func() { w.cloud.fails = errors.New("no route") })
	w.cloudLink.Set(link.Down)
	w.overlay.set(func() { w.overlay.cut = true })
}

func (w *nodeWorld) heal() {
	w.cloud.set(func() { w.cloud.fails = nil })
	w.cloudLink.Set(link.Up)
	w.overlay.set(func() { w.overlay.cut = false })
}

// fakeOverlay is what a test has the node say itself.
type fakeOverlay struct {
	mu      sync.Mutex
	cut     bool
	objects map[stream.ID]stream.Object
	said    map[stream.ID]uint64
	in      edge.History // of the objects
	adopted map[stream.Key]edge.Revision
	dropped []stream.Key
}

func newFakeOverlay() *fakeOverlay {
	return &fakeOverlay{
		objects: map[stream.ID]stream.Object{}, said: map[stream.ID]uint64{}, adopted: map[stream.Key]edge.Revision{},
	}
}

func (o *fakeOverlay) set(change func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	change()
}

func (o *fakeOverlay) Cut(time.Time) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.cut
}

func (o *fakeOverlay) AddTo(
	objects map[stream.ID]stream.Object, in map[stream.ID]edge.History, said map[stream.ID]uint64, _ bool,
) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for i, each := range o.objects {
		if objects[i] = each; i.Resource == events {
			in[i] = o.in
		}
		if o.said[i] != 0 {
			said[i] = o.said[i]
		}
	}
}

func (o *fakeOverlay) HasEvent(k stream.Key) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	_, there := o.objects[stream.ID{Resource: events, Key: k}]
	return there || o.adopted[k] != 0
}

func (o *fakeOverlay) DropEvent(k stream.Key) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.dropped = append(o.dropped, k)
	delete(o.objects, stream.ID{Resource: events, Key: k})
}

func (o *fakeOverlay) AdoptEvent(k stream.Key, as edge.Moment) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.adopted[k] = as.Revision
}

// says has the node say something of an object, with a digest; 0: the cloud has heard it. An object without Raw is said no more.
func (w *nodeWorld) says(resource string, o stream.Object, digest uint64) {
	w.overlay.set(func() {
		i := stream.ID{Resource: resource, Key: o.Key}
		w.overlay.objects[i], w.overlay.said[i] = o, digest
		if o.Raw == nil {
			delete(w.overlay.objects, i)
		}
	})
	w.changed()
}
