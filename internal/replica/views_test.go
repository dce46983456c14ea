package replica_test

import (
	"math/rand/v2"
	"testing"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/replica"
	"yurtcoordinator/internal/replica/viewtest"
	"yurtcoordinator/internal/stream"
	"yurtcoordinator/internal/stream/streamtest"
)

func TestHidingViewConforms(t *testing.T) {
	viewtest.Run(t, func(*testing.T) viewtest.Subject {
		teams := []string{"x", "y"}
		current := "x"
		var views []*team
		return viewtest.Subject{
			Resource: slicesResource, Type: streamtest.EndpointSlices,
			Keys: []stream.Key{{Namespace: "a", Name: "x"}, {Namespace: "a", Name: "y"}, {Namespace: "b", Name: "x"}},
			Make: func(random *rand.Rand, k stream.Key, revision edge.Revision) stream.Object {
				return slice(k.Namespace, k.Name, revision, 1, app(teams[random.IntN(2)]))
			},
			View: func() replica.View {
				v := newTeam(current)
				views = append(views, v)
				return v
			},
			Turn: func(random *rand.Rand) {
				current = teams[random.IntN(2)]
				for _, v := range views {
					v.become(current)
				}
			},
		}
	})
}
