// Package saver brings what a hub knows to its disk, and back from there after a restart.
//
// The disk is one more follower of a replica, and holds its content with its revision. So a hub that starts again has
// what it had, goes on from that revision wherever it can be resumed, and costs no list over the WAN.
package saver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"k8s.io/klog/v2"

	"yurtcoordinator/internal/replica"
	"yurtcoordinator/internal/store"
	"yurtcoordinator/internal/stream"
)

// pauseMin and pauseMax bound the pause after a failure: a disk that is full seldom stops being so within seconds.
const (
	pauseMin = time.Second
	pauseMax = time.Minute
)

// Disk is where content is kept; store.Store is one.
type Disk interface {
	Load(store.ID) (stream.Snapshot, error)
	Sink(store.ID) stream.Sink
	Drop(store.ID)
}

// Restore fills a replica that is empty with what the disk has of it. A disk that has nothing is store.ErrMiss.
func Restore(ctx context.Context, disk Disk, id store.ID, r *replica.Replica) error {
	snapshot, err := disk.Load(id)
	if err != nil {
		return err
	}
	if err := r.Replace(ctx, snapshot); err != nil {
		// What cannot be content of this replica is not to be resumed from either.
		disk.Drop(id)
		return fmt.Errorf("what the disk has of %s is of no use: %w", id, err)
	}
	return nil
}

// Run keeps the disk true to a replica until ctx ends or the replica is closed. Nothing waits for it; what it has not
// written when the power fails, the replica is told again from where the disk stands.
func Run(ctx context.Context, disk Disk, id store.ID, r *replica.Replica) {
	logger := klog.FromContext(ctx)
	sink := disk.Sink(id)
	pause, said := pauseMin, ""
	for ctx.Err() == nil {
		if _, err := r.Complete().Wait(ctx, func(complete bool) bool { return complete }); err != nil {
			return
		}
		progress, err := follow(ctx, sink, r)
		switch {
		case ctx.Err() != nil, errors.Is(err, io.EOF):
			return
		case errors.Is(err, errWritten):
			pause, said = pauseMin, ""
			continue
		case errors.Is(err, stream.ErrNotReady):
			continue // it was emptied
		case errors.Is(err, store.ErrOlder):
			disk.Drop(id) // the cloud's history was set back, and the replica has followed it
			continue
		}
		if progress {
			pause, said = pauseMin, ""
		}
		if text := err.Error(); text != said {
			said = text
			logger.V(1).Info("The disk does not take what is new, trying again", "what", id.String(), "pause", pause, "err", err)
		}
		timer := time.NewTimer(pause/2 + rand.N(pause/2))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
		pause = min(2*pause, pauseMax)
	}
}

// errWritten says that all that there is has been written.
var errWritten = errors.New("written")

// follow writes all that there is, if the disk needs it, or every change from where the disk stands, until something goes
// wrong.
func follow(ctx context.Context, sink stream.Sink, r *replica.Replica) (progress bool, err error) {
	if sink.Position() == 0 {
		return false, replaceAll(ctx, sink, r)
	}
	w, err := r.Watch(ctx, sink.Position())
	if errors.Is(err, stream.ErrExpired) {
		return false, replaceAll(ctx, sink, r)
	}
	if err != nil {
		return false, err
	}
	defer w.Close()
	for {
		events, err := w.Next(ctx)
		if errors.Is(err, stream.ErrExpired) {
			return progress, replaceAll(ctx, sink, r)
		}
		if err == nil {
			err = sink.Apply(ctx, events)
		}
		if err != nil {
			return progress, err
		}
		progress = true
	}
}

// replaceAll returns errWritten when it is done.
func replaceAll(ctx context.Context, sink stream.Sink, r *replica.Replica) error {
	snapshot, err := r.Snapshot(ctx)
	if err != nil {
		return err
	}
	if err := sink.Replace(ctx, snapshot); err != nil {
		return err
	}
	return errWritten
}
