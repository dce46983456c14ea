package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/bbolt"
	"k8s.io/klog/v2"
)

// How often the writer does what nobody waits for: bookmarks and times of reading are written, and collections removed for
// their age. That counts time in which the cloud can be asked, and the first hour of it after a start is for whoever lives
// to read what it needs.
const (
	idleEvery    = time.Minute
	collectEvery = time.Hour
)

// Pauses between attempts to write a disk that cannot be written.
const (
	retryFirst = time.Second
	retryMost  = time.Minute
	// retryCalm is how long a disk must do well for the pauses to begin small again.
	retryCalm = 10 * time.Minute
)

// probeBytes is what must fit for a disk to count as writable again.
const probeBytes = 256 << 10

// lastFlush bounds the time that the end of Run takes.
const lastFlush = 5 * time.Second

// Run writes what Sinks were given, flushEvery after a change, less often what keeps changing, and sooner when much is
// waiting; collects what nobody reads; and tries again, with growing pauses of up to a minute, when the disk cannot be
// written. It ends with ctx, after a last flush.
func (s *Store) Run(ctx context.Context) error {
	r := &runner{
		store: s, logger: klog.FromContext(ctx), pause: retryFirst, whole: time.Now(),
	}
	r.collected, _ = s.ages()
	r.report()
	for ctx.Err() == nil {
		if err := s.failed(); err != nil {
			r.retry(ctx)
		} else if r.wait(ctx) {
			r.flush(ctx)
			r.collect(ctx)
		}
		r.report()
	}
	// What is queued is worth a moment even now.
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastFlush)
	defer cancel()
	if err := s.Flush(last); err != nil && !errors.Is(err, ErrClosed) && !errors.Is(err, ErrUnwritable) {
		return fmt.Errorf("the last flush of the store: %w", err)
	}
	return nil
}

// runner is the state of Run.
type runner struct {
	store     *Store
	logger    klog.Logger
	collected time.Duration // by Store.asked
	whole     time.Time     // when all that waited was last written
	failed    time.Time     // when writing was last impossible
	pause     time.Duration
	told      Health
}

func (s *Store) failed() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failure
}

// report says once what is wrong, and once that it is over.
func (r *runner) report() {
	h := r.store.Health()
	switch {
	case h.Err != "" && r.told.Err == "":
		r.logger.Info("The disk can't be written, going on from memory", "dir", r.store.config.Dir, "err", h.Err)
	case h.Err == "" && r.told.Err != "":
		r.logger.Info("The disk can be written again", "dir", r.store.config.Dir, "since", r.told.Since)
	}
	if h.Corrupt != r.told.Corrupt {
		r.logger.Info("The store was corrupt, what is intact of it was kept", "dir", r.store.config.Dir, "found", h.Corrupt)
	}
	if h.Foreign != r.told.Foreign {
		r.logger.Info("Removed what was encrypted on the disk with another key; it is read from the cloud again",
			"dir", r.store.config.Dir, "entries", h.Foreign-r.told.Foreign)
	}
	r.told = h
}

// wait returns true when it is time to write.
func (r *runner) wait(ctx context.Context) bool {
	for {
		due, now := r.store.due()
		if now {
			return true
		}
		if idle := r.whole.Add(idleEvery); due.IsZero() || idle.Before(due) {
			due = idle
		}
		timer := time.NewTimer(time.Until(due))
		select {
		case <-ctx.Done():
			timer.Stop()
			return false
		case <-timer.C:
			return true
		case <-r.store.waiting:
			timer.Stop()
		}
	}
}

// due is when something must be written, zero if nothing waits; or now: much waits, or writing has failed, which is for the
// writer to find out.
func (s *Store) due() (due time.Time, now bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return time.Time{}, false
	}
	add := func(p *pace) {
		if at := p.due(s.config.flushEvery); !p.first.IsZero() && (due.IsZero() || at.Before(due)) {
			due = at
		}
	}
	add(&s.blobs.pace)
	for _, c := range s.collections {
		add(&c.pace)
	}
	return due, s.failure != nil || s.queued >= flushBytes
}

