package share

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
	"k8s.io/klog/v2"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/hub/link"
	"yurtcoordinator/internal/run"
	"yurtcoordinator/internal/stream"
)

// Events that programs write while the cloud does not answer wait here until it is back, but at most for eventLife. Their writers
// do not repeat them. A further write of a waiting Event also waits here, even when the cloud is back. So the cloud does not get
// an Event twice, and gets the writes of an Event in their order.

const (
	// waitingPrefix is the prefix of the disk's keys of waiting Events.
	waitingPrefix = "event/"
	// tellTimeout bounds the sending of one Event, tellMin and tellMax the pause after a failure.
	tellTimeout      = 20 * time.Second
	tellMin, tellMax = 100 * time.Millisecond, 30 * time.Second
	// flushTimeout bounds how long a writer of an Event waits for the disk.
	flushTimeout = 2 * time.Second
	// noRevision is the revision of an Event that the cloud has not seen. It is older than all others.
	noRevision edge.Revision = 1
)

// TakerDisk keeps waiting Events; store.Store is one.
type TakerDisk interface {
	PutBlob(key string, value []byte) error
	Blob(key string) ([]byte, error)
	DropBlob(key string)
	Blobs(prefix string) []string
	// Flush returns when all blobs are written.
	Flush(ctx context.Context) error
}

// saved is a waiting Event on the disk.
type saved struct {
	Event   []byte
	At      time.Time // by the wall clock
	History edge.History
}

func diskKey(k stream.Key) string { return waitingPrefix + k.Namespace + "/" + k.Name }

// saveLocked queues one Event's state for the disk. It does no I/O.
func (l *eventLog) saveLocked(k stream.Key) {
	e := l.events[k]
	if e.waiting == nil {
		l.disk.DropBlob(diskKey(k))
		return
	}
	raw, err := e.waiting.Marshal()
	if err != nil {
		return
	}
	if text, err := json.Marshal(saved{raw, l.ends.Wall().Add(-l.ends.Since(e.at)), e.in}); err == nil {
		_ = l.disk.PutBlob(diskKey(k), text) // if this fails, the Event ends with the hub
	}
}

// flush writes waiting Events to the disk, before their writers get an answer.
func (l *eventLog) flush(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, flushTimeout)
	defer cancel()
	_ = l.disk.Flush(ctx) // what cannot be written now stays in memory, and is written later
}

// restore reads the Events that waited when the last hub ended.
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
		if err == nil && l.events[object.Key].object.Raw == nil { // otherwise it was written since
			at := l.ends.Running().Add(-max(0, l.ends.Wall().Sub(was.At))) // nobody knows for how long the hub did not run
			l.putLocked(object.Key, written{object, was.History, at, event, digest(object.Raw)})
		}
		l.mu.Unlock()
	}
}

// waits reports whether an Event waits for the cloud.
func (l *eventLog) waits(k stream.Key) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.events[k].waiting != nil
}

// create lets a new Event wait. It returns the Event as stored, or a Status that says why it was refused.
func (l *eventLog) create(event *corev1.Event, now time.Time) (stream.Object, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	key := stream.Key{Namespace: event.Namespace, Name: event.Name}
	have := l.events[key]
	if have.object.Raw != nil {
		return stream.Object{}, apierrors.NewAlreadyExists(corev1.Resource(events), event.Name)
	}
	event.UID, event.CreationTimestamp = types.UID(l.ends.UUID()), metav1.NewTime(l.ends.Wall())
	have.object.Revision = max(have.object.Revision, noRevision)
	return l.waitLocked(event, have.moment(), now)
}

// change applies a strategic merge patch to an Event, which then waits for the cloud. If the Event is unknown, change returns
// NotFound, and the writer then creates the whole Event.
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
	return l.waitLocked(after, have.moment(), now)
}

