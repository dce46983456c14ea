package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"maps"
	"slices"
	"strings"
	"time"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/stream"
)

// flushBytes in the queue wake the writer at once. objectOverhead is what an object costs in the queue besides its bytes, and
// blobOverhead what a blob costs in memory. The others bound blobs.
const (
	flushBytes     = 1 << 20
	objectOverhead = 200
	maxBlobKey     = 1 << 10
	maxBlob        = 1 << 20
	blobOverhead   = 1 << 10
	usualBlobBytes = 16 << 20
)

// maxTold bounds the collections of a Store without a disk: beyond it all Sinks begin anew.
const maxTold = 10_000

// entry is what is known of one key. Guarded by Store.mu.
type entry struct {
	state  *state // on disk; nil: none
	next   *batch // waits to be written; nil: nothing does
	flying *batch // is being written
	gone   bool   // it was dropped, while the disk may still have it
	why    string // why it is not on disk
	own    pace
	pace   *pace // of what waits, if it is worth a write: its own, or that of all blobs

	// Of a blob.
	put uint64 // by Store.puts; 0: not since Open
	sum uint64 // of the value; 0: unknown

	// Of a collection.
	at      edge.Moment   // up to which everything is queued or on disk; with revision 0, Replace is needed
	told    edge.Moment   // the latest that a Sink was given since Open, taken or not
	read    time.Duration // by Store.asked
	touched bool          // read is to be written
	refused time.Time     // until then nothing is taken: it had to go for others, and nobody needs it
}

// batch is what waits to be written of one key, all at once.
type batch struct {
	full    bool // it replaces everything
	drop    bool // nothing comes instead
	typ     stream.Type
	to      edge.Moment // what it brings the key to
	before  edge.Revision
	changes map[stream.Key]change
	bytes   int64
}

// change is an object's new state; of one that is deleted, only the key. A blob is one object without a name.
type change struct {
	object  stream.Object
	deleted bool
}

func (c change) bytes() int64 { return int64(len(c.object.Raw)) + objectOverhead }

// put makes a change part of the batch; the last one of an object counts.
func (b *batch) put(c change) {
	if old, ok := b.changes[c.object.Key]; ok {
		b.bytes -= old.bytes()
		delete(b.changes, c.object.Key)
	}
	if !c.deleted || !b.full {
		b.changes[c.object.Key] = c
		b.bytes += c.bytes()
	}
}

// value is a blob's.
func (b *batch) value() []byte { return b.changes[stream.Key{}].object.Raw }

// latest returns what a key's state will be, as far as it is not on disk yet; nil means that all of it is.
func (e *entry) latest() *batch {
	if e == nil {
		return nil
	}
	if e.next != nil {
		return e.next
	}
	return e.flying
}

// cost returns how many bytes a blob counts for: its key, its value and blobOverhead. It returns 0 for a blob without a value,
// and for a collection.
func (e *entry) cost(k key) int {
	switch b := e.latest(); {
	case k.blob == "" || e == nil || b != nil && b.drop || b == nil && e.state == nil:
		return 0
	case b != nil:
		return len(k.blob) + len(b.value()) + blobOverhead
	}
	return len(k.blob) + int(e.state.size) + blobOverhead
}

// queueLocked makes b the batch that waits for a key, and wakes the writer.
func (s *Store) queueLocked(k key, e *entry, b *batch, h haste) {
	kind := s.kindOf(k)
	s.blobBytes[kind] -= e.cost(k)
	if e.next != nil {
		s.queued -= e.next.bytes
	}
	e.next = b
	s.queued += b.bytes
	s.blobBytes[kind] += e.cost(k)
	s.wakeLocked(e.pace, h)
}

