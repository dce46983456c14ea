// Package stream is the one form in which objects move through the system: a Kubernetes watch stream, undecoded, with the
// cloud's revisions.
//
// A stream is either full (all objects as of one revision, a Snapshot, then changes) or it resumes after a revision (changes
// only). A Source gives streams, a Sink takes them, and Copy applies the events of a Source's Watch to a Sink. An API server is
// a Source (package remote); a replica is both; the coordinator's mirror and a disk are Sinks.
//
// Objects stay in their API server's encoding, because moving them takes a key and a revision, not the content. So one copy of
// the bytes serves every client that asks for the same encoding, and an event costs no decoding. An object arrives verbatim,
// including fields that this program does not know.
//
// Invariants, for one resource of one cluster:
//
//   - The events of a stream come in the order of their revisions, each revision once. None is at or before the start
//     revision, and none is left out. A stream that cannot keep this ends with an error: ErrExpired if it would have to
//     begin earlier than its source remembers.
//   - A Snapshot holds exactly the objects that existed at its revision.
//   - An Object's bytes never change once it is handed over: to change the content, make another Object.
package stream

import (
	"context"
	"errors"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"yurtcoordinator/internal/edge"
)

// ErrExpired says that a source does not remember all changes since the requested revision: take a new Snapshot. It is
// Kubernetes' 410 Gone with reason Expired.
var ErrExpired = errors.New("the revision is older than the history that is kept")

// ErrNotReady says that a source has no content yet (a replica before its first Snapshot); try again later. It is Kubernetes'
// 503 ServiceUnavailable.
var ErrNotReady = errors.New("not complete yet")

// Encoding is how the objects of a stream are written.
type Encoding uint8

// Encodings. Built-in types come as Protobuf, custom resources have only JSON.
const (
	JSON Encoding = iota + 1
	Protobuf
)

// Type is what the objects of one stream have in common. Streams learn it from what a server sends.
type Type struct {
	schema.GroupVersionKind
	// Encoding is that of every Object of the stream.
	Encoding Encoding
}

// Key is the identity of an object within its resource. Namespace is empty for cluster-scoped ones.
type Key struct {
	Namespace, Name string
}

// Compare orders keys as an API server lists objects: by namespace, then name.
func (k Key) Compare(other Key) int {
	if c := strings.Compare(k.Namespace, other.Namespace); c != 0 {
		return c
	}
	return strings.Compare(k.Name, other.Name)
}

// String is the key as "namespace/name", or "name".
func (k Key) String() string {
	if k.Namespace == "" {
		return k.Name
	}
	return k.Namespace + "/" + k.Name
}

// ID names an object among objects of several resources.
type ID struct {
	// Resource is the plural name, as "pods". The holder of IDs knows their group and version.
	Resource string
	Key
}

// String is the ID as "resource namespace/name".
func (id ID) String() string { return id.Resource + " " + id.Key.String() }

// Object is one object, undecoded, immutable.
type Object struct {
	Key Key
	// Revision is the object's own resourceVersion; of a deleted object, the revision of its deletion.
	Revision edge.Revision
	// Raw is the object's message. In Protobuf it lacks the "k8s\0" envelope, as in a list's item. In JSON it is the whole
	// object; kind and apiVersion may be absent, because Type has them.
	Raw []byte
}

// EventType is what happened.
type EventType uint8

// These are the event types. A Bookmark says that all changes up to its revision have been told. InitialEventsEnd is the bookmark
// that ends the ADDED events of a full stream on the wire (annotation k8s.io/initial-events-end). A Watch of this package never
// returns it, because here a full stream begins with a Snapshot.
const (
	Added EventType = iota + 1
	Modified
	Deleted
	Bookmark
	InitialEventsEnd
)

// String is the type as Kubernetes writes it in a watch event.
func (t EventType) String() string {
	switch t {
	case Added:
		return "ADDED"
	case Modified:
		return "MODIFIED"
	case Deleted:
		return "DELETED"
	case Bookmark, InitialEventsEnd:
		return "BOOKMARK"
	default:
		return "UNKNOWN"
	}
}

// Event is one change, or a bookmark, whose Object has a Revision and nothing else.
type Event struct {
	Type   EventType
	Object Object
}

// Snapshot is all of a resource as of one revision, in the order of Key.Compare.
type Snapshot struct {
	Type     Type
	Revision edge.Revision
	// History is the history of Revision. A source that does not distinguish histories leaves 0.
	History edge.History
	// Before is the highest known revision of earlier histories; 0 means that none is known.
	Before  edge.Revision
	Objects []Object
}

// Source gives streams. Safe for concurrent use.
type Source interface {
	// Snapshot returns all objects. It fails with ErrNotReady while the source itself is not complete.
	Snapshot(ctx context.Context) (Snapshot, error)
	// Watch returns all changes after a revision, which must not be 0. If the source has not reached that revision yet, the
	// watch waits for it. For a revision outside the source's history, Watch or the first Next fails with ErrExpired.
	Watch(ctx context.Context, after edge.Revision) (Watch, error)
}

// Watch is a stream of changes under way. It is used by one goroutine at a time.
type Watch interface {
	// Next waits for events and returns one or more, in order. The slice is valid until the next call. After an error the watch
	// is over. At an orderly end the error is io.EOF: resume after the last revision. The error is ErrExpired if the reader has
	// fallen out of the history, or if the source has begun a new one. Otherwise it is the cause of ctx, or what broke the
	// stream.
	Next(ctx context.Context) ([]Event, error)
	// Close ends the watch and frees what it holds. It may be called twice, and while Next waits in another goroutine.
	Close() error
}

// Sink takes streams. It is used by one goroutine at a time.
type Sink interface {
	// Position is the revision up to which the sink has everything; 0 if it has nothing complete.
	Position() edge.Revision
	// Replace makes the content equal to a Snapshot.
	Replace(ctx context.Context, s Snapshot) error
	// Apply applies changes that follow, without a gap, after Position. It ignores changes at or before Position, so a
	// repetition does no harm. After an error Position says what was applied.
	Apply(ctx context.Context, events []Event) error
}
