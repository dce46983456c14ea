package store

import (
	"bytes"
	"context"
	"fmt"
	"sync"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/stream"
)

// Memory stands in for a Store where there is no directory. It has blobs until the process ends. Of collections it has nothing:
// a replica has those, for as long as somebody follows it. Make one with NewMemory; safe for concurrent use.
type Memory struct {
	mu    sync.Mutex
	blobs blobs
	told  map[Collection]edge.Revision
}

// maxTold bounds Memory.told: beyond it all Sinks begin anew.
const maxTold = 10_000

// NewMemory returns a Memory with the shares of Config.BlobShares.
func NewMemory(shares map[string]int) *Memory {
	return &Memory{blobs: newBlobs(shares), told: map[Collection]edge.Revision{}}
}

// PutBlob keeps a value as a Store does.
func (m *Memory) PutBlob(key string, value []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.blobs.put(key, value)
}

// Blob returns the value of a key; ErrMiss if there is none.
func (m *Memory) Blob(key string) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	value, ok := m.blobs.latest(key)
	if !ok {
		return nil, fmt.Errorf("blob %.40q: %w", key, ErrMiss)
	}
	return bytes.Clone(value), nil
}

// DropBlob removes a value, if there is one.
func (m *Memory) DropBlob(key string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.blobs.set(key, nil)
}

// BlobSize is how many bytes a key and its value have; 0 if it has none.
func (m *Memory) BlobSize(key string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.blobs.cost(key)
}

// Blobs returns the keys that begin with prefix, sorted.
func (m *Memory) Blobs(prefix string) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.blobs.keys(prefix)
}

// Load misses.
func (*Memory) Load(id Collection) (stream.Snapshot, error) {
	return stream.Snapshot{}, fmt.Errorf("%s: %w: there is no disk", id, ErrMiss)
}

// Sink returns a Sink that keeps nothing but how far it was told.
func (m *Memory) Sink(id Collection) stream.Sink { return &hole{m, id} }

// Drop forgets how far a Sink was told.
func (m *Memory) Drop(id Collection) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.told, id)
}

// Touch does nothing.
func (*Memory) Touch(Collection) {}

// Need does nothing.
func (*Memory) Need([]Collection) {}

// Online does nothing.
func (*Memory) Online(bool) {}

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
