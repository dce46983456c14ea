package hub

import (
	"net/http"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"yurtcoordinator/internal/hub/filter"
	"yurtcoordinator/internal/hub/follow"
	"yurtcoordinator/internal/hub/push"
	"yurtcoordinator/internal/replica"
)

// userAgent is what the hub calls itself.
const userAgent = follow.Hub

// Resources that service topology is about.
var (
	endpoints      = schema.GroupVersionResource{Version: "v1", Resource: "endpoints"}
	endpointSlices = schema.GroupVersionResource{Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices"}
	services       = schema.GroupVersionResource{Version: "v1", Resource: "services"}
	nodePools      = schema.GroupVersionResource{Group: "apps.openyurt.io", Version: "v1beta2", Resource: "nodepools"}
)

// newFollowed builds what is followed: for the hub itself, and for those whose requests come to the keeper or the guests.
func (h *Hub) newFollowed(shared []schema.GroupVersionResource) (*follow.Set, error) {
	config := follow.Config{Node: h.cfg.Node, Disk: follow.Nowhere{}, Cloud: h.cloud.Link(), Eager: h.cfg.EnableCoordinator}
	sources := &follow.Sources{Cloud: h.servers[0], CloudLink: h.cloud.Link(), As: h.as, Metrics: h.metrics, History: h.history}
	if h.disk != nil {
		config.Disk = h.disk
	}
	if h.pool != nil {
		config.Coordinator = h.pool.coordinator.Link()
		sources.Pool = &follow.Pool{
			As: h.pool.coordinator.AsNode(), Base: h.pool.address, Link: h.pool.coordinator.Link(),
			Standing: h.pool.elector.Standing(), Covered: h.pool.coverage.Of,
			History: h.pool.coverage.History(),
		}
	}
	config.Changed = func() {
		if h.own != nil {
			h.own.Changed()
		}
	}
	if h.cfg.ServiceTopology {
		config.Always = append(config.Always, follow.Whole(services))
		if h.cfg.Pool != "" {
			config.Always = append(config.Always, h.nodePool())
		}
		config.View = h.topologyOf
	}
	if h.cfg.MasterService {
		master, err := filter.NewMaster(h.cfg.SecureBindAddress, h.cfg.SecurePort)
		if err != nil {
			return nil, err
		}
		config.Always = append(config.Always, follow.Whole(services))
		config.KubeletView = func(r schema.GroupVersionResource) replica.View {
			if r != services {
				return nil
			}
			return master
		}
	}
	var err error
	if config.NewFeed, err = follow.Feeds(sources); err != nil {
		return nil, err
	}
	return follow.New(config, shared)
}

// as reaches the cloud with the credentials of whoever something is followed for.
func (h *Hub) as(client string) http.RoundTripper {
	if client == "" || client == follow.Hub {
		return h.cloud.AsNode()
	}
	return h.guests.As(client)
}

// nodePool is the own pool alone: pools are many, and their status changes with each of their nodes.
func (h *Hub) nodePool() follow.Selection {
	return follow.Selection{
		Resource: nodePools, Fields: fields.OneTermEqualSelector("metadata.name", string(h.cfg.Pool)).String(),
	}
}

// topologyOf is what this node's programs see of a resource that service topology is about.
func (h *Hub) topologyOf(r schema.GroupVersionResource) *follow.View {
	if r != endpoints && r != endpointSlices {
		return nil
	}
	return &follow.View{
		View: h.topology, Complete: h.topology.Complete(),
		From: follow.Whole(services), Also: []follow.Selection{h.nodePool()},
	}
}

func (h *Hub) newTopology() (*filter.Topology, error) {
	config := filter.Config{Node: h.cfg.Node, Pool: h.cfg.Pool, Services: h.followed.Source(follow.Whole(services))}
	if h.cfg.Pool != "" { // else it is a pool of its own
		config.NodePools = h.followed.Source(h.nodePool())
	}
	return filter.New(config)
}

// shared is what the leader pushes: a push.Set.
type shared struct{ hub *Hub }

// Resources implements push.Set.
func (s shared) Resources() ([]push.Resource, <-chan struct{}) {
	all, changed := s.hub.followed.Fixed()
	var pool []push.Resource
	for _, m := range all {
		if m.Shared {
			pool = append(pool, push.Resource{GVR: m.Resource, Replica: m.Replica, Live: m.Live})
		}
	}
	return pool, changed
}
