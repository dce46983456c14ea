// Package replica keeps one resource of one cluster in memory, undecoded. It serves that resource as a stream to our own
// programs, and over HTTP as an API server would (Handler).
//
// A Replica is a sorted store of objects, and a bounded record of the latest events. A watcher is a position in that record. It
// has no queue of its own, so a hundred watchers cost about as much memory as one, and a slow one delays nobody. A watcher that
// falls behind the oldest recorded event gets ErrExpired, which is Kubernetes' 410: list again.
//
// Invariants:
//
//   - The store is exactly the cluster's content at Position. Store, record and Position change together, under one lock. No I/O,
//     encoding or decoding happens under that lock.
//   - A watcher gets every event after its start revision, once and in order, or it ends with an error. A Replace empties the
//     record, because the events up to the Snapshot are unknown. A watcher that lacks some of these gets an error, never silence.
//   - A list is one revision: readers hold a copy-on-write clone of the store.
//   - Memory is bounded: the content, HistoryBytes, and what the lists under way and a few paged lists still hold.
//
// Rejected: the watch cache of k8s.io/apiserver. It keeps decoded objects, which take several times the memory, and it decodes
// and encodes for each event. It has a queue and two goroutines for each watcher, and would bring an API server's dependencies to
// every node. Rejected too: a map and a sort for each list, because one page of a list must not cost as much as the whole list.
package replica

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/google/btree"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/live"
	"yurtcoordinator/internal/stream"
)

// ErrOlder says that a snapshot is older than the content, or of an earlier history. Applying it would take clients back in time.
// Read the source again later. If the cluster itself went back (it was restored from a backup), whoever detects that gives the
// snapshot a later History.
var ErrOlder = errors.New("the snapshot is older than what is held")

// ErrDisorder says that a snapshot or a batch breaks the rules of a stream; nothing of it was applied. The source is at fault:
// take a new Snapshot.
var ErrDisorder = errors.New("not a stream in order")

// ErrClosed says that the replica has been closed.
var ErrClosed = errors.New("the replica is closed")

// Defaults of Config.
const (
	defaultHistoryBytes  = 4 << 20
	defaultHistoryEvents = 10_000
)

// degree is that of the B-tree. Its nodes have up to 63 objects of 64 bytes. While a list is held, a write copies one such node
// for each level. A thousand objects need two levels.
const degree = 32

// Config is what a Replica needs.
type Config struct {
	// Resource is what is kept; it names the resource in errors. Required.
	Resource schema.GroupVersionResource
	// HistoryBytes bounds the memory that only the history of events holds: its entries, and the former states of objects. 0
	// means 4 MiB. The newest event is kept, however large it is.
	HistoryBytes int
	// HistoryEvents bounds the number of events in it. 0 means 10,000.
	HistoryEvents int
	// Changed, if not nil, is called whenever Position or the content has changed. It must not block, nor use the Replica.
	Changed func()
}

// Replica is one resource in memory. As with any Sink, only one goroutine at a time may call Position, Replace, Apply and Reset.
// All other methods are safe for concurrent use.
type Replica struct {
	config   Config
	complete *live.Value[bool]

	mu       sync.Mutex
	closed   bool
	typ      stream.Type
	position edge.Revision // 0: incomplete
	counted  edge.History  // that position counts in
	before   edge.Revision // the highest position known of the histories before it
	objects  *btree.BTreeG[stream.Object]
	bytes    int     // of the objects
	frozen   *frozen // of objects as they are, once somebody asked
	history  history
	// generation counts the histories. diverged is the latest one that does not continue the history before it.
	generation, diverged uint64
	changed              chan struct{} // closed at the next change; nil while nobody waits
	watchers             int
	expired, corrected   uint64
}

// frozen is the content at one revision. It never changes.
type frozen struct {
	typ      stream.Type
	revision edge.Revision
	counted  edge.History
	before   edge.Revision
	objects  *btree.BTreeG[stream.Object]
	// generation is that of the history in which the content was taken.
	generation uint64
}

