package apiserver

import (
	"context"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/client-go/tools/cache"
)

const (
	// stallTimeout is how long a watch's reader may take nothing while an event waits for it. Then the watch ends. Its client
	// resumes at the revision that it has, or lists again if etcd's history no longer has that revision.
	stallTimeout = 5 * time.Second
	// listTimeout is how long a watch may take to send what there was when it began: as long as a list may take.
	listTimeout = time.Minute
)

// uncached makes kube-apiserver read its objects from etcd, which is already in this process's memory.
//
// The alternative was the watch cache. It holds each object decoded, and every event of the last 75 s, up to 102,400 per
// resource whatever their size. For 8 KB Nodes that are patched at full speed that is a gigabyte, and neither bound can be set.
// Without the watch cache each watch decodes its own events, and two things are missing, which this file adds. One is
// bookmarks. The other is an end to the watch of a client that has stopped reading, or reads too slowly: etcd's client would
// queue events for it without limit.
type uncached struct {
	generic.RESTOptionsGetter
	shown  func(context.Context) func(runtime.Object)
	queues *queues
}

func (u uncached) GetRESTOptions(r schema.GroupResource, example runtime.Object) (generic.RESTOptions, error) {
	options, err := u.RESTOptionsGetter.GetRESTOptions(r, example)
	options.Decorator = func(
		config *storagebackend.ConfigForResource, resourcePrefix string, key func(runtime.Object) (string, error),
		newObject, newList func() runtime.Object, attributes storage.AttrFunc, trigger storage.IndexerFuncs,
		indexers *cache.Indexers,
	) (storage.Interface, factory.DestroyFunc, error) {
		plain, destroy, err := generic.UndecoratedStorage(
			config, resourcePrefix, key, newObject, newList, attributes, trigger, indexers)
		return shownStorage{plain, u.shown, u.queues}, destroy, err
	}
	return options, err
}

// shownStorage reads what the caller of a request may see. All that the API server answers is read here, whatever form and
// encoding the answer then gets.
type shownStorage struct {
	storage.Interface
	shown  func(context.Context) func(runtime.Object)
	queues *queues
}

// Get implements storage.Interface.
func (s shownStorage) Get(ctx context.Context, key string, o storage.GetOptions, into runtime.Object) error {
	err := s.Interface.Get(ctx, key, o, into)
	if show := s.shown(ctx); err == nil && show != nil {
		show(into)
	}
	return err
}

// GetList implements storage.Interface.
func (s shownStorage) GetList(ctx context.Context, key string, o storage.ListOptions, into runtime.Object) error {
	err := s.Interface.GetList(ctx, key, o, into)
	show := s.shown(ctx)
	if err != nil || show == nil {
		return err
	}
	return meta.EachListItem(into, func(object runtime.Object) error {
		show(object)
		return nil
	})
}

// Watch implements storage.Interface.
func (s shownStorage) Watch(ctx context.Context, key string, o storage.ListOptions) (watch.Interface, error) {
	o.ProgressNotify = o.Predicate.AllowWatchBookmarks
	w := &unstalled{out: make(chan watch.Event), stopped: make(chan struct{}), show: s.shown(ctx)}
	if name, counts := caller(ctx); counts {
		w.caller, w.queues, w.revision = name, s.queues, s.Versioner().ObjectResourceVersion
		if err := w.list(ctx, s, o); err != nil {
			return nil, err
		}
	}
	inner, err := s.Interface.Watch(ctx, key, o)
	if err != nil {
		w.listed()
		return nil, err
	}
	w.start(inner)
	return w, nil
}

// unstalled forwards a watch as long as its reader takes events. What waits for the reader is counted as its caller's.
//
// A watch that begins with a list sends that only as fast as its reader takes it, and etcd waits. Changes come anyway: they are
// taken from etcd's client at once, so that they wait where they are counted. Nobody counts for this process itself.
type unstalled struct {
	inner   watch.Interface
	show    func(runtime.Object) // nil means that the reader sees all
	out     chan watch.Event
	stopped chan struct{}
	stop    sync.Once

	// caller and queues are whose watch it is, and who counts for it; queues is nil if nobody does. revision tells an object's.
	caller   string
	queues   *queues
	revision func(runtime.Object) (uint64, error)
	// lists says that the list is not over: neither a bookmark nor an event later than began has come. Once run runs, only it
	// uses this and what follows.
	lists   bool
	began   uint64
	waiting []waits
	bytes   int64
}

// waits is an event that waits for its reader.
type waits struct {
	event watch.Event
	bytes int64
}

