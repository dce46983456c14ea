package apiserver

import (
	"context"
	"errors"
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
	"k8s.io/apiserver/pkg/util/flowcontrol"
	"k8s.io/client-go/tools/cache"
)

const (
	// stallTimeout is how long a watch's reader may take nothing while an event waits for it. After that the watch ends. Its
	// client resumes at the revision that it has, or lists again if etcd's history no longer has that revision.
	stallTimeout = 5 * time.Second
	// listTimeout is how long a watch may take to send what there was when it began: as long as a list may take.
	listTimeout = time.Minute
	// listPage is how many objects of that list it reads from etcd at once.
	listPage = 100
)

// uncached makes kube-apiserver read its objects from etcd, which is already in this process's memory, and not from a watch
// cache.
//
// A watch cache holds each object decoded, and every event of the last 75 s, up to 102,400 per resource whatever their size. For
// 8 KB Nodes that are patched at full speed that is a gigabyte, and neither bound can be set. Without the watch cache, each watch
// decodes its own events, and kube-apiserver lacks two things, which this file adds: bookmarks, and an end to a watch whose
// client reads too slowly. etcd's client would queue events for such a watch without limit.
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
		return shownStorage{plain, u.shown, u.queues, newObject, newList}, destroy, err
	}
	return options, err
}

