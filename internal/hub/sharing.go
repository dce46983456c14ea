package hub

import (
	"net/http"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"yurtcoordinator/internal/hub/filter"
	"yurtcoordinator/internal/hub/follow"
	"yurtcoordinator/internal/hub/push"
	"yurtcoordinator/internal/stream"
)

// userAgent is what the hub calls itself.
const userAgent = follow.Hub

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
	if err := h.addViews(&config); err != nil {
		return nil, err
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

// addViews has this node's programs see some resources otherwise than the cloud shows them.
func (h *Hub) addViews(config *follow.Config) (err error) {
	if h.cfg.ServiceTopology {
		if h.topology, err = filter.New(filter.Config{
			Node: h.cfg.Node, Pool: h.cfg.Pool,
			Source: func(what follow.Selection) stream.Source { return h.followed.Source(what) },
		}); err != nil {
			return err
		}
		config.Always, config.View = h.topology.Learns(), h.topology.View
	}
	if h.cfg.MasterService {
		master, err := filter.NewMaster(h.cfg.SecureBindAddress, h.cfg.SecurePort)
		if err != nil {
			return err
		}
		config.Always, config.KubeletView = append(config.Always, filter.Services), master.View
	}
	return nil
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