// list begins the list of a watch that has one.
func (w *unstalled) list(ctx context.Context, s shownStorage, o storage.ListOptions) error {
	fromNow := o.ResourceVersion == "" || o.ResourceVersion == "0"
	if o.SendInitialEvents != nil {
		fromNow = *o.SendInitialEvents
	}
	if !fromNow {
		return nil
	}
	if err := w.queues.list(w.caller); err != nil {
		return err
	}
	w.lists = true
	began, err := s.GetCurrentResourceVersion(ctx)
	if err != nil {
		w.listed()
	}
	w.began = began
	return err
}

// listed ends the list, if there is one.
func (w *unstalled) listed() {
	if w.lists {
		w.lists = false
		w.queues.listed(w.caller)
	}
}

func (w *unstalled) start(inner watch.Interface) {
	w.inner = inner
	go w.run()
}

// run ends when inner ends, by its context or by Stop, and its reader has taken what waits; or by a limit.
func (w *unstalled) run() {
	defer close(w.out)
	defer w.leave()
	defer w.inner.Stop()
	slow := time.NewTimer(listTimeout)
	defer slow.Stop()
	var late *time.Timer // runs while something waits
	for in := w.inner.ResultChan(); in != nil || len(w.waiting) > 0; {
		take, give, next, stalls := in, w.out, watch.Event{}, (<-chan time.Time)(nil)
		if len(w.waiting) == 0 {
			give, late = nil, nil
		} else {
			if late == nil {
				late = time.NewTimer(stallTimeout)
			}
			next, stalls = w.waiting[0].event, late.C
			if w.lists || w.queues == nil {
				take = nil
			}
		}
		select {
		case event, open := <-take:
			if !open {
				in = nil
			} else if !w.enter(w.shown(asExpired(event))) {
				limited.WithLabelValues(string(byBytes)).Inc()
				return
			}
		case give <- next:
			w.taken()
			late = nil
		case <-stalls:
			limited.WithLabelValues(string(byStall)).Inc()
			return
		case <-slow.C:
			if w.lists && len(w.waiting) > 0 {
				limited.WithLabelValues(string(byTime)).Inc()
				return
			}
			w.listed()
		case <-w.stopped:
			return
		}
	}
}

// shown leaves of an event what its reader may see.
func (w *unstalled) shown(event watch.Event) watch.Event {
	if w.show != nil {
		w.show(event.Object)
	}
	return event
}

// enter gives the reader an event, or lets it wait. It returns false if too much waits.
func (w *unstalled) enter(event watch.Event) bool {
	if w.lists {
		at, err := w.revision(event.Object)
		if event.Type == watch.Bookmark || err == nil && at > w.began {
			w.listed()
		}
	}
	if len(w.waiting) == 0 {
		select {
		case w.out <- event:
			return true
		default:
		}
	}
	var bytes int64
	if w.queues != nil {
		bytes = w.queues.sizeOf(event.Object)
		if !w.queues.add(w.caller, bytes) {
			return false
		}
	}
	w.bytes += bytes
	w.waiting = append(w.waiting, waits{event, bytes})
	return true
}

// taken notes that the reader has taken what has waited longest.
func (w *unstalled) taken() {
	bytes := w.waiting[0].bytes
	w.waiting[0] = waits{}
	w.waiting = w.waiting[1:]
	w.giveBack(bytes)
}

func (w *unstalled) giveBack(bytes int64) {
	w.bytes -= bytes
	if w.queues != nil && bytes > 0 {
		w.queues.add(w.caller, -bytes)
	}
}

// leave gives back all that it holds.
func (w *unstalled) leave() {
	w.giveBack(w.bytes)
	w.listed()
}

// lostState is part of the error that ends a watch when etcd no longer has an object's state before a change. That happens if
// the change has the oldest revision left, or if etcd compacts that state while it sends the change.
const lostState = "etcd event received with PrevKv=nil"

// asExpired returns event, but turns an error with lostState from a 500 into a 410, because only a 410 makes clients relist. In
// the cloud, where etcd's history lasts minutes, nobody sees this error; here a storm of changes shortens the history to
// seconds.
func asExpired(event watch.Event) watch.Event {
	status, ok := event.Object.(*metav1.Status)
	if event.Type != watch.Error || !ok || !strings.Contains(status.Message, lostState) {
		return event
	}
	expired := apierrors.NewResourceExpired("The resourceVersion for the provided watch is too old.") // as for any other
	return watch.Event{Type: watch.Error, Object: &expired.ErrStatus}
}

// Stop implements watch.Interface.
func (w *unstalled) Stop() {
	w.stop.Do(func() {
		close(w.stopped)
		w.inner.Stop()
	})
}

// ResultChan implements watch.Interface.
func (w *unstalled) ResultChan() <-chan watch.Event { return w.out }