// dropLocked removes a key. A batch of it that is being written no longer counts.
func (s *Store) dropLocked(k key, why string) {
	e := s.entries[k]
	if e == nil || s.closed {
		return
	}
	s.blobBytes[s.kindOf(k)] -= e.cost(k)
	if e.next != nil {
		s.queued -= e.next.bytes
	}
	delete(s.entries, k)
	if e.state == nil && e.flying == nil && !e.gone {
		return
	}
	h := atOnce
	if k.blob != "" {
		if h = patient; s.config.Prompt.of(k) {
			h = prompt
		}
	}
	e = s.entryLocked(k)
	e.gone, e.why = true, why
	s.queueLocked(k, e, &batch{drop: true}, h)
}

// wakeLocked lets the writer write when the pace of what waits says so, or at once if much waits.
func (s *Store) wakeLocked(p *pace, h haste) {
	if p.change(time.Now(), s.config.flushEvery, h) || s.queued >= flushBytes {
		signal(s.waiting)
	}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Sink returns the Sink that writes a collection. All Sinks of a collection share their position, so only one may be used at a
// time.
//
// A Sink writes behind: Replace and Apply return when the change is queued. They block while too much waits in the queue.
// Position is the revision of the last queued change; after Open, it is that of the disk. It falls to 0 when queued changes are
// lost, because the disk could not be written, or the collection was dropped, removed (see Need), or found corrupt. Apply then
// fails until a Replace, which writes only what differs. So there is never a gap, however careless the caller is.
//
// A Sink in use counts as a reader, even if it is only asked for its Position. So a collection that somebody keeps current does
// not grow old.
func (s *Store) Sink(id Collection) stream.Sink { return &sink{store: s, key: key{Collection: id}} }

// sink is a collection's way in.
type sink struct {
	store *Store
	key   key
}

// Position implements stream.Sink.
func (k *sink) Position() edge.Revision {
	k.store.mu.Lock()
	defer k.store.mu.Unlock()
	if e := k.store.entries[k.key]; e != nil {
		k.store.touchLocked(e)
		return e.at.Revision
	}
	return 0
}

// Replace implements stream.Sink.
func (k *sink) Replace(ctx context.Context, s stream.Snapshot) error {
	to := edge.Moment{History: s.History, Revision: s.Revision}
	b := &batch{
		full: true, typ: s.Type, to: to, before: s.Before, changes: make(map[stream.Key]change, len(s.Objects)),
	}
	if err := k.key.check(); err != nil {
		return err
	}
	if s.Revision == 0 {
		return fmt.Errorf("store: a snapshot of %s without a revision", k.key)
	}
	for _, o := range s.Objects {
		b.put(change{object: o})
	}
	if len(b.changes) != len(s.Objects) {
		return fmt.Errorf("store: a snapshot of %s has an object twice", k.key)
	}
	st := k.store
	if err := st.admit(ctx, k.key, to); err != nil {
		return err
	}
	defer st.mu.Unlock()
	if st.diskless && len(st.entries) >= maxTold {
		st.forgetToldLocked()
	}
	e := st.entryLocked(k.key)
	if to.Before(e.at) {
		return fmt.Errorf("%w: %s is at %s, the snapshot at %s", ErrOlder, k.key, e.at, to)
	}
	e.told = to
	if st.config.Now().Before(e.refused) || b.bytes > st.config.maxBytes {
		e.at.Revision = 0
		return fmt.Errorf("%w: %s of %d bytes", ErrFull, k.key, b.bytes)
	}
	e.at = to
	st.touchLocked(e)
	if !st.diskless {
		st.queueLocked(k.key, e, b, atOnce)
	}
	return nil
}

// forgetToldLocked forgets all collections of a Store without a disk if there are maxTold of them. The blobs stay, because they
// are nowhere else.
func (s *Store) forgetToldLocked() {
	told := 0
	for k := range s.entries {
		if k.blob == "" {
			told++
		}
	}
	if told >= maxTold {
		maps.DeleteFunc(s.entries, func(k key, _ *entry) bool { return k.blob == "" })
	}
}

// Apply implements stream.Sink.
func (k *sink) Apply(ctx context.Context, events []stream.Event) error {
	var last edge.Revision
	for _, e := range events {
		last = max(last, e.Object.Revision)
	}
	st := k.store
	if err := st.admit(ctx, k.key, edge.Moment{Revision: last}); err != nil {
		return err
	}
	defer st.mu.Unlock()
	e := st.entries[k.key]
	if e == nil || e.at.Revision == 0 {
		return fmt.Errorf("store: %s: %w", k.key, ErrIncomplete)
	}
	b, h := e.next, patient
	if b == nil {
		b = &batch{changes: map[stream.Key]change{}, to: e.at}
	}
	st.queued -= b.bytes // all of it is counted below
	for _, event := range events {
		if event.Object.Revision <= b.to.Revision {
			continue
		}
		b.to.Revision = event.Object.Revision
		switch event.Type {
		case stream.Added, stream.Modified:
			b.put(change{object: event.Object})
		case stream.Deleted:
			b.put(change{object: stream.Object{Key: event.Object.Key}, deleted: true})
			if st.config.Prompt.of(k.key) {
				h = prompt
			}
		}
	}
	st.touchLocked(e)
	st.queued += b.bytes
	if b.to == e.at {
		return nil
	}
	e.at, e.told = b.to, b.to
	if st.diskless {
		return nil
	}
	if e.next = b; b.full || len(b.changes) > 0 { // bookmarks alone wait for something worth a write
		st.wakeLocked(e.pace, h)
	}
	return nil
}

// admit waits until the queue has room, and returns with mu locked. If it fails, it returns with mu unlocked. If the store is
// closed or can't be written, the collection needs a Replace, and admit records the moment to which the caller would have brought
// the collection (to). If the collection is in a later history than that moment, the later history is recorded.
func (s *Store) admit(ctx context.Context, k key, to edge.Moment) error {
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		s.mu.Lock()
		if s.closed || s.failure != nil {
			err := fmt.Errorf("%w: %w", ErrUnwritable, s.failure)
			if s.closed {
				err = ErrClosed
			}
			if e := s.entries[k]; e != nil {
				e.at.Revision, to.History = 0, max(to.History, e.at.History)
				if e.told.Before(to) {
					e.told = to
				}
			}
			s.mu.Unlock()
			return err
		}
		if s.queued < s.config.queueBytes {
			return nil
		}
		room := s.room
		s.mu.Unlock()
		select {
		case <-room:
		case <-ctx.Done():
		}
	}
}

