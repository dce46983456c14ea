package filter

import (
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/hub/follow"
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
var Services = follow.Whole(schema.GroupVersionResource{Version: "v1", Resource: "services"})

// OwnPool selects one NodePool: there are many, and the status of each changes with each of its nodes.
func OwnPool(name edge.PoolName) follow.Selection {
	return follow.Selection{
		Resource: edge.NodePools,
		Fields:   fields.OneTermEqualSelector("metadata.name", string(name)).String(),
	}
}

// Learns returns what a hub has to follow for the Topology.
func (t *Topology) Learns() []follow.Selection {
	if t.config.Pool == "" {
		return []follow.Selection{Services}
	}
	return []follow.Selection{Services, OwnPool(t.config.Pool)}
}

// View returns how this node's programs see a resource; nil means that no topology applies to it.
func (t *Topology) View(r schema.GroupVersionResource) *follow.View {
	if !HasEndpoints(r) {
		return nil
	}
	return &follow.View{View: t, Complete: t.complete, From: Services, Also: t.Learns()[1:]}
}

// View returns how kubelet sees a selection; nil means as all others do.
func (m *Master) View(s follow.Selection) replica.View {
	if s.Resource != Services.Resource {
		return nil
	}
	return m
}

// Any returns how kubelet sees a selection of which at most one has a view.
func Any(views ...func(follow.Selection) replica.View) func(follow.Selection) replica.View {
	return func(s follow.Selection) replica.View {
		for _, view := range views {
			if v := view(s); v != nil {
				return v
			}
		}
		return nil
	}
}
