package store

import (
	"context"
	"errors"
	"sync"
	"time"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/stream"
)

// Memory stands in for a Store where there is no directory. It has blobs until the process ends: it is a Store that is never
// opened, in which they wait to be written. Of collections it has nothing: a replica has those, for as long as somebody
// follows it. Make one with NewMemory; safe for concurrent use.
type Memory struct {
	*Store
	mu   sync.Mutex
	told map[Collection]edge.Revision
}

// maxTold bounds Memory.told: beyond it all Sinks begin anew.
const maxTold = 10_000

// NewMemory returns a Memory with the shares of Config.BlobShares.
func NewMemory(shares map[string]int) *Memory {
	none := errors.New("there is no disk")
	return &Memory{
		Store: &Store{config: Config{Now: time.Now}, blobs: newBlobs(shares), failure: none},
		told:  map[Collection]edge.Revision{},
	}
}

// Sink returns a Sink that keeps nothing but how far it was told.
func (m *Memory) Sink(id Collection) stream.Sink { return &hole{m, id} }

// Drop forgets how far a Sink was told.
func (m *Memory) Drop(id Collection) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.told, id)
}

// Flush does nothing.
func (*Memory) Flush(context.Context) error { return nil }

// Close does nothing.
func (*Memory) Close() error { return nil }

// Health says that all is well.
func (*Memory) Health() Health { return Health{} }

// Run returns nil when ctx ends.
func (*Memory) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// hole is a Sink that keeps nothing but how far it was told.
type hole struct {
	memory *Memory
	id     Collection
}

func (h *hole) Position() edge.Revision {
	h.memory.mu.Lock()
	defer h.memory.mu.Unlock()
	return h.memory.told[h.id]
}

func (h *hole) Replace(_ context.Context, s stream.Snapshot) error {
	h.memory.mu.Lock()
	defer h.memory.mu.Unlock()
	if len(h.memory.told) >= maxTold {
		clear(h.memory.told)
	}
	h.memory.told[h.id] = s.Revision
	return nil
}

func (h *hole) Apply(_ context.Context, events []stream.Event) error {
	h.memory.mu.Lock()
	defer h.memory.mu.Unlock()
	at, ok := h.memory.told[h.id]
	if !ok {
		return ErrIncomplete
	}
	h.memory.told[h.id] = max(at, events[len(events)-1].Object.Revision)
	return nil
}
