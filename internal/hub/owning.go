package hub

import (
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/hub/own"
	"yurtcoordinator/internal/hub/standin"
	"yurtcoordinator/internal/stream"
)

// takePart has the hub stand for election, and bring the node's own objects to the coordinator.
func (h *Hub) takePart() error {
	if !h.cfg.EnableCoordinator {
		return nil
	}
	h.parts.Add("role", h.pool.elector.Run)
	if !h.cfg.OwnObjects {
		return nil
	}
	cloud, err := corev1client.NewForConfig(h.cloud.RESTConfig())
	if err != nil {
		return err
	}
	number := func() edge.History { return h.history.State().Get().Number }
	var pusher *own.Pusher
	taker, err := standin.New(standin.Config{
		Object:    func(i stream.ID) (stream.Object, bool) { return own.Find(h.ofNode(), h.cfg.Node, i) },
		Transport: h.pool.coordinator.AsHub(), Base: h.pool.address, CloudLink: h.cloud.Link(), Events: cloud,
		History: number, Disk: h.disk, Changed: func() { pusher.Changed() }, Metrics: h.metrics,
	})
	if err != nil {
		return err
	}
	if pusher, err = own.New(own.Config{
		Node: h.cfg.Node, Pool: h.cfg.Pool, Followed: h.ofNode, Secrets: h.cfg.OwnSecrets,
		Transport: h.pool.coordinator.AsHub(), Base: h.pool.address, Link: h.pool.link, CloudLink: h.cloud.Link(),
		Cloud: cloud, Overlay: taker, History: number, Later: h.history.Raise, Metrics: h.metrics,
	}); err != nil {
		return err
	}
	h.changed = pusher.Changed
	h.serves.StandIn, h.serves.Situation.StandIn = taker, true
	h.parts.Add("writes in the cloud's place", taker.Run)
	h.parts.Add("own objects", pusher.Run)
	return nil
}

// ofNode is what is followed for this node's programs.
func (h *Hub) ofNode() []own.Selection {
	all := h.followed.Followed()
	selections := make([]own.Selection, 0, len(all))
	for _, f := range all {
		if f.Labels == "" {
			selections = append(selections, own.Selection{
				Resource: f.Resource, Namespace: f.Namespace, Fields: f.Fields, Replica: f.Replica,
			})
		}
	}
	return selections
}
