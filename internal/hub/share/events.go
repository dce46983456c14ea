package share

import (
	"encoding/json"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/ends"
	"yurtcoordinator/internal/stream"
)

const (
	// eventLife is how long an Event is kept, the same time as by default in Kubernetes. maxKeptEvents bounds how many are kept.
	// The oldest one that the cloud has is dropped first; if all wait for the cloud, the oldest of all.
	eventLife     = time.Hour
	maxKeptEvents = 500
	// maxEventBytes bounds an Event, which has a few hundred bytes.
	maxEventBytes = 32 << 10
)

// eventLog holds the Events that this node's programs have written: those that the cloud has, as the cloud answered them, and
// those that still wait for the cloud. The waiting ones are also on the disk.
type eventLog struct {
	ends    ends.Ends
	disk    TakerDisk
	history func() edge.History
	// lost is called for each waiting Event that is dropped, changed for each change.
	lost, changed func()

	mu     sync.Mutex
	events map[stream.Key]written
}

// written is an Event. Its object has no Raw if the Event comes from an earlier run of the hub and only the coordinator has it.
type written struct {
	object stream.Object // at the cloud's revision
	in     edge.History  // the revision's history
	at     time.Time
	// waiting is what the cloud must still get; nil means nothing. If waiting is not nil, digest is the digest of object.
	waiting *corev1.Event // never changed
	digest  uint64
}

func (w written) moment() edge.Moment { return edge.Moment{History: w.in, Revision: w.object.Revision} }

func newEventLog(disk TakerDisk, from ends.Ends, history func() edge.History, lost, changed func()) *eventLog {
	return &eventLog{disk: disk, ends: from, history: history, lost: lost, changed: changed, events: map[stream.Key]written{}}
}

// add records an Event as the cloud answered it.
func (l *eventLog) add(o stream.Object, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	next := written{object: o, in: l.history(), at: now}
	if have := l.events[o.Key]; have.waiting == nil && !next.moment().Before(have.moment()) {
		l.putLocked(o.Key, next)
	}
}

// putLocked records an Event. If there are too many, it drops the oldest, and waiting ones only if there are no others.
func (l *eventLog) putLocked(k stream.Key, w written) {
	l.events[k] = w
	l.saveLocked(k)
	l.changed()
	if len(l.events) <= maxKeptEvents {
		return
	}
	oldest := k
	for k, e := range l.events {
		old := l.events[oldest]
		if (e.waiting == nil) != (old.waiting == nil) {
			if e.waiting == nil {
				oldest = k
			}
		} else if e.at.Before(old.at) {
			oldest = k
		}
	}
	l.deleteLocked(oldest)
}

func (l *eventLog) deleteLocked(k stream.Key) {
	if l.events[k].waiting != nil {
		l.lost()
	}
	delete(l.events, k)
	l.saveLocked(k)
	l.changed()
}

// addTo adds the Events that are not too old, and drops the others.
func (l *eventLog) addTo(
	objects map[stream.ID]stream.Object, in map[stream.ID]edge.History, locals map[stream.ID]uint64,
) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for k, e := range l.events {
		switch {
		case l.ends.Since(e.at) >= eventLife:
			l.deleteLocked(k)
		case e.object.Raw != nil:
			i := stream.ID{Resource: events, Key: k}
			objects[i], in[i] = e.object, e.in
			if e.waiting != nil {
				locals[i] = e.digest
			}
		}
	}
}

// has reports whether an Event is still known.
func (l *eventLog) has(k stream.Key) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, ok := l.events[k]
	return ok
}

// drop forgets an Event, unless it waits for the cloud.
func (l *eventLog) drop(k stream.Key) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.events[k].waiting == nil {
		delete(l.events, k)
	}
}

// adopt records an Event that the coordinator has from an earlier run of this hub, so that it expires in due time.
func (l *eventLog) adopt(k stream.Key, as edge.Moment) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.events[k]; !ok {
		l.events[k] = written{
			object: stream.Object{Key: k, Revision: as.Revision}, in: as.History, at: l.ends.Running(),
		}
	}
}

// eventOf reads an Event from an answer.
func eventOf(text []byte) (stream.Object, bool) {
	event, err := readEvent(text)
	if err != nil {
		return stream.Object{}, false
	}
	object, err := objectOf(event)
	return object, err == nil
}

// readEvent decodes a single Event.
func readEvent(text []byte) (*corev1.Event, error) {
	t, raw, err := stream.OpenEnvelope(text)
	if err != nil {
		return nil, err
	}
	if t.GroupVersionKind != corev1.SchemeGroupVersion.WithKind("Event") {
		return nil, fmt.Errorf("it is a %s", t.GroupVersionKind)
	}
	event := &corev1.Event{}
	if t.Encoding == stream.JSON {
		err = json.Unmarshal(raw, event)
	} else {
		err = event.Unmarshal(raw)
	}
	return event, err
}

func objectOf(event *corev1.Event) (stream.Object, error) {
	raw, err := event.Marshal()
	if err != nil {
		return stream.Object{}, err
	}
	return stream.Scan(stream.Protobuf, raw)
}
