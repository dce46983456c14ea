// Package save brings what a hub knows to its disk, and back from there after a restart.
//
// The disk is one more follower of a replica, and holds its content with its revision. So a hub that starts again has
// what it had, goes on from that revision wherever it can be resumed, and costs no list over the WAN.
//
// Invariant: what the disk has is, or was, the replica's content at that revision. Changes are added only to what the
// replica itself began with, or was written from it while the watch that tells them was open already. Nothing else leads
// from the one to the other: a replica that was emptied may be filled from a cloud whose history was set back, and reach
// the disk's revision by another way.
package save

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/live"
	"yurtcoordinator/internal/replica"
	"yurtcoordinator/internal/run"
	"yurtcoordinator/internal/store"
	"yurtcoordinator/internal/stream"
)

// pauseMin and pauseMax bound the pause after a failure: a disk that is full seldom stops being so within seconds.
const (
	pauseMin = time.Second
	pauseMax = time.Minute
	// lookEvery is how often it is seen whether the disk has lost what was queued, if there is no change by which it would
	// show: of what nobody can be told any more, while the cloud cannot be reached, the disk is to have all the same.
	lookEvery = time.Minute
)

// errLost says that the disk has lost what it took.
var errLost = errors.New("the disk has lost what it had not written yet")

// Disk is where content is kept; store.Store is one.
type Disk interface {
	Load(store.Collection) (stream.Snapshot, error)
	Sink(store.Collection) stream.Sink
	Drop(store.Collection)
	Flush(ctx context.Context) error
}

// Saver keeps one collection of the disk true to one replica. Make one with New; Restore, if it is called, comes before
// Run and before the replica has a feed.
type Saver struct {
	disk    Disk
	id      store.Collection
	replica *replica.Replica
	// resumes: the replica began with what the disk has, so the changes from there on are enough.
	resumes bool
	taken   *live.Value[edge.Revision] // by the disk, written or not
}

// New returns a Saver. It does no I/O.
func New(disk Disk, id store.Collection, r *replica.Replica) *Saver {
	return &Saver{disk: disk, id: id, replica: r, taken: live.NewValue[edge.Revision](0)}
}

// Sync returns when all that the replica has now is on the disk, or with the cause of ctx, which has to bound it: the disk
// may be full.
func (s *Saver) Sync(ctx context.Context) error {
	at := s.replica.Position()
	if _, err := s.taken.Wait(ctx, func(taken edge.Revision) bool { return taken >= at }); err != nil {
		return err
	}
	return s.disk.Flush(ctx)
}

// Restore fills the replica, which is empty, with what the disk has of it. A disk that has nothing is store.ErrMiss.
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
		// What cannot be content of this replica is not to be resumed from either.
		s.disk.Drop(s.id)
		return fmt.Errorf("what the disk has of %s is of no use: %w", s.id, err)
	default: // it is ending, which says nothing of the disk
		return fmt.Errorf("restore %s: %w", s.id, err)
	}
}

// Run keeps the disk true to the replica until ctx ends, or until a replica that is complete is closed. Nothing waits for
// it; what it has not written when the power fails, the replica is told again from where the disk stands.
func (s *Saver) Run(ctx context.Context) {
	logger := klog.FromContext(ctx)
	sink := s.disk.Sink(s.id)
	pause, said := run.Backoff{Min: pauseMin, Max: pauseMax}, ""
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
			continue // it was emptied
		case errors.Is(err, store.ErrOlder):
			s.disk.Drop(s.id) // the cloud's history was set back, and the replica has followed it
			continue
		}
		wait := pause.Next()
		if !errors.Is(err, stream.ErrExpired) && err.Error() != said { // else the disk was too slow
			said = err.Error()
			logger.V(1).Info("The disk does not take what is new, trying again",
				"what", s.id.String(), "pause", wait, "err", err)
		}
		if run.Pause(ctx, wait) != nil {
			return
		}
	}
}

// follow writes all that there is, if the disk needs it, and then every change, until something goes wrong. It has made
// progress if the disk has taken something.
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
	s.taken.Set(sink.Position())
	looking.Go(func() { look(ctx, s.disk.Sink(s.id), cancel) })
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

// look cancels with errLost when the disk has lost what it took.
func look(ctx context.Context, sink stream.Sink, cancel context.CancelCauseFunc) {
	tick := time.NewTicker(lookEvery)
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

// begin returns a watch of the replica after which the disk needs nothing else.
func (s *Saver) begin(ctx context.Context, sink stream.Sink) (stream.Watch, error) {
	if at := sink.Position(); s.resumes && at != 0 {
		// Where the disk stands: what Restore read, and what was queued already when it did.
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
	if err := sink.Replace(ctx, snapshot); err != nil {
		_ = w.Close() // it holds nothing that could fail
		return nil, err
	}
	return w, nil
}