// check says whether a collection can be stored.
func (id Collection) check() error {
	head := frame{key: key{Collection: id}}
	if len(head.encode()) > maxKey || id.Resource.Resource == "" || id.Resource.Version == "" {
		return fmt.Errorf("store: collection %s: want a version, a resource and at most %d bytes", id, maxKey)
	}
	return nil
}

// kindOf returns the kind whose bound counts for a blob. That is the beginning of its key, including the first slash, if
// Config.BlobBytes has a bound for it. Otherwise it is "".
func (s *Store) kindOf(k key) string {
	kind := k.blob[:strings.IndexByte(k.blob, '/')+1]
	if _, ok := s.config.BlobBytes[kind]; !ok {
		return ""
	}
	return kind
}

// PutBlob keeps a small value under a key: the key has at most 1 KiB, the value at most 1 MiB. The next flush writes the value,
// unless the disk has the same. The value waits while the disk can't be written. If the bound of the blob's kind
// (Config.BlobBytes) is exceeded, other blobs of the kind go. If the blob alone exceeds the bound, PutBlob fails with ErrFull.
// The key then has no value, because an old one would be wrong.
func (s *Store) PutBlob(name string, value []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrClosed
	}
	if name == "" || len(name) > maxBlobKey || len(value) > maxBlob {
		return fmt.Errorf("%w: blob %.40q of %d bytes: want a key of 1 to %d, and a value of at most %d",
			ErrFull, name, len(value), maxBlobKey, maxBlob)
	}
	k := key{blob: name}
	e, sum := s.entryLocked(k), maphash.Bytes(s.seed, value)
	s.puts++
	if e.put = s.puts; e.sum == sum && e.cost(k) > 0 && s.failure == nil {
		return nil
	}
	kind, cost := s.kindOf(k), len(name)+len(value)+blobOverhead
	if cost > s.config.BlobBytes[kind] {
		s.dropLocked(k, "dropped")
		return fmt.Errorf("%w: blob %.40q of %d bytes", ErrFull, name, len(value))
	}
	s.makeRoomLocked(k, s.blobBytes[kind]-e.cost(k)+cost-s.config.BlobBytes[kind])
	e.sum = sum
	h := patient // an older value is of use after a crash, none is not
	if e.state == nil {
		h = atOnce
	}
	object := stream.Object{Raw: bytes.Clone(value)}
	s.queueLocked(k, e, &batch{full: true, changes: map[stream.Key]change{{}: {object: object}}}, h)
	return nil
}

