package callers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/singleflight"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/utils/lru"

	"yurtcoordinator/internal/hub/link"
	"yurtcoordinator/internal/live"
)

// answer is what the cloud says to a question.
type answer struct {
	value []byte // nil: no
	holds time.Duration
}

// memory is what the cloud said last, by question: for a while without asking again, and on the disk for when it cannot be
// asked.
type memory struct {
	disk   Disk
	prefix string
	cloud  *live.Value[link.State]
	fresh  *cache.LRUExpireCache // of []byte, and of error for what was not answered
	// order has what is on the disk; the least recently used goes first, and from the disk too.
	order  *lru.Cache
	asking singleflight.Group
	slots  chan struct{}
}

func newMemory(disk Disk, prefix string, cloud *live.Value[link.State]) *memory {
	m := &memory{
		disk: disk, prefix: prefix, cloud: cloud, fresh: cache.NewLRUExpireCache(maxKnown),
		slots: make(chan struct{}, maxAsking),
	}
	m.order = lru.NewWithEvictionFunc(maxKnown, func(key lru.Key, _ any) {
		if k, ok := key.(string); ok {
			disk.DropBlob(k)
		}
	})
	for _, key := range disk.Blobs(prefix) {
		m.order.Add(key, nil)
	}
	return m
}

// recall returns the answer to a question: what holds, else what the cloud says, else what it said last; ErrUnknown,
// wrapped with the reason, if there is none of these. A nil value is a no.
func (m *memory) recall(ctx context.Context, question string, ask func(context.Context) (answer, error)) ([]byte, error) {
	if value, err, ok := m.held(question); ok {
		return value, err
	}
	// Whoever asks first does so for all, and its going away is nothing to the others.
	said, err, _ := m.asking.Do(question, func() (any, error) {
		if value, err, ok := m.held(question); ok {
			return value, err // it came while this one was on its way
		}
		return m.find(context.WithoutCancel(ctx), question, ask)
	})
	value, _ := said.([]byte)
	return value, err
}

// held returns what holds without asking.
func (m *memory) held(question string) (value []byte, err error, ok bool) {
	switch v, found := m.fresh.Get(question); v := v.(type) {
	case error:
		return nil, v, true
	case []byte:
		return v, nil, true
	default:
		return nil, nil, found
	}
}

func (m *memory) find(ctx context.Context, question string, ask func(context.Context) (answer, error)) ([]byte, error) {
	key := m.prefix + question
	reason := errors.New("the link is down")
	if m.cloud.Get() != link.Down {
		said, err := m.ask(ctx, ask)
		if err == nil {
			m.fresh.Add(question, said.value, said.holds)
			m.remember(key, said.value)
			return said.value, nil
		}
		reason = err
	}
	value, err := m.disk.Blob(key)
	if err != nil || len(value) == 0 {
		err := fmt.Errorf("%w: %w", ErrUnknown, reason)
		m.fresh.Add(question, err, unknownFor)
		return nil, err
	}
	m.order.Get(key) // it is of use
	m.fresh.Add(question, value, unknownFor)
	return value, nil
}

// ask asks, when it is its turn, within askFor.
func (m *memory) ask(ctx context.Context, ask func(context.Context) (answer, error)) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, askFor)
	defer cancel()
	select {
	case m.slots <- struct{}{}:
		defer func() { <-m.slots }()
		return ask(ctx)
	case <-ctx.Done():
		return answer{}, fmt.Errorf("more than %d questions are under way: %w", maxAsking, ctx.Err())
	}
}

// remember brings an answer to the disk; a no takes the former one away.
func (m *memory) remember(key string, value []byte) {
	if old, err := m.disk.Blob(key); err == nil && value != nil && bytes.Equal(old, value) {
		m.order.Add(key, nil)
		return
	}
	if value == nil || m.disk.PutBlob(key, value) != nil {
		m.order.Remove(key)
		m.disk.DropBlob(key)
		return
	}
	m.order.Add(key, nil)
}
