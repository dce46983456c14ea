package member

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/transport"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"yurtcoordinator/apis/hub/v1alpha1"
	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/hub/compare"
	"yurtcoordinator/internal/hub/follow"
	"yurtcoordinator/internal/stream/remote"
)

// compareWithCloud makes the part that compares, while this hub follows, what the coordinator says with the cloud.
func (m *Membership) compareWithCloud() error {
	asNode, err := corev1client.NewForConfig(m.cfg.Cloud.RESTConfig())
	if err != nil {
		return err
	}
	carried := compare.NewCarried(m.cfg.Cloud.AsNode())
	shares := &sharing{of: m, client: &http.Client{Transport: transport.NewUserAgentRoundTripper(follow.Hub, carried)}}
	comparer := compare.New(compare.Config{
		Node: m.cfg.Node, Standing: m.standing, CloudLink: m.cfg.Cloud.Link(), Resources: shares.resources,
		Followers: whoCompares(m.cfg.Node, m.leases), Timing: m.comparing, Spent: carried.Bytes, Metrics: m.cfg.Metrics,
		Tell: func(ctx context.Context, lie compare.Lie) error {
			event := lie.Event(m.cfg.Node, m.cfg.Pool, m.atHome().place.About(), clock.RealClock{}.Now())
			_, err := asNode.Events(event.Namespace).Create(ctx, event, metav1.CreateOptions{})
			return err
		},
	})
	m.reach.Add("compares the coordinator with the cloud", comparer.Run)
	return nil
}

// comparing returns how often the pool compares.
func (m *Membership) comparing() compare.Timing {
	t := compare.Standard()
	if m.cfg.LinkProfile() == v1alpha1.LinkMetered {
		t = compare.Metered()
	}
	if m.cfg.CompareEvery > 0 {
		t = t.Every(m.cfg.CompareEvery)
	}
	return t
}

// whoCompares returns a function that finds the nodes that have a link of their own, as the coordinator has it, without the
// leader.
func whoCompares(
	node edge.NodeName, at coordinationv1client.LeasesGetter,
) func(ctx context.Context, leader edge.NodeName) ([]edge.NodeName, error) {
	return func(ctx context.Context, leader edge.NodeName) ([]edge.NodeName, error) {
		leases, err := at.Leases(corev1.NamespaceNodeLease).List(ctx, metav1.ListOptions{
			LabelSelector: "!" + edge.DelegateHeartbeat,
		})
		if err != nil {
			return nil, fmt.Errorf("list the pool's Leases: %w", err)
		}
		return append([]edge.NodeName{node}, withLines(leases.Items, leader, node)...), nil
	}
}

// silentAfter is how much older than the newest Lease of a pool another is whose node is gone, whatever their clocks.
const silentAfter = 5 * time.Minute

// withLines returns the nodes of the copies of Leases, but for these, that can ask the cloud themselves.
func withLines(copies []coordinationv1.Lease, but ...edge.NodeName) (nodes []edge.NodeName) {
	renewed := func(l coordinationv1.Lease) time.Time { return ptr.Deref(l.Spec.RenewTime, metav1.MicroTime{}).Time }
	var newest time.Time
	for i := range copies {
		if at := renewed(copies[i]); at.After(newest) {
			newest = at
		}
	}
	for i := range copies {
		node, gone := edge.NodeName(copies[i].Name), newest.Sub(renewed(copies[i])) > silentAfter
		if !gone && copies[i].Annotations[edge.AnnotationRelayedBy] == "" && !slices.Contains(but, node) {
			nodes = append(nodes, node)
		}
	}
	return nodes
}

// sharing is what the pool shares, as it can be asked of the cloud.
type sharing struct {
	of     *Membership
	client *http.Client

	mu    sync.Mutex
	cloud map[schema.GroupVersionResource]*remote.Source
}

func (s *sharing) resources() (all []compare.Resource) {
	members, _ := s.of.followed.Shared()
	for _, m := range members {
		source, err := s.source(m.Resource)
		if err != nil {
			continue // its path can't be asked for, and so it was never followed
		}
		all = append(all, compare.Resource{
			Name: m.Resource.GroupResource().String(), Replica: m.Replica, Cloud: source,
			Fed: func() bool {
				cloud := s.of.cfg.History.State().Get()
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
		Client: s.client, Base: s.of.cfg.Server, Path: follow.Collection(of, ""), Name: "cloud",
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
