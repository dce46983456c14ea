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

// stallTimeout is how long a watch's reader may take nothing while an event waits for it. Then the watch ends. Its client
// resumes at the revision that it has, or lists again if etcd's history no longer has that revision.
const stallTimeout = 5 * time.Second

// uncached makes kube-apiserver read its objects from etcd, which is already in this process's memory.
//
// The alternative was the watch cache. It holds each object decoded, and every event of the last 75 s, up to 102,400 per
// resource whatever their size. For 8 KB Nodes that are patched at full speed that is a gigabyte, and neither bound can be set.
// Without the watch cache each watch decodes its own events, and two things are missing, which this file adds. One is
// bookmarks. The other is an end to the watch of a client that has stopped reading: etcd's client would queue events for it
// without limit.
type uncached struct {
	generic.RESTOptionsGetter
	shown func(context.Context) func(runtime.Object)
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
		return shownStorage{plain, u.shown}, destroy, err
	}
	return options, err
}

// shownStorage reads what the caller of a request may see. All that the API server answers is read here, whatever form and
// encoding the answer then gets.
type shownStorage struct {
	storage.Interface
	shown func(context.Context) func(runtime.Object)
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
	inner, err := s.Interface.Watch(ctx, key, o)
	if err != nil {
		return nil, err
	}
	return newUnstalled(inner, s.shown(ctx)), nil
}

// unstalled forwards a watch as long as its reader takes events.
type unstalled struct {
	inner   watch.Interface
	show    func(runtime.Object) // nil means that the reader sees all
	out     chan watch.Event
	stopped chan struct{}
	stop    sync.Once
}

func newUnstalled(inner watch.Interface, show func(runtime.Object)) *unstalled {
	w := &unstalled{inner: inner, show: show, out: make(chan watch.Event), stopped: make(chan struct{})}
	go w.run()
	return w
}

// run ends when inner ends, by its context or by Stop.
func (w *unstalled) run() {
	defer close(w.out)
	defer w.inner.Stop()
	for event := range w.inner.ResultChan() {
		if event = asExpired(event); w.show != nil {
			w.show(event.Object)
		}
		select {
		case w.out <- event:
			continue
		default:
		}
		if !w.await(event) {
			return
		}
	}
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

func (w *unstalled) await(event watch.Event) bool {
	timeout := time.NewTimer(stallTimeout)
	defer timeout.Stop()
	select {
	case w.out <- event:
		return true
	case <-timeout.C:
	case <-w.stopped:
	}
	return false
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
