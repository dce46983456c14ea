package views

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/ends"
	"yurtcoordinator/internal/hub/cache"
	"yurtcoordinator/internal/replica"
	"yurtcoordinator/internal/run"
	"yurtcoordinator/internal/stream"
)

// Config configures Views.
type Config struct {
	// Node is this node; Pool its pool, empty if it has none.
	Node edge.NodeName
	Pool edge.PoolName
	// Source returns the source of each selection of Always.
	Source func(cache.Selection) stream.Beginner
	// Overlay shows endpoints as the pool knows them; nil means as the cloud has them.
	Overlay replica.View
	// Chance is where random numbers come from.
	Chance ends.Chance
}

// Views are how a node's programs see the hub's own resources. Make one with New.
type Views struct {
	// Always are the selections that the hub must follow for the views.
	Always []cache.Selection
	// View returns how programs see a resource; nil means unchanged. It serves as cache.Config.View.
	View func(schema.GroupVersionResource) *cache.View

	parts run.Group
}

// New returns Views. While Run is not active, they show all endpoints, changed only by the Overlay.
func New(c Config) *Views {
	topology := NewTopology(TopologyConfig{Node: c.Node, Pool: c.Pool, Source: c.Source, Chance: c.Chance})
	v := &Views{Always: topology.Learns(), View: topology.View}
	v.parts.Add("service topology", topology.Run)
	if c.Overlay == nil {
		return v
	}
	both := NewStack(c.Overlay, topology)
	v.parts.Add("endpoints of the pool", both.Run)
	v.View = func(r schema.GroupVersionResource) *cache.View {
		view := topology.View(r)
		if view != nil {
			view.View = both
		}
		return view
	}
	return v
}

// Run keeps the views up to date until ctx ends.
func (v *Views) Run(ctx context.Context) error { return v.parts.Run(ctx) }
