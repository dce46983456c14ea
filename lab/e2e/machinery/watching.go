package machinery

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// Watch is a watch as read from the wire.
type Watch struct {
	env    *Env
	name   string
	Status int
	Header http.Header
	events chan Object
	// refusal is the body of an answer that is not a stream.
	refusal Object
	close   func()
}

// Watch opens a watch on the examined side. The check closes it.
func (e *Env) Watch(name, path, query string) *Watch {
	q := values(query)
	q.Set("watch", "true")
	return e.WatchAs(name, Request{Path: path, Query: q})
}

// WatchAs opens a watch with a request.
func (e *Env) WatchAs(name string, r Request) *Watch {
	ctx, cancel := context.WithCancel(e.ctx)
	response, err := e.send(ctx, e.Reader, r) //nolint:bodyclose // Close does
	if err != nil {
		cancel()
		e.Must(err)
	}
	w := &Watch{env: e, name: name, Status: response.StatusCode, Header: response.Header, events: make(chan Object)}
	var reading sync.WaitGroup
	w.close = func() {
		cancel()
		reading.Wait()
		_ = response.Body.Close() // already cancelled
	}
	if w.Status != http.StatusOK {
		body, err := io.ReadAll(response.Body)
		if err == nil && json.Unmarshal(body, &w.refusal) != nil {
			w.refusal = Object{"text": string(body)}
		}
		close(w.events)
		return w
	}
	reading.Go(func() {
		defer close(w.events)
		for in := json.NewDecoder(response.Body); ; {
			var event Object
			if in.Decode(&event) != nil {
				return
			}
			select {
			case w.events <- event:
			case <-ctx.Done():
				return
			}
		}
	})
	return w
}

// Close ends the watch.
func (w *Watch) Close() { w.close() }

var errEnded = errors.New("the watch has ended")

// next returns the next event.
func (w *Watch) next() (Object, error) {
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case event, ok := <-w.events:
		if !ok {
			return nil, errEnded
		}
		return event, nil
	case <-late.C:
		return nil, fmt.Errorf("no event within %v", patience)
	}
}

// Take reads events until stop accepts one as the last, records them, and returns them. A server sends bookmarks at any time,
// so Take leaves them out unless stop accepts one as the last.
func (w *Watch) Take(stop func(event Object) bool) []Object {
	var taken []Object
	seen := map[string]any{"status": w.Status, "type": w.Header.Values("Content-Type")}
	if w.refusal != nil {
		seen["refusal"] = w.refusal
	}
	for {
		event, err := w.next()
		if err != nil {
			seen["end"] = err.Error()
			break
		}
		last := stop(event)
		if !isBookmark(event) || last {
			taken = append(taken, event)
		}
		if last {
			break
		}
	}
	seen["events"], seen["in order"] = taken, inOrder(taken)
	w.env.Note(w.name, seen)
	return taken
}

// inOrder reports whether the objects of events are in the order of their versions. It does not judge ADDED events, because
// initial events are in the order of their keys.
func inOrder(events []Object) bool {
	last := uint64(0)
	for _, event := range events {
		o, _ := event["object"].(map[string]any)
		version, err := strconv.ParseUint(versionOf(o), 10, 64)
		switch {
		case err != nil || event["type"] == "ADDED":
		case version < last:
			return false
		default:
			last = version
		}
	}
	return true
}

// added accepts the ADDED of an object as the last event.
func added(name string) func(Object) bool {
	return func(event Object) bool {
		object, _ := event["object"].(map[string]any)
		return event["type"] == "ADDED" && nameOf(object) == name
	}
}

// first accepts the first event of a type, or an ERROR, as the last event.
func first(kind string) func(Object) bool {
	return func(event Object) bool { return event["type"] == kind || event["type"] == "ERROR" }
}

// never accepts no event: the watch is read to its end.
func never(Object) bool { return false }

// summary returns the types and names of events.
func summary(events []Object) []string {
	var all []string
	for _, event := range events {
		object, _ := event["object"].(map[string]any)
		all = append(all, fmt.Sprintf("%v %s", event["type"], nameOf(object)))
	}
	return all
}
