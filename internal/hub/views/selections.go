package views

import (
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/hub/cache"
	"yurtcoordinator/internal/replica"
)

// Resources that service topology cuts.
var (
	endpointsResource = schema.GroupVersionResource{Version: "v1", Resource: "endpoints"}
	slicesResource    = schema.GroupVersionResource{Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices"}
)

// HasEndpoints reports whether a resource is EndpointSlices or Endpoints.
func HasEndpoints(r schema.GroupVersionResource) bool {
	return r == endpointsResource || r == slicesResource
}

// Services selects all Services. Both views need them.
var Services = cache.Whole(schema.GroupVersionResource{Version: "v1", Resource: "services"})

// OwnPool selects one NodePool. The hub does not follow all NodePools, because there are many, and the status of each changes
// with each of its nodes.
func OwnPool(name edge.PoolName) cache.Selection {
	return cache.Selection{
		Resource: edge.NodePools,
		Fields:   fields.OneTermEqualSelector("metadata.name", string(name)).String(),
	}
}

// Learns returns the selections that the hub must follow for the Topology.
func (t *Topology) Learns() []cache.Selection {
	if t.config.Pool == "" {
		return []cache.Selection{Services}
	}
	return []cache.Selection{Services, OwnPool(t.config.Pool)}
}

// View returns how this node's programs see a resource; nil means that no topology applies to it.
func (t *Topology) View(r schema.GroupVersionResource) *cache.View {
	if !HasEndpoints(r) {
		return nil
	}
	return &cache.View{View: t, Complete: t.complete, From: Services, Also: t.Learns()[1:]}
}

// View returns how kubelet sees a selection; nil means as other programs do.
func (m *Master) View(s cache.Selection) replica.View {
	if s.Resource != Services.Resource {
		return nil
	}
	return m
}

// Any combines views of selections: the first result that is not nil counts. For each selection, at most one of the views
// should return a result.
func Any(views ...func(cache.Selection) replica.View) func(cache.Selection) replica.View {
	return func(s cache.Selection) replica.View {
		for _, view := range views {
			if v := view(s); v != nil {
				return v
			}
		}
		return nil
	}
}
