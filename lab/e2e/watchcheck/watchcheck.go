// Package watchcheck judges watches: whether a client of an API endpoint was told what happened.
//
// A Recorder is a demanding client of any endpoint (an API server, a hub, a mirror): it lists and watches as a reflector does,
// and records everything that it is told. Facts are what happened, from a recording of the cloud itself. Check compares a
// recording with the facts by etcd's guarantees for watches (ordered, unique, reliable, resumable, bookmarkable) and those that
// lists add.
//
// Invariants: Check is pure, and approves nothing that it could not see. A recording that overflowed, a list or a bookmark
// beyond the facts, and an end that was not reached are themselves violations. A Recorder never repairs what it is told: it has
// no store, compares nothing, and resumes exactly at the last revision that it heard.
//
// The alternative was client-go's reflector over a recording store. It hides what must be judged: a doubled or reordered event,
// a bookmark that came too early and a resume that skips all end in a store that looks right.
package watchcheck

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/watch"
)

// Kind is the kind of an observation.
type Kind uint8

// Kinds of observations.
const (
	// Listed: a list was answered. Revision is the list's, Items are its objects.
	Listed Kind = iota + 1
	// Began: a watch was opened after Revision; 0 for one that begins with all objects (sendInitialEvents).
	Began
	// Event: a change was delivered: Type, Key, Revision of the object and Hash of its content.
	Event
	// Bookmark: the server promised that it has delivered all events up to Revision.
	Bookmark
	// Synced: the bookmark that ends the initial events of a watch that began with all objects.
	Synced
	// Ended: a watch is over, in an orderly way (Err is empty) or not.
	Ended
	// Expired: 410, as an answer or within a watch. The recorder forgets its revision.
	Expired
	// Failed: another refusal, or no answer.
	Failed
	// Overflow: the recording is full; what came after is not in it.
	Overflow
)

var kindNames = [...]string{
	Listed: "list", Began: "watch", Event: "event", Bookmark: "bookmark", Synced: "initial events end", Ended: "end of watch",
	Expired: "410", Failed: "failure", Overflow: "overflow",
}

// String returns the kind in words.
func (k Kind) String() string {
	if int(k) >= len(kindNames) || kindNames[k] == "" {
		return fmt.Sprintf("kind %d", k)
	}
	return kindNames[k]
}

// Item is one object as it was seen.
type Item struct {
	// Revision is the object's resourceVersion.
	Revision uint64
	// Hash is the hash of the content without resourceVersion, kind and apiVersion; it is the same in every encoding.
	Hash uint64
}

// Observation is one thing that a recorder was told or noticed.
type Observation struct {
	Kind Kind
	// At is when it was read. Asked, for a list and a watch's beginning, is when the request was sent.
	At, Asked time.Time
	// Revision means what Kind says.
	Revision uint64
	// Type is an Event's: ADDED, MODIFIED or DELETED.
	Type watch.EventType
	// Key is "namespace/name", or "name".
	Key string
	// Item is the object of an Event.
	Item Item
	// Items are the objects of a list.
	Items map[string]Item
	// Aside marks a list beside a running watch: it says nothing about the watch's position.
	Aside bool
	// Err is why a watch ended or a request failed.
	Err string
}

// String returns the observation in one line.
func (o Observation) String() string {
	switch o.Kind {
	case Event:
		return fmt.Sprintf("%s %s at revision %d", o.Type, o.Key, o.Revision)
	case Listed:
		return fmt.Sprintf("list of %d objects at revision %d", len(o.Items), o.Revision)
	case Ended, Expired, Failed:
		return fmt.Sprintf("%s: %s", o.Kind, o.Err)
	default:
		return fmt.Sprintf("%s at revision %d", o.Kind, o.Revision)
	}
}