// makeRoomLocked removes blobs of the same kind as k, but not k, until their bytes are fewer by excess. The owner that has most
// bytes loses the blob that was put least recently. So an owner with many blobs does not displace the few of another.
func (s *Store) makeRoomLocked(k key, excess int) {
	if excess <= 0 {
		return
	}
	type blob struct {
		key   key
		entry *entry
	}
	kind, owned, sizes := s.kindOf(k), map[string][]blob{}, map[string]int{}
	for other, e := range s.entries {
		if n := e.cost(other); n > 0 && other != k && s.kindOf(other) == kind {
			of := owner(other.blob)
			owned[of], sizes[of] = append(owned[of], blob{other, e}), sizes[of]+n
		}
	}
	for excess > 0 && len(sizes) > 0 {
		most := ""
		for of, n := range sizes {
			if n > sizes[most] {
				most = of
			}
		}
		oldest := 0
		for i, b := range owned[most] {
			if b.entry.putBefore(owned[most][oldest].entry) {
				oldest = i
			}
		}
		b := owned[most][oldest]
		n := b.entry.cost(b.key)
		s.dropLocked(b.key, "there was no space for it")
		excess, owned[most] = excess-n, slices.Delete(owned[most], oldest, oldest+1)
		if sizes[most] -= n; sizes[most] == 0 {
			delete(sizes, most)
		}
	}
}

// owner returns whose a blob is: the beginning of its key, including the second slash, or else the first one.
func owner(name string) string {
	kind := strings.IndexByte(name, '/') + 1
	return name[:kind+strings.IndexByte(name[kind:], '/')+1]
}

// putBefore reports whether a blob was put before another one. Of blobs that were put before Open, the place in the file counts.
func (e *entry) putBefore(other *entry) bool {
	if e.put != other.put || e.state == nil || other.state == nil {
		return e.put < other.put
	}
	return e.state.last.at < other.state.last.at
}

// DropBlob removes a value, if there is one.
func (s *Store) DropBlob(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropLocked(key{blob: name}, "dropped")
}

// Blob returns the value of a key, whether it has been written yet or not. It fails with ErrMiss if there is none.
func (s *Store) Blob(name string) ([]byte, error) {
	k := key{blob: name}
	s.mu.Lock()
	b := s.entries[k].latest()
	s.mu.Unlock()
	if b != nil && !b.drop {
		return bytes.Clone(b.value()), nil
	}
	all, err := s.read(k)
	if err == nil && len(all.Objects) != 1 {
		err = errors.New("it is no single value")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %w", k, ErrMiss, err)
	}
	return all.Objects[0].Raw, nil
}

// Blobs returns the keys that begin with prefix, sorted.
func (s *Store) Blobs(prefix string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for k, e := range s.entries {
		if strings.HasPrefix(k.blob, prefix) && e.cost(k) > 0 {
			names = append(names, k.blob)
		}
	}
	slices.Sort(names)
	return names
}
