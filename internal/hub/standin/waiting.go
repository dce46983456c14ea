package standin

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/klog/v2"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/hub/link"
	"yurtcoordinator/internal/run"
	"yurtcoordinator/internal/stream"
)

// Events that are written while the cloud does not answer wait, and the cloud is told of them when it is back: whoever has
// written one does not do so again. While one waits it is written here, also when the cloud is back; so the cloud hears of
// it once, in the order in which it was written.

const (
	// waitingPrefix begins the disk's keys of Events that wait.
	waitingPrefix = "event/"
	// tellTimeout bounds telling the cloud of one, tellMin and tellMax the pause after a failure.
	tellTimeout      = 20 * time.Second
	tellMin, tellMax = 100 * time.Millisecond, 30 * time.Second
	// flushTimeout bounds how long a writer of an Event waits for the disk.
	flushTimeout = 2 * time.Second
	// noRevision is that of an Event that the cloud has not seen: older than all others.
	noRevision edge.Revision = 1
)

// Disk is where the Events are that wait; store.Store is one.
type Disk interface {
	PutBlob(key string, value []byte) error
	Blob(key string) ([]byte, error)
	DropBlob(key string)
	Blobs(prefix string) []string
	// Flush returns when all of that is written.
	Flush(ctx context.Context) error
}

// saved is a waiting Event on the disk.
type saved struct {
	Event   []byte
	At      time.Time
	There   bool
	History edge.History
}

func diskKey(k stream.Key) string { return waitingPrefix + k.Namespace + "/" + k.Name }

// saveLocked has the disk be as the log is. It does no I/O: the disk is written later.
func (l *eventLog) saveLocked(k stream.Key) {
	e := l.events[k]
	if e.waiting == nil {
		l.disk.DropBlob(diskKey(k))
		return
	}
	raw, err := e.waiting.event.Marshal()
	if err != nil {
		return
	}
	if text, err := json.Marshal(saved{raw, e.at, e.waiting.there, e.in}); err == nil {
		_ = l.disk.PutBlob(diskKey(k), text) // without, it does not outlive the hub
	}
}

// flush brings what waits to the disk, before its writer is told that it is kept.
func (l *eventLog) flush(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, flushTimeout)
	defer cancel()
	_ = l.disk.Flush(ctx) // what cannot be written now is kept in memory, and written later
}

// restore takes in what waited when the hub ended.
func (l *eventLog) restore() {
	for _, key := range l.disk.Blobs(waitingPrefix) {
		var was saved
		event := &corev1.Event{}
		text, err := l.disk.Blob(key)
		if err != nil || json.Unmarshal(text, &was) != nil || event.Unmarshal(was.Event) != nil {
			l.disk.DropBlob(key)
			continue
		}
		object, err := objectOf(event)
		l.mu.Lock()
		if err == nil && l.events[object.Key].object.Raw == nil { // else it was written since
			l.putLocked(object.Key, written{object, was.History, was.At, &waiting{event, was.There}, digest(object.Raw)})
		}
		l.mu.Unlock()
	}
}

// waits reports whether the cloud is to be told of an Event.
func (l *eventLog) waits(k stream.Key) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.events[k].waiting != nil
}

// create has an Event wait that is new. It returns it as it is now, or a Status that says why not.
func (l *eventLog) create(event *corev1.Event, now time.Time) (stream.Object, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	key := stream.Key{Namespace: event.Namespace, Name: event.Name}
	have := l.events[key]
	if have.object.Raw != nil {
		return stream.Object{}, apierrors.NewAlreadyExists(corev1.Resource(events), event.Name)
	}
	event.UID, event.CreationTimestamp = uuid.NewUUID(), metav1.NewTime(now)
	have.object.Revision = max(have.object.Revision, noRevision)
	return l.waitLocked(event, have.moment(), false, now)
}

// change has an Event wait that is written again, by a strategic merge patch. One that is not known here is not there: then
// those who write Events create it, with all that they know of it.
func (l *eventLog) change(key stream.Key, patch []byte, now time.Time) (stream.Object, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	have := l.events[key]
	if have.object.Raw == nil {
		return stream.Object{}, apierrors.NewNotFound(corev1.Resource(events), key.Name)
	}
	before, after := &corev1.Event{}, &corev1.Event{}
	if err := before.Unmarshal(have.object.Raw); err != nil {
		return stream.Object{}, err
	}
	old, err := json.Marshal(before)
	if err != nil {
		return stream.Object{}, err
	}
	text, err := strategicpatch.StrategicMergePatch(old, patch, after)
	if err != nil {
		return stream.Object{}, err
	}
	if err := json.Unmarshal(text, after); err != nil {
		return stream.Object{}, err
	}
	after.ObjectMeta = before.ObjectMeta // no program changes it
	return l.waitLocked(after, have.moment(), have.waiting == nil || have.waiting.there, now)
}

func (l *eventLog) waitLocked(event *corev1.Event, of edge.Moment, there bool, now time.Time) (stream.Object, error) {
	event.ResourceVersion = of.Revision.String()
	object, err := objectOf(event)
	if err != nil {
		return stream.Object{}, err
	}
	l.putLocked(object.Key, written{object, of.History, now, &waiting{event, there}, digest(object.Raw)})
	return object, nil
}

