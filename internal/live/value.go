// Package live holds a value that one goroutine sets and others follow. A follower gets the current value and a signal of the
// next change, without callbacks and without a channel that it must drain.
//
// A follower sees the newest value, not every value: it may see two quick changes as one. Use a queue to see every change.
package live

import (
	"context"
	"sync"
)

// Value is a variable with a change signal. The zero Value holds T's zero value. Safe for concurrent use.
type Value[T comparable] struct {
	mu      sync.Mutex
	current T
	changed chan struct{}
}

// NewValue returns a Value that holds v.
func NewValue[T comparable](v T) *Value[T] { return &Value[T]{current: v} }

// Get returns the current value.
func (v *Value[T]) Get() T {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.current
}

// Watch returns the current value and a channel that closes when the value changes.
func (v *Value[T]) Watch() (T, <-chan struct{}) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.changed == nil {
		v.changed = make(chan struct{})
	}
	return v.current, v.changed
}

// Set stores next, wakes the followers if it differs from the current value, and reports whether it did.
func (v *Value[T]) Set(next T) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.current == next {
		return false
	}
	v.current = next
	if v.changed != nil {
		close(v.changed)
		v.changed = nil
	}
	return true
}

// Wait blocks until the value satisfies ok and returns it, or returns the context's cause.
func (v *Value[T]) Wait(ctx context.Context, ok func(T) bool) (T, error) {
	for {
		current, changed := v.Watch()
		if ok(current) {
			return current, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return current, context.Cause(ctx)
		}
	}
}

// While returns a context that ends with cause once the value does not satisfy the function ok. The context also ends with ctx.
// The function stop ends it, and returns when the goroutine behind it has ended.
func (v *Value[T]) While(ctx context.Context, ok func(T) bool, cause error) (while context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if _, err := v.Wait(ctx, func(now T) bool { return !ok(now) }); err == nil {
			cancel(cause)
		}
	}()
	return ctx, func() {
		cancel(nil)
		<-done
	}
}
