package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"k8s.io/klog/v2"
)

// idleEvery is how often the writer writes what nobody waits for: bookmarks and the times of reading. collectEvery is how often
// it removes collections that nobody has read for unreadFor. Only the time in which the cloud can be asked counts. In the first
// such hour after a start the writer removes none for its age, because programs must first read what they need.
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

// probeBytes is how many bytes must fit on a disk that failed before it counts as writable again.
const probeBytes = 512 << 10

// lastFlush bounds the time that the end of Run takes.
const lastFlush = 5 * time.Second

// Run writes what was queued: flushEvery after a change, less often if a collection keeps changing, and sooner when much waits.
// It removes collections that nobody reads. When the disk can't be written, it tries again, with growing pauses of up to a
// minute. When ctx ends, Run returns after a last flush.
func (s *Store) Run(ctx context.Context) error {
	if s.diskless {
		<-ctx.Done()
		return nil
	}
	r := &runner{Store: s, logger: klog.FromContext(ctx).WithValues("dir", s.config.Dir), whole: time.Now()}
	for ctx.Err() == nil {
		r.report()
		timer := time.NewTimer(time.Until(r.due()))
		select {
		case <-timer.C:
			r.step(ctx)
		case <-s.waiting:
		case <-ctx.Done():
		}
		timer.Stop()
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
	*Store
	logger klog.Logger
	whole  time.Time     // when all that waited was last written
	failed time.Time     // when writing was last impossible
	pause  time.Duration // before the disk is tried again; 0 while it can be written
	next   time.Duration // the pause after that
	told   Health
}

// due returns when there is something to do: changes are to be written, or a disk that failed is to be tried again.
func (r *runner) due() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	now, due := time.Now(), r.whole.Add(idleEvery)
	switch {
	case r.closed:
		return due
	case r.failure != nil && r.pause == 0:
		if now.Sub(r.failed) > retryCalm {
			r.next = retryFirst
		}
		r.failed, r.pause, r.next = now, r.next, min(2*r.next, retryMost)
		fallthrough
	case r.failure != nil:
		return r.failed.Add(r.pause)
	case r.queued >= flushBytes:
		return now
	}
	add := func(p *pace) {
		if at := p.due(r.config.flushEvery); !p.first.IsZero() && at.Before(due) {
			due = at
		}
	}
	add(&r.blobPace)
	for _, e := range r.entries {
		add(&e.own)
	}
	return due
}

// step does what is due. It writes the changes whose time has come. Every idleEvery, and when much waits, it writes everything.
// If writing has failed before, step only tries to make the disk work again. The function report logs failures.
func (r *runner) step(ctx context.Context) {
	r.mu.Lock()
	all := time.Since(r.whole) >= idleEvery || r.queued >= flushBytes
	r.mu.Unlock()
	if r.pause > 0 {
		_ = r.recover(ctx)
		r.pause = 0
		return
	}
	if all {
		r.whole = time.Now()
	}
	_ = r.flush(ctx, all)
	if n := r.collect(); n > 0 {
		r.logger.V(1).Info("Collections removed from the disk: nobody read them, or there is no space", "collections", n)
		_ = r.Flush(ctx)
	}
}

// report says once what is wrong, and once that it is over.
func (r *runner) report() {
	h := r.Health()
	switch {
	case h.Err != "" && r.told.Err == "":
		r.logger.Info("The disk can't be written, going on from memory", "err", h.Err)
	case h.Err == "" && r.told.Err != "":
		r.logger.Info("The disk can be written again", "since", r.told.Since)
	}
	if h.Corrupt != r.told.Corrupt {
		r.logger.Info("The store was corrupt, what is intact of it was kept", "found", h.Corrupt)
	}
	if h.Torn != r.told.Torn {
		r.logger.Info("Cut off the end of the store: what was being written when this node or yurthub stopped is not whole",
			"bytes", h.Torn-r.told.Torn)
	}
	if h.Foreign != r.told.Foreign {
		r.logger.Info("Removed what was encrypted on the disk with another key; it is read from the cloud again",
			"entries", h.Foreign-r.told.Foreign)
	}
	r.told = h
}

// Flush writes all that has been queued until now. It works without Run, too.
func (s *Store) Flush(ctx context.Context) error { return s.flush(ctx, true) }

// token takes the token to write. The caller gives it back by calling release.
func (s *Store) token(ctx context.Context) (release func(), err error) {
	select {
	case <-s.writing:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	release = func() { s.writing <- struct{}{} }
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		release()
		return nil, ErrClosed
	}
	return release, nil
}

// flush writes all that waits, or only what is ready by its pace.
func (s *Store) flush(ctx context.Context, all bool) error {
	if s.diskless {
		return nil
	}
	release, err := s.token(ctx)
	if err != nil {
		return err
	}
	defer release()
	s.mu.Lock()
	if s.failure != nil {
		defer s.mu.Unlock()
		return fmt.Errorf("%w: %w", ErrUnwritable, s.failure)
	}
	log, jobs, asked := s.log, s.takeLocked(all), s.asked.at(s.config.Now())
	s.mu.Unlock()
	if len(jobs) == 0 && asked-log.clock < clockLag {
		return nil
	}
	err = log.append(jobs, asked, s.fault)
	s.mu.Lock()
	if err != nil {
		defer s.mu.Unlock()
		err = fmt.Errorf("write the store: %w", err)
		s.failLocked(err, jobs...)
		return err
	}
	s.doneLocked(jobs)
	roomy := log.end > 2*s.live+compactBytes || s.health.Bytes > max(s.config.maxBytes, s.live)
	s.mu.Unlock()
	if roomy && log.end >= s.compactFrom {
		if err := s.compact(); err != nil { // what was to be written is: the file only stays as large as it is
			klog.FromContext(ctx).Info("The store can't be made smaller; trying again when it has grown", "err", err)
			s.compactFrom = s.log.end + compactBytes
		}
	}
	return nil
}

