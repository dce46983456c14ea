package filter

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/hub/follow"
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
		config ViewsConfig
		always []follow.Selection
		seen   string // how endpoints are
	}{
		"nothing":                 {ViewsConfig{}, nil, "as they are"},
		"who may lead":            {ViewsConfig{Leads: true}, []follow.Selection{own}, "as they are"},
		"the pool's endpoints":    {ViewsConfig{Overlay: overlay}, []follow.Selection{Services}, "overlaid"},
		"near ones":               {ViewsConfig{Topology: true, Leads: true}, []follow.Selection{Services, own}, "near"},
		"near ones of the pool's": {ViewsConfig{Topology: true, Overlay: overlay}, []follow.Selection{Services, own}, "both"},
		"Pods sent to the hub":    {ViewsConfig{Master: true}, []follow.Selection{Services}, "as they are"},
		"all": {ViewsConfig{Topology: true, Overlay: overlay, Leads: true, Master: true},
			[]follow.Selection{Services, own, Services}, "both"},
	} {
		t.Run(name, func(t *testing.T) {
			tt.config.Node, tt.config.Pool = "n1", "p1"
			v := NewViews(tt.config)
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

func howSeen(v *follow.View, overlay replica.View) string {
	if v == nil {
		return "as they are"
	}
	switch view := v.View.(type) {
	case *Topology:
		return "near"
	case *Stack:
		if _, ok := view.over.(*Topology); ok && view.under == overlay && v.From == Services {
			return "both"
		}
	default:
		if view == overlay && v.Complete.Get() {
			return "overlaid"
		}
	}
	return "otherwise"
}

// TestViewsRun until they are told to stop, with something to learn or without.
func TestViewsRun(t *testing.T) {
	for name, topology := range map[string]bool{"nothing to learn": false, "Services to learn": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				v := NewViews(ViewsConfig{
					Node: "n1", Topology: topology,
					Source: func(follow.Selection) stream.Beginner { return from(newScript(serviceType, 1), nil)(Services) },
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
		})
	}
}