var (
	_ stream.Source   = (*Replica)(nil)
	_ stream.Beginner = (*Replica)(nil)
	_ stream.Sink     = (*Replica)(nil)
)

// New returns an empty Replica, which is not complete.
func New(c Config) *Replica {
	return &Replica{
		config:   c,
		complete: live.NewValue(false),
		objects:  newTree(),
		history: history{
			maxBytes:  cmp.Or(c.HistoryBytes, defaultHistoryBytes),
			maxEvents: cmp.Or(c.HistoryEvents, defaultHistoryEvents),
		},
	}
}

func newTree() *btree.BTreeG[stream.Object] {
	return btree.NewG(degree, func(a, b stream.Object) bool { return a.Key.Compare(b.Key) < 0 })
}

// Resource is what the replica keeps.
func (r *Replica) Resource() schema.GroupVersionResource { return r.config.Resource }

// Complete says whether the replica has all of its resource. The first Replace makes it true; Reset and Close make it false.
func (r *Replica) Complete() *live.Value[bool] { return r.complete }

// Position implements stream.Sink.
func (r *Replica) Position() edge.Revision {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.position
}

// History is the history of Position: that of the last Replace.
func (r *Replica) History() edge.History {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.counted
}

// Type is that of the objects; zero before the first Replace.
func (r *Replica) Type() stream.Type {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.typ
}

// Get returns one object.
func (r *Replica) Get(k stream.Key) (stream.Object, bool) {
	o, ok, _, _ := r.lookup(k)
	return o, ok
}

// lookup returns an object, the type of all, and the revision of both; 0 if the replica is incomplete.
func (r *Replica) lookup(k stream.Key) (o stream.Object, ok bool, t stream.Type, at edge.Revision) {
	r.mu.Lock()
	defer r.mu.Unlock()
	o, ok = r.objects.Get(stream.Object{Key: k})
	return o, ok, r.typ, r.position
}

// Stats are figures for metrics.
type Stats struct {
	// Position is the revision up to which everything is known, Oldest the earliest one that a watch can resume after.
	Position, Oldest edge.Revision
	// Objects are held now, in ObjectBytes bytes.
	Objects, ObjectBytes int
	// HistoryEvents is the number of remembered events; HistoryBytes is the memory that only the history holds.
	HistoryEvents, HistoryBytes int
	// Watchers are there now.
	Watchers int
	// Expired counts watchers that were told to list again. Corrected counts events that contradicted the content, and should
	// stay 0: an Added of a present object, or a Modified or Deleted of a missing one. Both count from the start.
	Expired, Corrected uint64
}

// Stats returns figures for metrics.
func (r *Replica) Stats() Stats {
	r.mu.Lock()
	defer r.mu.Unlock()
	return Stats{
		Position: r.position, Oldest: r.history.floor,
		Objects: r.objects.Len(), ObjectBytes: r.bytes,
		HistoryEvents: r.history.len(), HistoryBytes: r.history.bytes,
		Watchers: r.watchers, Expired: r.expired, Corrected: r.corrected,
	}
}

// Snapshot implements stream.Source.
func (r *Replica) Snapshot(ctx context.Context) (stream.Snapshot, error) {
	if ctx.Err() != nil {
		return stream.Snapshot{}, context.Cause(ctx)
	}
	f, err := r.freeze()
	if err != nil {
		return stream.Snapshot{}, err
	}
	return f.snapshot(), nil
}

func (f *frozen) snapshot() stream.Snapshot {
	s := stream.Snapshot{
		Type: f.typ, Revision: f.revision, History: f.counted, Before: f.before,
		Objects: make([]stream.Object, 0, f.objects.Len()),
	}
	f.objects.Ascend(func(o stream.Object) bool {
		s.Objects = append(s.Objects, o)
		return true
	})
	return s
}

// freeze returns the content as it is now.
func (r *Replica) freeze() (*frozen, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.freezeLocked()
}