// takeLocked takes what waits: all of it, or only what is ready.
func (s *Store) takeLocked(all bool) (jobs []*job) {
	now := time.Now()
	blobs := all || s.blobPace.ready(now)
	waits := false // a blob
	for k, e := range s.entries {
		ready := all || e.own.ready(now)
		if k.blob != "" {
			ready, waits = blobs, waits || e.next != nil
		}
		if e.next == nil && (!e.touched || e.state == nil) {
			e.touched, e.own.first = false, time.Time{}
		} else if ready {
			jobs = append(jobs, &job{key: k, entry: e, next: e.next, old: e.state, read: e.read})
			e.next, e.flying, e.touched = nil, e.next, false
			e.own.written(now)
		}
	}
	if !waits {
		s.blobPace.first = time.Time{} // what waited was removed before it was written
	} else if blobs {
		s.blobPace.written(now)
	}
	return jobs
}

// doneLocked notes what is on disk now.
func (s *Store) doneLocked(jobs []*job) {
	for _, j := range jobs {
		e := j.entry
		if e.state, e.flying = j.state, nil; j.next == nil {
			continue
		}
		s.queued -= j.next.bytes
		e.gone = false // what replaces it is written, or that it is removed
		if j.next.drop && e.next == nil && !e.refused.After(s.config.Now()) && s.entries[j.key] == e {
			delete(s.entries, j.key)
		}
	}
	s.measureLocked()
	s.roomLocked()
}

// failLocked stops writing. It drops the queued changes of collections, including those being written. Their Sinks then need a
// Replace. It keeps queued blobs, and queued removals of whole collections and of blobs.
func (s *Store) failLocked(err error, jobs ...*job) {
	s.setFailureLocked(err)
	for _, j := range jobs {
		e := j.entry
		if e.flying = nil; j.next == nil {
			continue
		}
		s.queued -= j.next.bytes
		if e.at.Revision = 0; j.key.blob != "" && e.next == nil {
			e.next = j.next
		}
	}
	for k, e := range s.entries {
		if k.blob != "" {
			continue
		}
		if e.next != nil {
			s.loseLocked(e)
		}
		if e.own.first = (time.Time{}); e.gone {
			e.next = &batch{drop: true}
		}
	}
	s.roomLocked()
}

// loseLocked forgets what waits of a collection. Whoever queued it must begin anew.
func (s *Store) loseLocked(e *entry) {
	if e.at.Revision = 0; e.next != nil {
		s.queued -= e.next.bytes
		e.next = nil
	}
}

// recover opens the file anew when there is room to write, and lets the writer write what the failure has left.
func (s *Store) recover(ctx context.Context) error {
	release, err := s.token(ctx)
	if err != nil {
		return err
	}
	defer release()
	if err := probe(s.config.Dir, s.fault); err != nil {
		return err
	}
	err = s.reopen()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.setFailureLocked(err); err != nil {
		return err
	}
	for _, e := range s.entries {
		if e.next != nil {
			s.wakeLocked(e.pace, atOnce)
		}
	}
	return nil
}

// probe writes and removes a file. While a disk stays full, that costs less than to read all of the log.
func probe(dir string, point faults) error {
	if err := point.at("room"); err != nil {
		return fmt.Errorf("write the store: %w", err)
	}
	path := filepath.Join(dir, newName)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = f.Write(make([]byte, probeBytes))
		err = errors.Join(err, f.Sync(), f.Close(), os.Remove(path)) // Sync, for a disk may find only then that it is full
	}
	if err != nil {
		return fmt.Errorf("write the store: %w", err)
	}
	return nil
}

// compact writes the log's states into a new file, which replaces the old one. Meanwhile readers use the old file, and new
// changes wait. The caller must have the token to write.
func (s *Store) compact() error {
	if err := s.fault.at("rewrite"); err != nil {
		return err
	}
	var jobs []*job
	s.mu.Lock()
	old := s.log
	for k, e := range s.entries {
		if e.state != nil {
			jobs = append(jobs, &job{key: k, entry: e, old: e.state, read: e.state.read(), from: old})
		}
	}
	s.mu.Unlock()
	next, err := old.copied(s.config.Dir, jobs)
	if next == nil {
		return err
	}
	if err == nil {
		err = s.fault.at("renamed")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, j := range jobs {
		e := j.entry
		if s.entries[j.key] != e {
			continue // it was dropped meanwhile
		}
		if e.state = j.state; e.state == nil {
			if e.next == nil || !e.next.full { // what goes on from a state is nothing without it
				s.loseLocked(e)
			}
			e.why = "it has gone bad on the disk"
			s.health.Corrupt = j.key.String() + ": " + e.why
		}
	}
	s.log, s.compactFrom = next, 0
	s.measureLocked()
	s.roomLocked()
	old.close()
	if err != nil {
		s.failLocked(err)
	}
	return err
}
