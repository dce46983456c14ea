package views

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"

	"yurtcoordinator/internal/live"
	"yurtcoordinator/internal/replica"
	"yurtcoordinator/internal/replica/viewtest"
	"yurtcoordinator/internal/stream"
)

// hiding is a view that shows an object or not, by its name.
type hiding struct{ now *live.Value[hidden] }

type hidden string

func (h hiding) Look() (replica.Look, <-chan struct{}) { return h.now.Watch() }

func (h hidden) Show(_ stream.Type, o stream.Object) ([]byte, bool) {
	return o.Raw, o.Key.Name != string(h)
}

// TestStackConforms: a view over another is a view, whichever of them turns.
func TestStackConforms(t *testing.T) {
	web := stream.Key{Namespace: "ns", Name: "web"}
	for _, way := range []string{"under", "over"} {
		t.Run(way, func(t *testing.T) {
			viewtest.Run(t, func(t *testing.T) viewtest.Subject {
				s := topologySubject(t, sliceKind, web)
				topology, turn := s.View, s.Turn
				other := hiding{live.NewValue[hidden]("")}
				s.View = func() replica.View {
					stack := NewStack(other, topology())
					if way == "over" {
						stack = NewStack(stack.over, other)
					}
					var done sync.WaitGroup
					ctx, cancel := context.WithCancel(context.Background())
					done.Go(func() { _ = stack.Run(ctx) })
					t.Cleanup(func() { cancel(); done.Wait() })
					return stack
				}
				s.Turn = func(random *rand.Rand) {
					if random.IntN(2) == 0 {
						turn(random)
						return
					}
					other.now.Set([]hidden{"", "web", "web-1"}[random.IntN(3)])
				}
				return s
			})
		})
	}
}
