// Package watchcheck judges watches: whether what a client of an API endpoint was told is what happened.
//
// A Recorder is a demanding client of any endpoint (an API server, a hub, a mirror): it lists and watches as a reflector
// does, and writes down everything it is told. Facts are what happened, from a recording of the cloud itself. Check
// compares a recording with the facts by etcd's guarantees for watches: ordered, unique, reliable, resumable,
// bookmarkable; and those that selectors and lists add.
//
// Invariants: Check is pure, and says nothing good of what it could not see: a recording that overflowed, a list or a
// bookmark beyond the facts, an end that was not reached are violations themselves. A Recorder never repairs what it is
// told: it keeps no store, compares nothing, and resumes exactly at the last revision that it heard.
//
// client-go's reflector over a recording store was the alternative. It hides what is to be judged: a doubled or a
// reordered event, a bookmark that came too early and a resume that skips all end in a store that looks right.
package watchcheck

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/watch"
)

// Kind is what was observed.
type Kind uint8

// Kinds of observations.
const (
	// Listed: a list was answered. Revision is the list's, Items what it holds.
	Listed Kind = iota + 1
	// Began: a watch was opened after Revision; 0 for one that begins with all objects (sendInitialEvents).
	Began
	// Event: a change was told: Type, Key, Revision of the object and Hash of its content.
	Event
	// Bookmark: the server promised that all events up to Revision have been told.
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

// String is the kind in words.
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
	// Hash is that of the content without resourceVersion, kind and apiVersion; the same in every encoding.
	Hash uint64
	// Matches says whether the recorder's Match selects the object; true without a Match.
	Matches bool
}

// Observation is one thing that a recorder was told, or noticed.
type Observation struct {
	Kind Kind
	// At is when it was read; Asked, of a list and of a watch's begin, when the request was sent.
	At, Asked time.Time
	// Revision is what Kind says.
	Revision uint64
	// Type is that of an Event: ADDED, MODIFIED or DELETED.
	Type watch.EventType
	// Key is "namespace/name", or "name".
	Key string
	// Item is the object of an Event.
	Item Item
	// Items are the objects of a list.
	Items map[string]Item
	// Aside marks a list that was made beside a running watch: it says nothing of where the watch stands.
	Aside bool
	// Err is why a watch ended or a request failed.
	Err string
}

// String is the observation in one line.
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
