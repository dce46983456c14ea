package hubtest

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// Watch implements the watch verb from a revision; from "" it begins with what exists.
func (c client) Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	selected, err := selector(c.namespace, options)
	if err != nil {
		return nil, err
	}
	w := &stream{
		server: c.server, client: c.name, selected: selected, bookmarks: options.AllowWatchBookmarks,
		results: make(chan watch.Event), wake: make(chan struct{}, 1), stopped: make(chan struct{}),
	}
	s := c.server
	err = s.do(ctx, LeaseCall{c.name, "watch", c.namespace, "", nil}, func() error {
		from, _ := strconv.ParseUint(options.ResourceVersion, 10, 64)
		if from == 0 {
			for _, lease := range s.leases {
				w.offerLocked(change{0, nil, lease})
			}
			from = s.revision
		} else if from < s.oldest {
			return apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d (%d)", from, s.oldest))
		}
		w.from = from
		for _, c := range s.history {
			w.offerLocked(c)
		}
		s.watches[w] = struct{}{}
		return nil
	})
	if err != nil {
		return nil, err
	}
	var limit time.Duration
	if options.TimeoutSeconds != nil {
		limit = time.Duration(*options.TimeoutSeconds) * time.Second
	}
	go w.run(ctx, limit)
	return w, nil
}

// stream is one watch. Its queue is guarded by the server's mutex.
type stream struct {
	server    *LeaseServer
	client    string
	selected  func(*coordinationv1.Lease) bool
	bookmarks bool
	from      uint64
	results   chan watch.Event
	wake      chan struct{}
	stopped   chan struct{}
	stop      sync.Once
	queue     []watch.Event
	busy      bool // a change has come since the last tick, selected or not
	ended     bool
	expiring  bool
}

func (w *stream) ResultChan() <-chan watch.Event { return w.results }

func (w *stream) Stop() { w.stop.Do(func() { close(w.stopped) }) }

func (w *stream) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

func (w *stream) endLocked() {
	w.ended = true
	w.signal()
}

// offerLocked turns a change into this watch's event. An object that leaves the selection is sent as DELETED, with the old
// content and the new revision, as kube-apiserver does.
func (w *stream) offerLocked(c change) {
	if c.revision != 0 && c.revision <= w.from {
		return
	}
	w.busy = true
	was, is := w.selected(c.old), w.selected(c.new)
	switch {
	case is && was:
		w.queue = append(w.queue, watch.Event{Type: watch.Modified, Object: c.new.DeepCopy()})
	case is:
		w.queue = append(w.queue, watch.Event{Type: watch.Added, Object: c.new.DeepCopy()})
	case was:
		gone := c.old.DeepCopy()
		gone.ResourceVersion = strconv.FormatUint(c.revision, 10)
		w.queue = append(w.queue, watch.Event{Type: watch.Deleted, Object: gone})
	default:
		return
	}
	w.signal()
}

func (w *stream) run(ctx context.Context, limit time.Duration) {
	defer func() {
		w.server.mu.Lock()
		delete(w.server.watches, w)
		w.server.mu.Unlock()
		close(w.results)
	}()
	var expired <-chan time.Time
	if limit > 0 {
		timer := time.NewTimer(limit)
		defer timer.Stop()
		expired = timer.C
	}
	tick := time.NewTicker(progressEvery)
	defer tick.Stop()
	for {
		next, ok, ended := w.next()
		if ok {
			select {
			case w.results <- next:
				continue
			case <-ctx.Done():
			case <-w.stopped:
			}
			return
		}
		if ended {
			return
		}
		select {
		case <-w.wake:
		case <-ctx.Done():
			return
		case <-w.stopped:
			return
		case <-expired:
			expired = nil
			w.expire()
		case <-tick.C:
			w.progress()
		}
	}
}

// progressEvery is how often a watch that has been quiet is sent a bookmark, as a coordinator's etcd does.
const progressEvery = 5 * time.Second

// progress queues a bookmark unless a change has come, of whatever object: etcd does not know the selectors.
func (w *stream) progress() {
	w.server.mu.Lock()
	defer w.server.mu.Unlock()
	if w.bookmarks && !w.busy && len(w.queue) == 0 {
		w.queue = append(w.queue, w.bookmarkLocked())
	}
	w.busy = false
}

func (w *stream) bookmarkLocked() watch.Event {
	return watch.Event{Type: watch.Bookmark, Object: &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		ResourceVersion: strconv.FormatUint(w.server.revision, 10),
	}}}
}

// expire ends the watch once it has delivered what is queued, with a bookmark as the last event.
func (w *stream) expire() {
	w.server.mu.Lock()
	defer w.server.mu.Unlock()
	w.expiring = true
	w.signal()
}

func (w *stream) next() (watch.Event, bool, bool) {
	w.server.mu.Lock()
	defer w.server.mu.Unlock()
	if w.server.held || w.server.cut[w.client] != nil {
		return watch.Event{}, false, false
	}
	if len(w.queue) == 0 && w.expiring && !w.ended {
		w.ended = true
		return w.bookmarkLocked(), w.bookmarks, true
	}
	if len(w.queue) == 0 || w.ended {
		return watch.Event{}, false, w.ended
	}
	event := w.queue[0]
	w.queue = w.queue[1:]
	return event, true, false
}
