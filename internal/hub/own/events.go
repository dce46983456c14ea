package own

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/stream"
)

const (
	// eventLife is how long an Event is kept: Kubernetes' default. maxKeptEvents bounds them, the oldest go first.
	eventLife     = time.Hour
	maxKeptEvents = 500
	// maxEventBytes bounds the answer that is read along; an Event is a few hundred bytes.
	maxEventBytes = 32 << 10
)

// ledger has the Events that this node's programs have written to the cloud, as the cloud has answered them.
type ledger struct {
	mu     sync.Mutex
	events map[stream.Key]written
}

// written is an Event, or one that the coordinator has from an earlier run of the hub, which is known by its key alone.
type written struct {
	object stream.Object
	at     time.Time
}

func newLedger() *ledger { return &ledger{events: map[stream.Key]written{}} }

// add takes an Event in.
func (l *ledger) add(o stream.Object, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.events[o.Key].object.Revision > o.Revision {
		return
	}
	l.events[o.Key] = written{o, now}
	if len(l.events) <= maxKeptEvents {
		return
	}
	oldest := o.Key
	for k, e := range l.events {
		if e.at.Before(l.events[oldest].at) {
			oldest = k
		}
	}
	delete(l.events, oldest)
}

// addTo adds those that are not too old, and forgets the others.
func (l *ledger) addTo(objects map[id]stream.Object) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for k, e := range l.events {
		switch {
		case time.Since(e.at) >= eventLife:
			delete(l.events, k)
		case e.object.Raw != nil:
			objects[id{events, k}] = e.object
		}
	}
}

// known is any revision for an Event that is forgotten: it is over, whatever its revision.
func (l *ledger) known(k stream.Key) edge.Revision {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.events[k]; ok {
		return 0
	}
	return ^edge.Revision(0) >> 1
}

func (l *ledger) drop(k stream.Key) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.events, k)
}

// adopt takes in what the coordinator has from an earlier run of this hub: it goes in its time.
func (l *ledger) adopt(h have) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range h {
		if _, ok := l.events[i.Key]; i.resource == events && !ok {
			l.events[i.Key] = written{at: time.Now()}
		}
	}
}

// Tap reads the Events along that are written by requests through next.
func (p *Pusher) Tap(next http.RoundTripper) http.RoundTripper { return tap{next, p.gatherer.events} }

type tap struct {
	next   http.RoundTripper
	events *ledger
}

// RoundTrip implements http.RoundTripper.
func (t tap) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := t.next.RoundTrip(r)
	if err != nil || !writesEvent(r) || response.StatusCode != http.StatusOK && response.StatusCode != http.StatusCreated ||
		response.Header.Get("Content-Encoding") != "" {
		return response, err
	}
	response.Body = &overheard{ReadCloser: response.Body, events: t.events}
	return response, nil
}

// writesEvent reports whether a request creates or changes an Event: /api/v1/namespaces/NAMESPACE/events[/NAME].
func writesEvent(r *http.Request) bool {
	if r.Method != http.MethodPost && r.Method != http.MethodPatch && r.Method != http.MethodPut {
		return false
	}
	below, ok := strings.CutPrefix(r.URL.Path, "/api/v1/namespaces/")
	parts := strings.Split(below, "/")
	return ok && (len(parts) == 2 || len(parts) == 3) && parts[1] == events
}

// overheard is an answer that is read along.
type overheard struct {
	io.ReadCloser
	events *ledger
	text   bytes.Buffer
	over   bool
}

// Read implements io.Reader.
func (o *overheard) Read(p []byte) (int, error) {
	n, err := o.ReadCloser.Read(p)
	if o.over {
		return n, err
	}
	if o.text.Write(p[:n]); o.text.Len() > maxEventBytes {
		o.over, o.text = true, bytes.Buffer{}
		return n, err
	}
	if errors.Is(err, io.EOF) {
		o.over = true
		if object, ok := eventOf(o.text.Bytes()); ok {
			o.events.add(object, time.Now())
		}
	}
	return n, err
}

// eventOf reads an answer.
func eventOf(text []byte) (stream.Object, bool) {
	t, raw, err := stream.OpenEnvelope(text)
	if err != nil || t.GroupVersionKind != corev1.SchemeGroupVersion.WithKind("Event") {
		return stream.Object{}, false
	}
	if t.Encoding == stream.JSON {
		var event corev1.Event
		if json.Unmarshal(raw, &event) != nil {
			return stream.Object{}, false
		}
		if raw, err = event.Marshal(); err != nil {
			return stream.Object{}, false
		}
	}
	object, err := stream.Scan(stream.Protobuf, bytes.Clone(raw))
	return object, err == nil
}