// asOf returns the content at a revision if that equals the present content; otherwise nil. Revision 0 means the present one.
func (r *Replica) asOf(revision edge.Revision) (*frozen, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now, err := r.freezeLocked()
	if err != nil || revision == 0 || revision == now.revision {
		return now, err
	}
	if revision > now.revision || revision < r.history.changed() {
		return nil, nil
	}
	then := *now
	then.revision = revision
	return &then, nil
}

func (r *Replica) freezeLocked() (*frozen, error) {
	if r.position == 0 {
		return nil, fmt.Errorf("%s: %w", r.config.Resource.GroupResource(), stream.ErrNotReady)
	}
	if r.frozen == nil {
		r.frozen = &frozen{r.typ, r.position, r.counted, r.before, r.objects.Clone(), r.generation}
	}
	return r.frozen, nil
}

// Replace implements stream.Sink. Watchers that have everything up to the snapshot's revision stay; those behind it end with
// ErrExpired. All watches end with ErrExpired if the snapshot is of a later history or another type, or has other content at the
// revision that Position is at. A snapshot of a later history may have any revision. Replace fails with ErrOlder for a snapshot
// of an earlier history or from before Position, and with ErrDisorder for an invalid one. If it fails, nothing has changed.
func (r *Replica) Replace(ctx context.Context, s stream.Snapshot) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	objects, err := r.ordered(s)
	if err != nil {
		return fmt.Errorf("replace %s at revision %d: %w", r.config.Resource.GroupResource(), s.Revision, err)
	}

	// Only this goroutine changes the store, so it can be read, slowly, without the lock.
	r.mu.Lock()
	position, counted, held, typ := r.position, r.counted, r.objects, r.typ
	r.mu.Unlock()
	if position == 0 {
		counted = s.History
	}
	if s.History < counted || s.History == counted && s.Revision < position {
		return fmt.Errorf("replace %s: %w: revision %d of history %d, held is %d of %d",
			r.config.Resource.GroupResource(), ErrOlder, s.Revision, s.History, position, counted)
	}
	another := s.History != counted
	tree, size, kept := newTree(), 0, 0
	for _, o := range objects {
		if old, ok := held.Get(o); ok && old.Revision == o.Revision && typ == s.Type && !another {
			o = old // so that the copy in the snapshot can be freed
			kept++
		}
		size += len(o.Raw)
		tree.ReplaceOrInsert(o)
	}
	// The same revision with another content: one of the two was wrong, so no watch may resume from it.
	lied := position == s.Revision && (kept != len(objects) || kept != held.Len())

	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return ErrClosed
	}
	r.before = max(r.before, s.Before)
	if another {
		r.before = max(r.before, r.position)
	}
	r.beginLocked(s.Revision, lied || another || (position != 0 && typ != s.Type))
	r.objects, r.bytes, r.typ, r.position, r.counted = tree, size, s.Type, s.Revision, s.History
	r.complete.Set(true)
	return nil
}

// ordered checks a snapshot and returns its objects in the order of their keys. API servers list in the order of etcd's keys,
// which differs if one namespace's name begins with another's ("a-b/x" before "a/x").
func (r *Replica) ordered(s stream.Snapshot) ([]stream.Object, error) {
	if s.Revision == 0 {
		return nil, fmt.Errorf("%w: a snapshot without a revision", ErrDisorder)
	}
	if s.Type.Encoding != stream.JSON && s.Type.Encoding != stream.Protobuf {
		return nil, fmt.Errorf("%w: a snapshot of unknown encoding %d", ErrDisorder, s.Type.Encoding)
	}
	objects := s.Objects
	byKey := func(a, b stream.Object) int { return a.Key.Compare(b.Key) }
	if !slices.IsSortedFunc(objects, byKey) {
		objects = slices.SortedFunc(slices.Values(objects), byKey)
	}
	for i, o := range objects {
		if o.Key.Name == "" || o.Revision == 0 || o.Revision > s.Revision {
			return nil, fmt.Errorf("%w: object %q has revision %d", ErrDisorder, o.Key, o.Revision)
		}
		if i > 0 && objects[i-1].Key == o.Key {
			return nil, fmt.Errorf("%w: object %q is there twice", ErrDisorder, o.Key)
		}
	}
	return objects, nil
}

