package views

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/hub/cache"
	"yurtcoordinator/internal/replica"
	"yurtcoordinator/internal/stream"
)

// bare is a view that shows everything.
type bare struct{ replica.View }

// TestViews: what is followed for the views, and how programs see endpoints and the rest.
func TestViews(t *testing.T) {
	overlay := &bare{}
	own := OwnPool("p1")
	for name, tt := range map[string]struct {
		config Config
		always []cache.Selection
		seen   string // how endpoints are
	}{
		"near ones":               {Config{}, []cache.Selection{Services, own}, "near"},
		"near ones of the pool's": {Config{Overlay: overlay}, []cache.Selection{Services, own}, "both"},
	} {
		t.Run(name, func(t *testing.T) {
			tt.config.Node, tt.config.Pool = "n1", "p1"
			v := New(tt.config)
			if !slices.Equal(v.Always, tt.always) {
				t.Errorf("it follows %v, want %v", v.Always, tt.always)
			}
			if view := v.View(edge.NodePools); view != nil {
				t.Errorf("a resource without endpoints is seen through %v", view)
			}
			for _, r := range []schema.GroupVersionResource{endpointsResource, slicesResource} {
				if got := howSeen(v.View(r), overlay); got != tt.seen {
					t.Errorf("%s are seen %s, want %s", r.Resource, got, tt.seen)
				}
			}
		})
	}
}

func howSeen(v *cache.View, overlay replica.View) string {
	switch view := v.View.(type) {
	case *Topology:
		return "near"
	case *Stack:
		if _, ok := view.over.(*Topology); ok && view.under == overlay && v.From == Services {
			return "both"
		}
	}
	return "otherwise"
}

// TestViewsRun until they are told to stop.
func TestViewsRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		v := New(Config{
			Node:   "n1",
			Source: func(cache.Selection) stream.Beginner { return from(newScript(serviceType, 1), nil)(Services) },
		})
		ended := make(chan error, 1)
		go func() { ended <- v.Run(ctx) }()
		synctest.Wait()
		select {
		case err := <-ended:
			t.Fatalf("it has ended: %v", err)
		default:
		}
		cancel()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}