func (l *eventLog) waitLocked(event *corev1.Event, of edge.Moment, now time.Time) (stream.Object, error) {
	event.ResourceVersion = of.Revision.String()
	object, err := objectOf(event)
	if err != nil {
		return stream.Object{}, err
	}
	l.putLocked(object.Key, written{object, of.History, now, event, digest(object.Raw)})
	return object, nil
}

// oldest returns the waiting Event whose last write is oldest; nil means that none waits. It also drops all Events that are older
// than eventLife.
func (l *eventLog) oldest(now time.Time) *corev1.Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	var found *corev1.Event
	var at time.Time
	for k, e := range l.events {
		switch {
		case now.Sub(e.at) >= eventLife:
			l.deleteLocked(k)
		case e.waiting == nil:
		case found == nil || e.at.Before(at):
			found, at = e.waiting, e.at
		}
	}
	return found
}

// told records the cloud's answer to an Event; the parameter what is the Event as it was sent. If the answer is nil, the cloud
// has refused the Event, which is then dropped with its later writes. After any other answer, an Event that was written again
// meanwhile still waits.
func (l *eventLog) told(what, answer *corev1.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	key := stream.Key{Namespace: what.Namespace, Name: what.Name}
	e := l.events[key]
	if e.waiting == nil {
		return
	}
	if answer == nil {
		l.deleteLocked(key)
		return
	}
	object, err := objectOf(answer)
	switch {
	case err != nil:
		l.deleteLocked(key)
	case e.waiting == what:
		l.putLocked(key, written{object: object, in: l.history(), at: e.at})
	}
}

// sendEvents sends waiting Events to the cloud, whenever it can be reached, until ctx ends.
func (t *Taker) sendEvents(ctx context.Context) {
	again, told := run.Backoff{Min: tellMin, Max: tellMax}, false
	for ctx.Err() == nil {
		if _, err := t.config.CloudLink.Wait(ctx, link.State.Answers); err != nil {
			return
		}
		what := t.events.oldest(t.config.Ends.Running())
		if what == nil {
			if told {
				t.events.flush(ctx) // otherwise a hub that is killed would send them again, over later changes
				told = false
			}
			t.await(ctx)
			continue
		}
		if err := t.tellOf(ctx, what); err != nil {
			klog.FromContext(ctx).V(1).Info("Cannot send an Event to the cloud yet; trying again", "event", klog.KObj(what),
				"err", err)
			_ = run.Pause(ctx, again.Next(t.config.Ends.Float64()))
			continue
		}
		told = true
		again.Reset()
	}
}

// await waits until an Event is written, or until ctx ends.
func (t *Taker) await(ctx context.Context) {
	timer := time.NewTimer(eventLife) // by then the Events that are left are too old
	defer timer.Stop()
	select {
	case <-t.written:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// tellOf sends an Event to the cloud, or only its changes if the cloud has it already. It returns an error if the caller should
// try again. If the cloud refuses the Event, tellOf drops it and returns nil.
func (t *Taker) tellOf(ctx context.Context, what *corev1.Event) error {
	ctx, cancel := context.WithTimeout(ctx, tellTimeout)
	defer cancel()
	at := t.config.Events.Events(what.Namespace)
	fresh := what.DeepCopy()
	fresh.UID, fresh.ResourceVersion, fresh.CreationTimestamp = "", "", metav1.Time{}
	answer, err := at.Create(ctx, fresh, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		answer, err = at.Patch(ctx, what.Name, types.StrategicMergePatchType, changesOf(what), metav1.PatchOptions{})
		if apierrors.IsNotFound(err) {
			return err // it has ended in between
		}
	}
	switch {
	case err == nil:
		t.events.told(what, answer)
		t.metrics.told.Inc()
	case refuses(err):
		klog.FromContext(ctx).Info("Dropping an Event of the cut that the cloud refuses", "event", klog.KObj(what), "err", err)
		t.events.told(what, nil)
	default:
		return err
	}
	return nil
}

// refuses reports whether an error is a server's refusal, which will be the same next time.
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

// changesOf returns a patch of the fields that writers change in an Event.
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
