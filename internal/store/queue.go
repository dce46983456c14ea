package store

import (
	"context"
	"fmt"
	"time"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/stream"
)

// What wakes the writer at once; and what an object costs in the queue besides its bytes.
const (
	flushBytes     = 1 << 20
	objectOverhead = 200
)

// entry is what is known of one Collection. Guarded by Store.mu.
type entry struct {
	disk    *stored       // nil: it is not on disk
	at      edge.Moment   // up to which everything is queued or on disk; with revision 0, Replace is needed
	told    edge.Moment   // the latest that a Sink was given since Open, taken or not
	pending *batch        // nil: nothing waits
	pace    pace          // of what waits, if it is worth a write
	read    time.Duration // by Store.asked
	touched bool          // read is to be written
	drops   int           // how often it was dropped
	hidden  bool          // dropped, while the disk may still have it
	refused time.Time     // until then nothing is taken: it had to go for others, and nobody needs it
	why     string        // why it is not on disk
}

// batch is what waits to be written of one collection, all at once.
type batch struct {
	full    bool // it replaces everything
	drop    bool // nothing comes instead
	typ     stream.Type
	to      edge.Moment // what it brings the collection to
	before  edge.Revision
	changes map[stream.Key]change
	bytes   int64
	drops   int // the collection's when it began
}

// change is an object's new state; a deletion has none.
type change struct {
	object  stream.Object
	deleted bool
}

func (c change) bytes() int64 { return int64(len(c.object.Raw)) + objectOverhead }

// put makes a change part of the batch; the last one of an object counts.
func (b *batch) put(key stream.Key, c change) {
	if old, ok := b.changes[key]; ok {
		b.bytes -= old.bytes()
		delete(b.changes, key)
	}
	if !c.deleted || !b.full {
		b.changes[key] = c
		b.bytes += c.bytes()
	}
}

// sink is a collection's way in.
type sink struct {
	store *Store
	id    Collection
}

// Position implements stream.Sink.
func (k *sink) Position() edge.Revision {
	k.store.mu.Lock()
	defer k.store.mu.Unlock()
	if c := k.store.collections[k.id]; c != nil {
		k.store.touchLocked(c)
		return c.at.Revision
	}
	return 0
}

// Replace implements stream.Sink.
func (k *sink) Replace(ctx context.Context, s stream.Snapshot) error {
	to := edge.Moment{History: s.History, Revision: s.Revision}
	b := &batch{
		full: true, typ: s.Type, to: to, before: s.Before, changes: make(map[stream.Key]change, len(s.Objects)),
	}
	if err := k.id.check(); err != nil {
		return err
	}
	if s.Revision == 0 {
		return fmt.Errorf("store: a snapshot of %s without a revision", k.id)
	}
	for _, o := range s.Objects {
		if _, err := objectKey(o.Key); err != nil {
			return err
		}
		b.put(o.Key, change{object: o})
	}
	if len(b.changes) != len(s.Objects) {
		return fmt.Errorf("store: a snapshot of %s has an object twice", k.id)
	}
	st := k.store
	if err := st.admit(ctx, k.id, to); err != nil {
		return err
	}
	defer st.mu.Unlock()
	c, now := st.collections[k.id], st.config.Now()
	if c == nil {
		c = &entry{why: "never stored"}
	}
	if to.Before(c.at) {
		return fmt.Errorf("%w: %s is at %s, the snapshot at %s", ErrOlder, k.id, c.at, to)
	}
	c.told = to
	if now.Before(c.refused) || b.bytes > st.config.maxBytes {
		c.at.Revision = 0
		return fmt.Errorf("%w: %s of %d bytes", ErrFull, k.id, b.bytes)
	}
	st.collections[k.id] = c
	b.drops = c.drops
	st.queueLocked(c, b, atOnce)
	c.at = to
	return nil
}

// Apply implements stream.Sink.
func (k *sink) Apply(ctx context.Context, events []stream.Event) error {
	var last edge.Revision
	for _, e := range events {
		last = max(last, e.Object.Revision)
		if e.Type == stream.Bookmark || e.Type == stream.InitialEventsEnd {
			continue
		}
		if _, err := objectKey(e.Object.Key); err != nil {
			return err
		}
	}
	st := k.store
	if err := st.admit(ctx, k.id, edge.Moment{Revision: last}); err != nil {
		return err
	}
	defer st.mu.Unlock()
	c := st.collections[k.id]
	if c == nil || c.at.Revision == 0 {
		return fmt.Errorf("store: %s: %w", k.id, ErrIncomplete)
	}
	b, before, h := c.pending, int64(0), patient
	if b == nil {
		b = &batch{changes: map[stream.Key]change{}, to: c.at, drops: c.drops}
	} else {
		before = b.bytes
	}
	for _, e := range events {
		if e.Object.Revision <= b.to.Revision {
			continue
		}
		b.to.Revision = e.Object.Revision
		switch e.Type {
		case stream.Added, stream.Modified:
			b.put(e.Object.Key, change{object: e.Object})
		case stream.Deleted:
			b.put(e.Object.Key, change{deleted: true})
			if st.config.Prompt.of(k.id) {
				h = prompt
			}
		}
	}
	if b.to == c.at {
		return nil
	}
	st.queued -= before // queueLocked counts all of it
	c.pending, c.at, c.told = nil, b.to, b.to
	st.queueLocked(c, b, h)
	return nil
}

// queueLocked makes b what waits of c, and wakes the writer. Bookmarks alone wait for something worth a write.
func (s *Store) queueLocked(c *entry, b *batch, h haste) {
	if c.pending != nil {
		s.queued -= c.pending.bytes
	}
	c.pending = b
	s.queued += b.bytes
	if !b.drop {
		s.touchLocked(c)
	}
	if b.full || b.drop {
		h = atOnce
	} else if len(b.changes) == 0 {
		return
	}
	s.wakeLocked(&c.pace, h)
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

// admit waits until there is room in the queue and returns with mu locked; or, with an error, without. A feeder that is
// refused must begin anew: what it had to tell, up to a moment (without a history: of the collection's), is lost.
func (s *Store) admit(ctx context.Context, id Collection, to edge.Moment) error {
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
			if c := s.collections[id]; c != nil {
				c.at.Revision, to.History = 0, max(to.History, c.at.History)
				if c.told.Before(to) {
					c.told = to
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
