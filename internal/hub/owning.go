package hub

import (
	"context"

	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/hub/filter"
	"yurtcoordinator/internal/hub/presence"
	"yurtcoordinator/internal/hub/push"
	"yurtcoordinator/internal/hub/standin"
	"yurtcoordinator/internal/stream"
)

// takePart adds the elector, what fills a coordinator that nobody leads, the parts that bring the node's own objects to the
// coordinator, and the one that has endpoints follow the pool's Pods.
func (h *Hub) takePart() error {
	if !h.cfg.EnableCoordinator {
		return nil
	}
	h.parts.Add("role", h.pool.elector.Run)
	filler, err := push.NewFiller(push.FillerConfig{
		Config: h.pushes(), Resources: shared{h}, Leases: h.pool.leases, CloudLink: h.cloud.Link(), Link: h.pool.link,
		Leader: func() (edge.NodeName, <-chan struct{}) {
			standing, changed := h.pool.standing.Watch()
			return standing.Leader, changed
		},
	})
	if err != nil {
		return err
	}
	h.parts.Add("fill in for a leader", filler.Run)
	if !h.cfg.OwnObjects {
		return nil
	}
	cloud, err := corev1client.NewForConfig(h.cloud.RESTConfig())
	if err != nil {
		return err
	}
	number := func() edge.History { return h.history.State().Get().Number }
	var pusher *push.Node
	var follower *presence.Follower
	changed := func() {
		pusher.Changed()
		follower.Changed()
	}
	taker := standin.New(standin.Config{
		Object: h.followed.OwnObject, CloudLink: h.cloud.Link(), Events: cloud,
		History: number, Disk: h.disk, Changed: changed, Metrics: h.metrics,
	})
	if pusher, err = push.NewNode(push.NodeConfig{
		Config: h.pushes(), Pool: h.cfg.Pool, Followed: h.ofNode, Secrets: h.cfg.OwnSecrets, Link: h.pool.link,
		CloudLink: h.cloud.Link(), Cloud: cloud, Overlay: taker, History: number,
	}); err != nil {
		return err
	}
	follower = presence.New(presence.Config{
		Node: h.cfg.Node, CloudLink: h.cloud.Link(), CoordinatorLink: h.pool.link, Transport: h.pool.coordinator.AsHub(),
		Base: h.pool.address, Own: h.ownPods, Said: taker.Said, Services: h.followed.Source(filter.Services), History: number,
		View: h.overlay, Metrics: h.metrics,
	})
	h.changed = changed
	h.serves.StandIn, h.serves.Situation.StandIn = taker, true
	h.parts.Add("writes in the cloud's place", taker.Run)
	h.parts.Add("own objects", pusher.Run)
	h.parts.Add("endpoints that follow the Pods", func(ctx context.Context) error {
		select {
		case <-h.followed.Begun():
			h.followed.Wanted(filter.Services)
			return follower.Run(ctx)
		case <-ctx.Done():
			return nil
		}
	})
	return nil
}

// ownPods returns this node's Pods as the cloud has them, by what kubelet follows.
func (h *Hub) ownPods(ctx context.Context) (stream.Snapshot, bool) {
	for _, each := range h.followed.Own() {
		if each.ID == (stream.ID{Resource: "pods"}) {
			all, err := each.Replica.Snapshot(ctx)
			return all, err == nil
		}
	}
	return stream.Snapshot{}, false
}

// ofNode returns what is followed of this node's own objects.
func (h *Hub) ofNode() (all []push.Selection) {
	for _, each := range h.followed.Own() {
		all = append(all, push.Selection{ID: each.ID, Replica: each.Replica})
	}
	return all
}