// flush writes what is due, and with it what may be; now and then, and when much waits, everything.
func (r *runner) flush(ctx context.Context) {
	all := time.Since(r.whole) >= idleEvery || r.store.muchWaits()
	if all {
		r.whole = time.Now()
	}
	_ = r.store.flush(ctx, all) // report says so
}

func (s *Store) muchWaits() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.queued >= flushBytes
}

// retry opens the file anew after a pause.
func (r *runner) retry(ctx context.Context) {
	if now := time.Now(); now.Sub(r.failed) > retryCalm {
		r.pause = retryFirst
	}
	pause := time.NewTimer(r.pause)
	defer pause.Stop()
	r.pause = min(2*r.pause, retryMost)
	select {
	case <-ctx.Done():
		return
	case <-pause.C:
	}
	_ = r.store.recover(ctx) // report says so
	r.failed = time.Now()
}

// collect drops what nobody reads, and what there is no space for.
func (r *runner) collect(ctx context.Context) {
	s, unread := r.store, time.Duration(0)
	if asked, may := s.ages(); may && asked-r.collected >= collectEvery {
		r.collected, unread = asked, unreadFor
	}
	if n := s.collect(unread); n > 0 {
		r.logger.V(1).Info("Collections removed from the disk: nobody read them, or there is no space", "collections", n)
		_ = s.Flush(ctx) // report says so
	}
}

// ages returns what the clock shows by which collections grow old, and whether they may be collected for their age now.
func (s *Store) ages() (asked time.Duration, may bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked.at(s.config.Now()), s.asked.online && s.needed != nil
}

// collect drops victims and returns their number. With unread 0 only space counts.
func (s *Store) collect(unread time.Duration) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []candidate
	for id, c := range s.collections {
		if c.disk != nil && !c.hidden && !s.needed[id] {
			v := candidate{id: id, bytes: int64(c.disk.objects.bytes), read: c.read}
			if s.config.Last != nil && s.config.Last(id) {
				v.last = 1
			}
			all = append(all, v)
		}
	}
	now := s.config.Now()
	gone := victims(all, s.used-s.config.maxBytes, s.asked.at(now), unread)
	for id, space := range gone {
		s.dropLocked(id)
		c := s.collections[id]
		c.why = "nobody read it"
		if space {
			c.why, c.refused = "there was no space for it", now.Add(refuseFor)
		}
	}
	for id, c := range s.collections {
		if c.disk == nil && c.pending == nil && c.at.Revision == 0 && !c.hidden && !now.Before(c.refused) {
			delete(s.collections, id)
		}
	}
	return len(gone)
}

// Flush writes all that has been queued until now. It works without Run, too.
func (s *Store) Flush(ctx context.Context) error { return s.flush(ctx, true) }

// flush writes all that waits, or only what is ready by its pace.
func (s *Store) flush(ctx context.Context, all bool) error {
	select {
	case <-s.writing:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { s.writing <- struct{}{} }()
	s.mu.Lock()
	if s.closed || s.failure != nil {
		defer s.mu.Unlock()
		if s.closed {
			return ErrClosed
		}
		return fmt.Errorf("%w: %w", ErrUnwritable, s.failure)
	}
	file, w := s.file, s.takeLocked(all)
	s.mu.Unlock()
	if w.empty() && !file.wantsClock(w) {
		return nil
	}
	err := file.write(w, s.fault)
	used := file.used()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		err = fmt.Errorf("write the store: %w", err)
		s.putBackLocked(w)
		s.failLocked(err)
		return err
	}
	s.used = used
	s.doneLocked(w)
	return nil
}

// takeLocked takes what waits: all of it, or only what is ready.
func (s *Store) takeLocked(all bool) work {
	w, now := work{garbage: s.garbage, asked: s.asked.at(s.config.Now())}, time.Now()
	for id, c := range s.collections {
		if c.pending == nil && !c.touched {
			c.pace.first = time.Time{}
			continue
		}
		if !all && !c.pace.ready(now) {
			continue
		}
		j := &job{id: id, batch: c.pending, disk: c.disk, read: c.read}
		if j.batch == nil && j.disk == nil {
			c.touched = false
			continue
		}
		c.pending, c.touched = nil, false
		c.pace.written(now)
		w.jobs = append(w.jobs, j)
	}
	s.garbage = nil
	if len(s.blobs.waiting) == 0 {
		s.blobs.pace.first = time.Time{} // what waited was removed before it was written
	} else if all || s.blobs.pace.ready(now) {
		s.blobs.pace.written(now)
		w.blobs = s.blobs.waiting
		s.blobs.flying, s.blobs.waiting = w.blobs, map[string][]byte{}
	}
	return w
}

