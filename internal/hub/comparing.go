package hub

import (
	"context"
	"fmt"
	"net/http"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/transport"
	"k8s.io/utils/clock"

	"yurtcoordinator/apis/hub/v1alpha1"
	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/hub/compare"
	"yurtcoordinator/internal/hub/follow"
	"yurtcoordinator/internal/stream/remote"
)

// compareWithCloud makes the part that compares, while this hub follows, what the coordinator says with the cloud.
func (h *Hub) compareWithCloud() error {
	asNode, err := corev1client.NewForConfig(h.cloud.RESTConfig())
	if err != nil {
		return err
	}
	carried := compare.NewCarried(h.cloud.AsNode())
	shares := &sharing{hub: h, client: &http.Client{Transport: transport.NewUserAgentRoundTripper(follow.Hub, carried)}}
	comparer := compare.New(compare.Config{
		Node: h.cfg.Node, Standing: h.pool.standing, CloudLink: h.cloud.Link(), Resources: shares.resources,
		Followers: h.whoCompares, Timing: h.comparing, Spent: carried.Bytes, Metrics: h.metrics,
		Tell: func(ctx context.Context, lie compare.Lie) error {
			event := lie.Event(h.cfg.Node, h.cfg.Pool, h.pool.place.About(), clock.RealClock{}.Now())
			_, err := asNode.Events(event.Namespace).Create(ctx, event, metav1.CreateOptions{})
			return err
		},
	})
	h.parts.Add("compares the coordinator with the cloud", comparer.Run)
	return nil
}

// comparing returns how often the pool compares.
func (h *Hub) comparing() compare.Timing {
	t := compare.Standard()
	if h.linkProfile() == v1alpha1.LinkMetered {
		t = compare.Metered()
	}
	if h.cfg.CompareEvery > 0 {
		t = t.Every(h.cfg.CompareEvery)
	}
	return t
}

// whoCompares returns the nodes that have a link of their own, without the leader, as the coordinator has it.
func (h *Hub) whoCompares(ctx context.Context, leader edge.NodeName) ([]edge.NodeName, error) {
	leases, err := h.pool.leases.Leases(corev1.NamespaceNodeLease).List(ctx, metav1.ListOptions{
		LabelSelector: "!" + edge.DelegateHeartbeat,
	})
	if err != nil {
		return nil, fmt.Errorf("list the pool's Leases: %w", err)
	}
	nodes := []edge.NodeName{h.cfg.Node}
	for i := range leases.Items {
		if node := edge.NodeName(leases.Items[i].Name); node != leader && node != h.cfg.Node {
			nodes = append(nodes, node)
		}
	}
	return nodes, nil
}

// sharing is what the pool shares, as it can be asked of the cloud.
type sharing struct {
	hub    *Hub
	client *http.Client

	mu    sync.Mutex
	cloud map[schema.GroupVersionResource]*remote.Source
}

func (s *sharing) resources() (all []compare.Resource) {
	members, _ := s.hub.followed.Shared()
	for _, m := range members {
		source, err := s.source(m.Resource)
		if err != nil {
			continue // its path can't be asked for, and so it was never followed
		}
		all = append(all, compare.Resource{
			Name: m.Resource.GroupResource().String(), Replica: m.Replica, Cloud: source,
			Fed: func() bool {
				cloud := s.hub.history.State().Get()
				return m.FromCoordinator() && cloud.Sure && cloud.Number == m.Replica.History()
			},
		})
	}
	return all
}

func (s *sharing) source(of schema.GroupVersionResource) (*remote.Source, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if source := s.cloud[of]; source != nil {
		return source, nil
	}
	source, err := remote.New(remote.Config{
		Client: s.client, Base: s.hub.servers[0], Path: follow.Collection(of, ""), Name: "cloud",
	})
	if err != nil {
		return nil, err
	}
	if s.cloud == nil {
		s.cloud = map[schema.GroupVersionResource]*remote.Source{}
	}
	s.cloud[of] = source
	return source, nil
}
