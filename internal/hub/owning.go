package hub

import (
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/transport"

	"yurtcoordinator/internal/hub/own"
	"yurtcoordinator/internal/hub/standin"
	"yurtcoordinator/internal/stream"
)

// newOwn builds what takes the writes of the node's programs in the cloud's place, and what keeps the node's own objects in the
// coordinator.
func (h *Hub) newOwn() error {
	cloud, err := corev1client.NewForConfig(h.cloud.RESTConfig())
	if err != nil {
		return err
	}
	asNode := transport.NewUserAgentRoundTripper(userAgent, h.pool.coordinator.AsNode())
	if h.standIn, err = standin.New(standin.Config{
		Object:    func(i stream.ID) (stream.Object, bool) { return own.Find(h.ofNode(), h.cfg.Node, i) },
		Transport: asNode, Base: h.pool.address, Link: h.pool.coordinator.Link(), CloudLink: h.cloud.Link(), Events: cloud,
		Disk: h.disk, Changed: func() { h.own.Changed() }, Metrics: h.metrics,
	}); err != nil {
		return err
	}
	h.own, err = own.New(own.Config{
		Node: h.cfg.Node, Pool: h.cfg.Pool, Followed: h.ofNode, Secrets: h.cfg.OwnSecrets,
		Transport: asNode, Base: h.pool.address, Link: h.pool.coordinator.Link(), CloudLink: h.cloud.Link(), Cloud: cloud,
		Overlay: h.standIn, Metrics: h.metrics,
	})
	return err
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
