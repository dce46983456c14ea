package cache

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/ends"
	"yurtcoordinator/internal/live"
	"yurtcoordinator/internal/replica"
	"yurtcoordinator/internal/run"
	"yurtcoordinator/internal/store"
	"yurtcoordinator/internal/stream"
)

// savePauseMin and savePauseMax bound the pause after a failure: a full disk seldom has space again within seconds.
const (
	savePauseMin = time.Second
	savePauseMax = time.Minute
	// saveEvery is how often the Saver checks whether the disk has lost queued content. The next change would show the loss, too,
	// but a cut may last long without a change.
	saveEvery = time.Minute
)

// errLost says that the disk has lost queued content.
var errLost = errors.New("the disk has lost what it had not written yet")

// SaverDisk keeps content; store.Store is one.
type SaverDisk interface {
	Load(store.Collection) (stream.Snapshot, error)
	Sink(store.Collection) stream.Sink
	Drop(store.Collection)
	Flush(ctx context.Context) error
}

// Saver keeps one collection on the disk in step with one replica. Make one with NewSaver. Call Restore, if at all, before Run
// and before the replica has a feed.
type Saver struct {
	disk    SaverDisk
	id      store.Collection
	replica *replica.Replica
	chance  ends.Chance
	// resumes says that the replica began with the disk's content, so the Saver needs only the changes since.
	resumes bool
	taken   *live.Value[edge.Revision] // revision up to which the disk has accepted the content, written or queued
}

// NewSaver returns a Saver. It does no I/O.
func NewSaver(disk SaverDisk, id store.Collection, r *replica.Replica, chance ends.Chance) *Saver {
	return &Saver{disk: disk, id: id, replica: r, chance: chance, taken: live.NewValue[edge.Revision](0)}
}

// Sync waits until the disk has written the replica's present content. It returns an error if ctx ends or the disk fails. ctx
// must have a deadline, because the disk may be full.
func (s *Saver) Sync(ctx context.Context) error {
	at := s.replica.Position()
	if _, err := s.taken.Wait(ctx, func(taken edge.Revision) bool { return taken >= at }); err != nil {
		return err
	}
	return s.disk.Flush(ctx)
}

// Restore fills the empty replica with the disk's content. It returns store.ErrMiss if the disk has none.
func (s *Saver) Restore(ctx context.Context) error {
	snapshot, err := s.disk.Load(s.id)
	if err != nil {
		return err
	}
	switch err := s.replica.Replace(ctx, snapshot); {
	case err == nil:
		s.resumes = true
		return nil
	case errors.Is(err, replica.ErrDisorder):
		// Content that does not fit this replica must not be resumed from either.
		s.disk.Drop(s.id)
		return fmt.Errorf("the disk's content of %s is useless: %w", s.id, err)
	default: // the hub is stopping, which says nothing about the disk
		return fmt.Errorf("restore %s: %w", s.id, err)
	}
}

// Run keeps the disk in step with the replica until ctx ends, or until a complete replica is closed. The replica's changes do not
// wait for the disk: after a power cut the replica resumes from the disk's revision, and gets the unwritten changes again.
func (s *Saver) Run(ctx context.Context) {
	logger := klog.FromContext(ctx)
	sink := s.disk.Sink(s.id)
	pause, said := run.Backoff{Min: savePauseMin, Max: savePauseMax}, ""
	for {
		if _, err := s.replica.Complete().Wait(ctx, func(complete bool) bool { return complete }); err != nil {
			return
		}
		progress, err := s.follow(ctx, sink)
		if progress {
			pause.Reset()
			said = ""
		}
		switch {
		case ctx.Err() != nil, errors.Is(err, io.EOF):
			return
		case errors.Is(err, stream.ErrNotReady):
			continue // the replica was emptied
		case errors.Is(err, store.ErrOlder):
			s.disk.Drop(s.id) // the cloud's history was set back, and the replica has followed it
			continue
		}
		wait := pause.Next(s.chance.Float64())
		if !errors.Is(err, stream.ErrExpired) && err.Error() != said { // if expired, the disk was only too slow
			said = err.Error()
			logger.V(1).Info("The disk does not take new content; trying again",
				"what", s.id.String(), "pause", wait, "err", err)
		}
		if run.Pause(ctx, wait) != nil {
			return
		}
	}
}

// follow writes all content, if the disk needs it, and then every change, until an error. progress says whether the disk has
// accepted a change.
func (s *Saver) follow(ctx context.Context, sink stream.Sink) (progress bool, err error) {
	w, err := s.begin(ctx, sink)
	if err != nil {
		return false, err
	}
	var looking sync.WaitGroup
	defer looking.Wait()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer w.Close()
	if s.replica.History().IsFilled() {
		return false, s.pass(ctx, w)
	}
	s.taken.Set(sink.Position())
	looking.Go(func() { watchLoss(ctx, s.disk.Sink(s.id), cancel) })
	for {
		events, err := w.Next(ctx)
		if err == nil {
			err = sink.Apply(ctx, events)
		}
		if err != nil {
			s.taken.Set(0)
			return progress, err
		}
		progress = true
		s.taken.Set(sink.Position())
	}
}

// pass counts all of the replica's content as saved, and writes nothing. It is for content that a filler has brought to the
// coordinator. That content is of no use once the cloud's own comes.
func (s *Saver) pass(ctx context.Context, w stream.Watch) error {
	for {
		s.taken.Set(s.replica.Position())
		if _, err := w.Next(ctx); err != nil {
			s.taken.Set(0)
			return err
		}
	}
}

// watchLoss cancels with errLost when the disk has lost queued content.
func watchLoss(ctx context.Context, sink stream.Sink, cancel context.CancelCauseFunc) {
	tick := time.NewTicker(saveEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if sink.Position() == 0 {
				cancel(errLost)
				return
			}
		}
	}
}

// begin brings the disk to some revision, and returns a watch of the replica after it.
func (s *Saver) begin(ctx context.Context, sink stream.Sink) (stream.Watch, error) {
	if at := sink.Position(); s.resumes && at != 0 {
		// The disk stands at what Restore read, or at what was already queued then.
		s.resumes = false
		if w, err := s.replica.Watch(ctx, at); !errors.Is(err, stream.ErrExpired) {
			return w, err
		}
	}
	s.resumes = false
	snapshot, w, err := s.replica.Begin(ctx)
	if err != nil {
		return nil, err
	}
	if snapshot.History.IsFilled() {
		return w, nil
	}
	if err := sink.Replace(ctx, snapshot); err != nil {
		_ = w.Close() // it holds nothing that could fail
		return nil, err
	}
	return w, nil
}
