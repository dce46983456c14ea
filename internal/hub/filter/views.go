package filter

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/hub/follow"
	"yurtcoordinator/internal/live"
	"yurtcoordinator/internal/replica"
	"yurtcoordinator/internal/run"
	"yurtcoordinator/internal/stream"
)

// ViewsConfig says what a node's programs see otherwise than the cloud has it.
type ViewsConfig struct {
	// Node is this node; Pool its pool, empty if it has none.
	Node edge.NodeName
	Pool edge.PoolName
	// Source gives each selection of Always.
	Source func(follow.Selection) stream.Beginner
	// Topology leaves out endpoints that are not near.
	Topology bool
	// Overlay shows endpoints as the pool knows them; nil means as the cloud has them.
	Overlay replica.View
	// Leads says that this hub may lead: then the coordinator is shown the pool's NodePool.
	Leads bool
	// Master says that kubelet is shown the Service by which it tells Pods where the API server is.
	Master bool
}

// Views are how a node's programs see the hub's own resources. Make one with NewViews.
type Views struct {
	// Always are the selections that have to be followed for them.
	Always []follow.Selection
	// View returns how programs see a resource; nil means as it is: a follow.Config.View.
	View func(schema.GroupVersionResource) *follow.View

	learns bool // there are parts
	parts  run.Group
}

// NewViews returns Views, which without Run show nothing but the Overlay.
func NewViews(c ViewsConfig) *Views {
	v := &Views{View: func(schema.GroupVersionResource) *follow.View { return nil }}
	if c.Overlay != nil {
		overlaid := follow.View{View: c.Overlay, Complete: live.NewValue(true)}
		v.View = func(r schema.GroupVersionResource) *follow.View {
			if !HasEndpoints(r) {
				return nil
			}
			return &overlaid
		}
	}
	switch {
	case c.Topology:
		v.near(c)
	case c.Overlay != nil:
		v.Always = append(v.Always, Services)
	}
	if c.Leads && c.Pool != "" && !c.Topology {
		v.Always = append(v.Always, OwnPool(c.Pool))
	}
	if c.Master {
		v.Always = append(v.Always, Services) // once more does no harm
	}
	return v
}

// near leaves out endpoints that are not near, of those that the Overlay shows.
func (v *Views) near(c ViewsConfig) {
	topology := New(Config{Node: c.Node, Pool: c.Pool, Source: c.Source})
	v.learns = true
	v.parts.Add("service topology", topology.Run)
	v.Always, v.View = topology.Learns(), topology.View
	if c.Overlay == nil {
		return
	}
	both := NewStack(c.Overlay, topology)
	v.parts.Add("endpoints of the pool", both.Run)
	v.View = func(r schema.GroupVersionResource) *follow.View {
		view := topology.View(r)
		if view != nil {
			view.View = both
		}
		return view
	}
}

// Run keeps what is shown true until ctx ends.
func (v *Views) Run(ctx context.Context) error {
	if !v.learns {
		<-ctx.Done()
		return nil
	}
	return v.parts.Run(ctx)
}
