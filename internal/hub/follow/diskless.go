package follow

import (
	"context"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/store"
	"yurtcoordinator/internal/stream"
)

// Nowhere is the disk of a hub that has none: it takes everything, and has nothing.
type Nowhere struct{}

var _ Disk = Nowhere{}

// Load implements Disk.
func (Nowhere) Load(store.ID) (stream.Snapshot, error) { return stream.Snapshot{}, store.ErrMiss }

// Sink implements Disk.
func (Nowhere) Sink(store.ID) stream.Sink { return &hole{} }

// Drop implements Disk.
func (Nowhere) Drop(store.ID) {}

// Touch implements Disk.
func (Nowhere) Touch(store.ID) {}

// Need implements Disk.
func (Nowhere) Need([]store.ID) {}

// Flush implements Disk.
func (Nowhere) Flush(context.Context) error { return nil }

// hole is a Sink that keeps nothing but how far it was told.
type hole struct{ at edge.Revision }

func (h *hole) Position() edge.Revision { return h.at }

func (h *hole) Replace(_ context.Context, s stream.Snapshot) error {
	h.at = s.Revision
	return nil
}

func (h *hole) Apply(_ context.Context, events []stream.Event) error {
	h.at = max(h.at, events[len(events)-1].Object.Revision)
	return nil
}