// beginLocked begins a new history after a revision, and wakes everybody.
func (r *Replica) beginLocked(after edge.Revision, diverges bool) {
	r.generation++
	if diverges {
		r.diverged = r.generation
	}
	r.history.begin(after)
	r.frozen = nil
	r.wakeLocked()
}

func (r *Replica) wakeLocked() {
	if r.config.Changed != nil {
		r.config.Changed()
	}
	if r.changed != nil {
		close(r.changed)
		r.changed = nil
	}
}

// Apply implements stream.Sink. If a batch is out of order, Apply refuses all of it, with ErrDisorder. Apply corrects the type of
// an event that contradicts the content (Stats.Corrected). So watchers never see an Added of a present object, or a Modified of a
// missing one.
func (r *Replica) Apply(ctx context.Context, events []stream.Event) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err := inOrder(events); err != nil {
		return fmt.Errorf("apply to %s: %w", r.config.Resource.GroupResource(), err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.closed:
		return ErrClosed
	case r.position == 0:
		return fmt.Errorf("apply to %s: %w: changes need a snapshot first", r.config.Resource.GroupResource(), stream.ErrNotReady)
	}
	before := r.position
	for _, e := range events {
		if e.Object.Revision <= r.position {
			continue
		}
		r.applyLocked(e)
		r.position = e.Object.Revision
	}
	if r.position != before {
		r.frozen = nil
		r.wakeLocked()
	}
	return nil
}

// inOrder checks that revisions ascend, each once; a bookmark may repeat the one before it.
func inOrder(events []stream.Event) error {
	var last edge.Revision
	for i, e := range events {
		o := e.Object
		switch e.Type {
		case stream.Added, stream.Modified, stream.Deleted:
			if o.Key.Name == "" {
				return fmt.Errorf("%w: event %d of %d has no name", ErrDisorder, i+1, len(events))
			}
			if o.Revision <= last {
				return fmt.Errorf("%w: %s %q at revision %d comes after %d", ErrDisorder, e.Type, o.Key, o.Revision, last)
			}
		case stream.Bookmark, stream.InitialEventsEnd:
			if o.Revision < last {
				return fmt.Errorf("%w: a bookmark at revision %d comes after %d", ErrDisorder, o.Revision, last)
			}
		default:
			return fmt.Errorf("%w: event %d of %d is of unknown type %d", ErrDisorder, i+1, len(events), e.Type)
		}
		last = o.Revision
	}
	return nil
}

func (r *Replica) applyLocked(e stream.Event) {
	var old stream.Object
	var was bool
	switch e.Type {
	case stream.Added, stream.Modified:
		old, was = r.objects.ReplaceOrInsert(e.Object)
		r.bytes += len(e.Object.Raw) - len(old.Raw)
		if was != (e.Type == stream.Modified) {
			r.corrected++
			e.Type = map[bool]stream.EventType{true: stream.Modified, false: stream.Added}[was]
		}
	case stream.Deleted:
		old, was = r.objects.Delete(e.Object)
		r.bytes -= len(old.Raw)
		if !was {
			r.corrected++
			return // what was never there cannot go
		}
	default:
		return // bookmarks move Position, which watchers are told of
	}
	r.history.add(change{Event: e, Old: old})
}

// leads reports whether the present content continues a content that a client has read, so that a watch may resume from there.
func (r *Replica) leads(c *frozen) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return c.generation >= r.diverged
}

// Reset empties the replica and ends all watches with ErrExpired. The replica is incomplete until the next Replace, which may
// have any revision and history.
func (r *Replica) Reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.emptyLocked()
}

func (r *Replica) emptyLocked() {
	r.complete.Set(false)
	r.objects, r.bytes, r.position, r.typ, r.counted = newTree(), 0, 0, stream.Type{}, 0
	r.beginLocked(0, true)
}

// Close ends all watches with io.EOF and frees the content. Nothing can be applied or read afterwards.
func (r *Replica) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	r.emptyLocked()
}