// doneLocked notes what is on disk now.
func (s *Store) doneLocked(w work) {
	for _, j := range w.jobs {
		c := s.collections[j.id]
		c.disk = j.next
		if j.batch == nil {
			continue
		}
		s.queued -= j.batch.bytes
		if j.batch.drops == c.drops {
			c.hidden = false
			if j.batch.drop && c.pending == nil && !c.refused.After(s.config.Now()) {
				delete(s.collections, j.id)
			}
		}
	}
	s.blobs.done(true)
	s.roomLocked()
}

// putBackLocked keeps what must not be lost when writing has failed: removals, and blobs.
func (s *Store) putBackLocked(w work) {
	for _, j := range w.jobs {
		c := s.collections[j.id]
		if j.batch == nil {
			continue
		}
		s.queued -= j.batch.bytes
		c.at.Revision = 0
	}
	s.garbage = append(s.garbage, w.garbage...)
	s.blobs.done(false)
}

// failLocked stops writing. What was queued is lost, and whoever queued it must begin anew.
func (s *Store) failLocked(err error) {
	s.setFailureLocked(err)
	s.proved = false
	for _, c := range s.collections {
		if c.pending != nil {
			s.queued -= c.pending.bytes
			c.at.Revision, c.pending = 0, nil
		}
		c.pace.first = time.Time{}
		if c.hidden {
			c.pending = &batch{drop: true, drops: c.drops}
		}
	}
	s.roomLocked()
}

// recover closes the file, verifies it anew, and writes as much as a flush would. While the disk stays full it does that
// once, and then only looks for room.
func (s *Store) recover(ctx context.Context) error {
	select {
	case <-s.writing:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { s.writing <- struct{}{} }()
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return ErrClosed
	}
	file, failure, proved := s.file, s.failure, s.proved
	s.mu.Unlock()
	if proved {
		// Nothing has changed since. That the disk is as full as it was costs less to find out than reading all of the file.
		if err := room(s.config.Dir, s.fault); err != nil {
			return err
		}
	}
	file.close(failure)
	o := openFile(s.config.Dir, s.vault, s.fault)
	if o.err == nil {
		if o.err = o.file.probe(s.fault); o.err != nil {
			o.file.close(o.err)
			o.file = openReading(s.config.Dir)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.adoptLocked(o)
	if o.err == nil {
		s.resumeLocked()
	}
	return o.err
}

// room writes and removes a file that takes twice what probe does.
func room(dir string, point faults) error {
	if err := point.at("room"); err != nil {
		return fmt.Errorf("write the store: %w", err)
	}
	path := filepath.Join(dir, newName)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = f.Write(make([]byte, 2*probeBytes))
		err = errors.Join(err, f.Sync(), f.Close(), os.Remove(path)) // Sync, for a disk may find only then that it is full
	}
	if err != nil {
		return fmt.Errorf("write the store: %w", err)
	}
	return nil
}

// resumeLocked lets the writer write what a failure has left.
func (s *Store) resumeLocked() {
	for _, c := range s.collections {
		if c.pending != nil {
			s.wakeLocked(&c.pace, atOnce)
		}
	}
	if len(s.blobs.waiting) > 0 {
		s.wakeLocked(&s.blobs.pace, atOnce)
	}
}

// probe writes and removes as much as a flush may.
func (f *file) probe(point faults) error {
	key := []byte("probe")
	err := f.update(point, func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte(bucketFormat)).Put(key, make([]byte, probeBytes))
	})
	if err == nil {
		err = f.update(point, func(tx *bbolt.Tx) error { return tx.Bucket([]byte(bucketFormat)).Delete(key) })
	}
	if err != nil {
		return fmt.Errorf("write the store: %w", err)
	}
	return nil
}
