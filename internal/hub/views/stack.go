package views

import (
	"context"

	"yurtcoordinator/internal/live"
	"yurtcoordinator/internal/replica"
	"yurtcoordinator/internal/stream"
)

// Stack is a replica.View that applies one view to the result of another. Safe for concurrent use. While Run is not active,
// Stack shows the right content, but does not tell watches of changes.
type Stack struct {
	under, over replica.View
	turns       *live.Value[uint64] // grows after each change of either view
}

// NewStack returns the view that applies over to the result of under.
func NewStack(under, over replica.View) *Stack {
	return &Stack{under: under, over: over, turns: live.NewValue[uint64](0)}
}

// Look implements replica.View.
func (s *Stack) Look() (replica.Look, <-chan struct{}) {
	_, turned := s.turns.Watch() // first: what changes from here on is told
	under, _ := s.under.Look()
	over, _ := s.over.Look()
	return stacked{under, over}, turned
}

// Run announces changes of either view until ctx ends, and then returns nil.
func (s *Stack) Run(ctx context.Context) error {
	for {
		_, under := s.under.Look()
		_, over := s.over.Look()
		s.turns.Set(s.turns.Get() + 1) // after these were taken: none is missed in between
		select {
		case <-under:
		case <-over:
		case <-ctx.Done():
			return nil
		}
	}
}

// stacked is a replica.Look.
type stacked struct{ under, over replica.Look }

// Show implements replica.Look.
func (l stacked) Show(t stream.Type, o stream.Object) (raw []byte, visible bool) {
	raw, visible = l.under.Show(t, o)
	if !visible {
		return o.Raw, false
	}
	o.Raw = raw
	return l.over.Show(t, o)
}
