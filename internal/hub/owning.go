package hub

import (
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/transport"

	"yurtcoordinator/internal/hub/own"
)

// newOwn builds what keeps the node's own objects in the coordinator.
func (h *Hub) newOwn() (*own.Pusher, error) {
	cloud, err := corev1client.NewForConfig(h.cloud.RESTConfig())
	if err != nil {
		return nil, err
	}
	return own.New(own.Config{
		Node: h.cfg.Node, Pool: h.cfg.Pool, Followed: h.ofNode, Secrets: h.cfg.OwnSecrets,
		Transport: transport.NewUserAgentRoundTripper(userAgent, h.pool.coordinator.AsNode()), Base: h.pool.address,
		Link: h.pool.coordinator.Link(), CloudLink: h.cloud.Link(), Cloud: cloud, Disk: h.disk, Metrics: h.metrics,
	})
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