// oldest returns what has waited longest, and forgets what has waited too long; nil if nothing waits.
func (l *eventLog) oldest(now time.Time) *waiting {
	l.mu.Lock()
	defer l.mu.Unlock()
	var found *waiting
	var at time.Time
	for k, e := range l.events {
		switch {
		case e.waiting == nil:
		case now.Sub(e.at) >= eventLife:
			l.deleteLocked(k)
		case found == nil || e.at.Before(at):
			found, at = e.waiting, e.at
		}
	}
	return found
}

// told takes in what the cloud has answered to an Event that waited; nil: it does not want it. What was written since waits
// on.
func (l *eventLog) told(what *waiting, answer *corev1.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	key := stream.Key{Namespace: what.event.Namespace, Name: what.event.Name}
	e := l.events[key]
	if e.waiting == nil {
		return
	}
	if answer == nil {
		l.deleteLocked(key)
		return
	}
	object, err := objectOf(answer)
	next := written{object: object, in: l.history(), at: e.at}
	switch {
	case err != nil:
		l.deleteLocked(key)
	case e.waiting == what:
		l.putLocked(key, next)
	default:
		newer := e.waiting.event.DeepCopy()
		newer.UID, newer.CreationTimestamp = answer.UID, answer.CreationTimestamp
		_, _ = l.waitLocked(newer, next.moment(), true, e.at) // it was an object before
	}
}

// turn says that the cloud has, or has not, an Event of that name.
func (l *eventLog) turn(what *waiting, there bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	key := stream.Key{Namespace: what.event.Namespace, Name: what.event.Name}
	if e := l.events[key]; e.waiting != nil {
		e.waiting = &waiting{e.waiting.event, there}
		l.events[key] = e
		l.saveLocked(key)
		l.changed()
	}
}

// tell tells the cloud of the Events that wait, whenever it can be reached, until ctx ends.
func (t *Taker) tell(ctx context.Context) {
	again, told := run.Backoff{Min: tellMin, Max: tellMax}, false
	for ctx.Err() == nil {
		if _, err := t.config.CloudLink.Wait(ctx, func(s link.State) bool { return s == link.Up }); err != nil {
			return
		}
		what := t.events.oldest(time.Now())
		if what == nil {
			if told {
				t.events.flush(ctx) // else a hub that is killed tells them again, when they may have gone on
				told = false
			}
			t.await(ctx)
			continue
		}
		if err := t.tellOf(ctx, what); err != nil {
			klog.FromContext(ctx).V(1).Info("The cloud cannot be told of an Event yet", "event", klog.KObj(what.event),
				"err", err)
			_ = run.Pause(ctx, again.Next())
			continue
		}
		told = true
		again.Reset()
	}
}

// await waits until an Event is written, or until ctx ends.
func (t *Taker) await(ctx context.Context) {
	timer := time.NewTimer(eventLife) // by then those that are left are forgotten
	defer timer.Stop()
	select {
	case <-t.written:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// tellOf tells the cloud of an Event. It fails if that is to be tried again.
func (t *Taker) tellOf(ctx context.Context, what *waiting) error {
	ctx, cancel := context.WithTimeout(ctx, tellTimeout)
	defer cancel()
	at := t.config.Events.Events(what.event.Namespace)
	var answer *corev1.Event
	var err error
	if what.there {
		answer, err = at.Patch(ctx, what.event.Name, types.StrategicMergePatchType, changesOf(what.event), metav1.PatchOptions{})
	} else {
		fresh := what.event.DeepCopy()
		fresh.UID, fresh.ResourceVersion, fresh.CreationTimestamp = "", "", metav1.Time{}
		answer, err = at.Create(ctx, fresh, metav1.CreateOptions{})
	}
	switch {
	case err == nil:
		t.events.told(what, answer)
		t.metrics.told.Inc()
	case !what.there && apierrors.IsAlreadyExists(err), what.there && apierrors.IsNotFound(err):
		t.events.turn(what, !what.there)
	case refuses(err):
		klog.FromContext(ctx).Info("The cloud does not take an Event of when it was cut off", "event", klog.KObj(what.event),
			"err", err)
		t.events.told(what, nil)
	default:
		return err
	}
	return nil
}

// refuses reports whether an error is a server's no, which will be the same the next time.
func refuses(err error) bool {
	status := apierrors.APIStatus(nil)
	if !errors.As(err, &status) {
		return false
	}
	switch code := status.Status().Code; code {
	case http.StatusUnauthorized, http.StatusRequestTimeout, http.StatusTooManyRequests:
		return false
	default:
		return code >= http.StatusBadRequest && code < http.StatusInternalServerError
	}
}

// changesOf is what writers of Events change in them.
func changesOf(e *corev1.Event) []byte {
	text, err := json.Marshal(struct {
		Count   int32               `json:"count,omitempty"`
		Last    metav1.Time         `json:"lastTimestamp"`
		Message string              `json:"message"`
		Series  *corev1.EventSeries `json:"series,omitempty"`
	}{e.Count, e.LastTimestamp, e.Message, e.Series})
	if err != nil {
		panic("an Event that is no JSON: " + err.Error()) // it came as JSON, or as protobuf of the same type
	}
	return text
}