// shownStorage reads only what a request's caller may see. The API server reads all that it answers by a shownStorage.
type shownStorage struct {
	storage.Interface
	shown              func(context.Context) func(runtime.Object)
	queues             *queues
	newObject, newList func() runtime.Object
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
//
// A watch that begins with a list sends that list page by page, as fast as its reader takes it. Only after that does etcd's watch
// begin, at the list's revision. If it began earlier, changes would wait in etcd's client, where nobody counts them.
func (s shownStorage) Watch(ctx context.Context, key string, o storage.ListOptions) (watch.Interface, error) {
	o.ProgressNotify = o.Predicate.AllowWatchBookmarks
	w := &unstalled{out: make(chan watch.Event), stopped: make(chan struct{}), show: s.shown(ctx)}
	name, counts := caller(ctx)
	if counts {
		w.caller, w.queues = name, s.queues
	}
	if counts && s.listsFirst(o) {
		if err := s.queues.list(name); err != nil {
			return nil, err
		}
		first := &listing{from: s, key: key, o: o}
		if err := first.read(ctx); err != nil {
			s.queues.listed(name)
			return nil, err
		}
		flowcontrol.WatchInitialized(ctx)
		go w.run(ctx, first, nil)
		return w, nil
	}
	inner, err := s.Interface.Watch(ctx, key, o)
	if err != nil {
		return nil, err
	}
	go w.run(ctx, nil, inner)
	return w, nil
}

// listsFirst says whether a watch sends what there is before it sends changes.
func (s shownStorage) listsFirst(o storage.ListOptions) bool {
	if o.SendInitialEvents != nil {
		return *o.SendInitialEvents
	}
	at, err := s.Versioner().ParseResourceVersion(o.ResourceVersion)
	return err == nil && at == 0
}

// listing is the list with which a watch begins.
type listing struct {
	from shownStorage
	key  string
	o    storage.ListOptions // of the watch

	page     []runtime.Object
	revision string // of all pages
	next     string // the next page's token; "" after the last
}

// read reads the next page.
func (l *listing) read(ctx context.Context) error {
	o := storage.ListOptions{Predicate: l.o.Predicate, Recursive: l.o.Recursive}
	o.Predicate.Limit, o.Predicate.Continue = listPage, l.next
	if at, err := l.from.Versioner().ParseResourceVersion(l.o.ResourceVersion); l.next == "" && (at > 0 || err != nil) {
		o.ResourceVersion, o.ResourceVersionMatch = l.o.ResourceVersion, metav1.ResourceVersionMatchNotOlderThan
	}
	list := l.from.newList()
	if err := l.from.GetList(ctx, l.key, o, list); err != nil {
		return err
	}
	of, err := meta.ListAccessor(list)
	if err != nil {
		return err
	}
	l.revision, l.next = of.GetResourceVersion(), of.GetContinue()
	l.page, err = meta.ExtractList(list)
	return err
}

// end returns the bookmark that ends the list of a watch that asked for one, or else nil.
func (l *listing) end() (runtime.Object, error) {
	if l.o.SendInitialEvents == nil || !l.o.Predicate.AllowWatchBookmarks {
		return nil, nil
	}
	revision, err := l.from.Versioner().ParseResourceVersion(l.revision)
	if err != nil {
		return nil, err
	}
	bookmark := l.from.newObject()
	return bookmark, errors.Join(
		l.from.Versioner().UpdateObject(bookmark, revision), storage.AnnotateInitialEventsEndBookmark(bookmark))
}

// watch begins etcd's watch where the list ends.
func (l *listing) watch(ctx context.Context) (watch.Interface, error) {
	o := l.o
	o.ResourceVersion, o.ResourceVersionMatch, o.SendInitialEvents = l.revision, "", nil
	return l.from.Interface.Watch(ctx, l.key, o)
}

// unstalled forwards a watch to its reader as long as the reader takes events. What waits for the reader counts as its caller's
// (queues), except for watches of this process itself.
type unstalled struct {
	show    func(runtime.Object) // nil means that the reader sees all
	out     chan watch.Event
	stopped chan struct{}
	stop    sync.Once

	// caller and queues are whose watch it is, and who counts for it; queues is nil if nobody does. Only run uses what follows.
	caller  string
	queues  *queues
	waiting []waits
	bytes   int64
}

// waits is an event that waits for its reader.
type waits struct {
	event watch.Event
	bytes int64
}

// run sends the list, if there is one, and then follows inner. It ends at once on Stop or at a limit. When inner ends, by its
// context for example, run ends after the reader has taken what waits.
func (w *unstalled) run(ctx context.Context, list *listing, inner watch.Interface) {
	defer close(w.out)
	if list != nil {
		err := w.begin(ctx, list)
		w.queues.listed(w.caller)
		if err == nil {
			inner, err = list.watch(ctx)
		}
		if err != nil {
			w.fail(ctx, err)
			return
		}
	}
	defer func() { w.giveBack(w.bytes) }()
	defer inner.Stop()
	w.follow(inner)
}

// errEnded says that a watch has ended, and that nobody has to be told.
var errEnded = errors.New("the watch has ended")

// begin sends the list.
func (w *unstalled) begin(ctx context.Context, list *listing) error {
	slow := time.NewTimer(listTimeout)
	defer slow.Stop()
	for {
		for _, object := range list.page {
			if err := w.send(ctx, watch.Event{Type: watch.Added, Object: object}, slow.C); err != nil {
				return err
			}
		}
		if list.next == "" {
			break
		}
		if err := list.read(ctx); err != nil {
			return err
		}
	}
	bookmark, err := list.end()
	if err != nil || bookmark == nil {
		return err
	}
	return w.send(ctx, watch.Event{Type: watch.Bookmark, Object: bookmark}, slow.C)
}

// send gives the reader an event of the list, and waits until it is taken.
func (w *unstalled) send(ctx context.Context, event watch.Event, slow <-chan time.Time) error {
	late := time.NewTimer(stallTimeout)
	defer late.Stop()
	select {
	case w.out <- event:
		return nil
	case <-late.C:
		limited.WithLabelValues(string(byStall)).Inc()
	case <-slow:
		limited.WithLabelValues(string(byTime)).Inc()
	case <-w.stopped:
	case <-ctx.Done():
	}
	return errEnded
}

// fail tells the reader of an error, which ends the watch.
func (w *unstalled) fail(ctx context.Context, err error) {
	if errors.Is(err, errEnded) {
		return
	}
	status := apierrors.NewInternalError(err).Status()
	if known := apierrors.APIStatus(nil); errors.As(err, &known) {
		status = known.Status()
	}
	_ = w.send(ctx, watch.Event{Type: watch.Error, Object: &status}, nil)
}

// follow forwards what inner has.
func (w *unstalled) follow(inner watch.Interface) {
	var late *time.Timer // runs while something waits
	for in := inner.ResultChan(); in != nil || len(w.waiting) > 0; {
		take, give, next, stalls := in, w.out, watch.Event{}, (<-chan time.Time)(nil)
		if len(w.waiting) == 0 {
			give, late = nil, nil
		} else {
			if late == nil {
				late = time.NewTimer(stallTimeout)
			}
			next, stalls = w.waiting[0].event, late.C
			if w.queues == nil {
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

// lostState is part of the error that ends a watch when etcd no longer has an object's state before a change. That happens if the
// change has the oldest revision left, or if etcd compacts that state while the change is sent.
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
	w.stop.Do(func() { close(w.stopped) })
}

// ResultChan implements watch.Interface.
func (w *unstalled) ResultChan() <-chan watch.Event { return w.out }
