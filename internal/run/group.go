// Package run is the life cycle of all our programs: a group of blocking functions that start and stop together.
//
// Invariants: Run returns only after every function has returned. The first function to return, with or without an error, ends
// the group. The group stops its functions in the reverse of the order in which they were added, one after the other. So whatever
// a function needs outlives it.
//
// errgroup was the alternative. It cancels all functions at once, so a server that still drains would find its upstream gone.
package run

import (
	"context"
	"errors"
	"fmt"
)

// ErrStopped is the cause of the end of a function's context when its group stops in an orderly way.
var ErrStopped = errors.New("stopped")

// Group is a set of functions that run together. The zero Group is empty and ready to use.
type Group struct {
	members []member
}

type member struct {
	name string
	run  func(context.Context) error
}

// Add appends a function. The function must block until its context ends or it fails. Before it returns, it must stop
// everything that it started. Functions start in the order in which they were added. Do not call Add after Run.
func (g *Group) Add(name string, run func(context.Context) error) {
	g.members = append(g.members, member{name, run})
}

// Run starts all functions and blocks until all have returned. It returns the error of the first function that fails, with the
// function's name. A function that returns before it is asked to has failed, even if it returns nil. When ctx ends, Run stops the
// functions. It then returns nil if each of them returns nil, or the error or cause of its context.
func (g *Group) Run(ctx context.Context) error {
	type result struct {
		index int
		err   error
	}
	if len(g.members) == 0 {
		return nil
	}
	results := make(chan result, len(g.members))
	cancels := make([]context.CancelCauseFunc, len(g.members))
	done := make([]chan struct{}, len(g.members))
	for i, m := range g.members {
		// A function's context carries ctx's values but not its end: the group stops its functions itself, in order.
		each, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
		cancels[i], done[i] = cancel, make(chan struct{})
		go func() {
			defer close(done[i])
			results <- result{i, m.run(each)}
		}()
	}

	var failure error
	cause := ErrStopped
	select {
	case <-ctx.Done():
	case r := <-results:
		failure = g.failed(r.index, r.err)
		cause = failure
	}
	for i := len(g.members) - 1; i >= 0; i-- {
		cancels[i](cause)
		<-done[i]
	}
	close(results)
	for r := range results {
		orderly := r.err == nil || errors.Is(r.err, context.Canceled) || errors.Is(r.err, cause)
		if failure == nil && !orderly {
			failure = g.failed(r.index, r.err)
		}
	}
	return failure
}

func (g *Group) failed(index int, err error) error {
	if err == nil {
		return fmt.Errorf("%s: returned before it was asked to", g.members[index].name)
	}
	return fmt.Errorf("%s: %w", g.members[index].name, err)
}
