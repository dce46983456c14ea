package hub

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"path"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/transport"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/hub/copies"
	"yurtcoordinator/internal/hub/feed"
	"yurtcoordinator/internal/hub/filter"
	"yurtcoordinator/internal/hub/keep"
	"yurtcoordinator/internal/hub/link"
	"yurtcoordinator/internal/hub/push"
	"yurtcoordinator/internal/live"
	"yurtcoordinator/internal/replica"
	"yurtcoordinator/internal/run"
	"yurtcoordinator/internal/store"
	"yurtcoordinator/internal/stream"
	"yurtcoordinator/internal/stream/remote"
)

const (
	userAgent = "yurthub"

	// topologyWait is how long a request waits for the hub to know of service topology before it is answered without. A
	// hub that may not read Services never knows. offlineWait is the same where nobody can be asked: what is on the disk is
	// known within it.
	topologyWait, offlineWait = 5 * time.Second, time.Second
)

// Resources that service topology is about, and Pods.
var (
	endpoints      = schema.GroupVersionResource{Version: "v1", Resource: "endpoints"}
	endpointSlices = schema.GroupVersionResource{Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices"}
	services       = schema.GroupVersionResource{Version: "v1", Resource: "services"}
	pods           = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	nodePools      = schema.GroupVersionResource{Group: "apps.openyurt.io", Version: "v1beta2", Resource: "nodepools"}
)

// sharing is what a hub has of the resources that it keeps copies of.
type sharing struct {
	copies   *copies.Set
	topology *topology // nil without
	feeds    feeds
}

// feeds is what feeds have in common.
type feeds struct {
	metrics *feed.Metrics
	lists   chan struct{}     // as many lists over the WAN at a time
	as      http.RoundTripper // whose identity the cloud is asked with
}

// topology is service topology and what it needs to know beside the Services, which are one of the copies.
type topology struct {
	view *filter.Topology
	// runPools feeds the copy of the NodePool; nil without a pool.
	runPools func(context.Context) error
	want     func() // starts it
	wants    chan struct{}
}

func (h *Hub) newSharing(shared []schema.GroupVersionResource) (*sharing, error) {
	metrics, err := feed.NewMetrics(h.metrics)
	if err != nil {
		return nil, err
	}
	s := &sharing{feeds: feeds{metrics, make(chan struct{}, 1), h.cloud.AsNode()}}
	config := copies.Config{
		NewFeed: func(r *replica.Replica, shared bool) (copies.Feed, error) {
			return h.newFeed(s.feeds, r, shared, keep.Selection{Resource: r.Resource()})
		},
		Eager: h.cfg.EnableCoordinator,
	}
	if h.disk != nil {
		config.Restore = h.restore
	}
	if h.cfg.ServiceTopology {
		config.Always = []schema.GroupVersionResource{services}
		config.View = func(r schema.GroupVersionResource) (replica.View, func(context.Context)) {
			if r != endpoints && r != endpointSlices {
				return nil, nil
			}
			return s.topology.view, func(ctx context.Context) { s.topology.await(ctx, s.copies) }
		}
	}
	if h.cfg.MasterService {
		master, err := filter.NewMaster(h.cfg.SecureBindAddress, h.cfg.SecurePort)
		if err != nil {
			return nil, err
		}
		config.Always = []schema.GroupVersionResource{services}
		config.KubeletView = func(r schema.GroupVersionResource) replica.View {
			if r != services {
				return nil
			}
			return master
		}
	}
	if s.copies, err = copies.New(config, shared); err != nil {
		return nil, err
	}
	if h.cfg.ServiceTopology {
		s.topology, err = h.newTopology(s)
	}
	return s, err
}

func (h *Hub) newTopology(s *sharing) (*topology, error) {
	t := &topology{wants: make(chan struct{})}
	t.want = sync.OnceFunc(func() { close(t.wants) })
	var pools stream.Source // none: a node without a pool is a pool of its own
	if h.cfg.Pool != "" {
		r, err := replica.New(replica.Config{Resource: nodePools})
		if err != nil {
			return nil, err
		}
		// Of the own pool alone: pools are many, and their status changes with each of their nodes.
		own := keep.Selection{
			Resource: nodePools, Fields: fields.OneTermEqualSelector("metadata.name", string(h.cfg.Pool)).String(),
		}
		f, err := h.newFeed(s.feeds, r, false, own)
		if err != nil {
			return nil, err
		}
		pools, t.runPools = poolCopy{r, f.Status()}, f.Run
		if h.disk != nil {
			id := store.ID{Client: userAgent, Resource: nodePools, Fields: own.Fields}
			t.runPools = func(ctx context.Context) error { return h.runSaved(ctx, id, r, f.Run) }
		}
	}
	position := func(r schema.GroupVersionResource) func() edge.Revision {
		return func() edge.Revision {
			if c := s.copies.Find(r); c != nil {
				return c.Replica.Position()
			}
			return 0
		}
	}
	var err error
	t.view, err = filter.New(filter.Config{
		Node: h.cfg.Node, Pool: h.cfg.Pool,
		Services: serviceCopy{s}, NodePools: pools,
		Positions: []func() edge.Revision{position(endpoints), position(endpointSlices)},
	})
	return t, err
}

// await has service topology learn what it must know, and returns when it does or cannot be waited for any longer.
func (t *topology) await(ctx context.Context, set *copies.Set) {
	if t.view.Complete().Get() {
		return
	}
	wait := topologyWait
	if c := set.Find(services); c != nil {
		c.Want()
		if f, ok := c.Feed.(fed); ok && f.Status().Get().Denied {
			return // it will not be known soon, and no request is to wait for it
		}
		if c.Feed.Unreachable() {
			wait = offlineWait
		}
	}
	t.want()
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	_, _ = t.view.Complete().Wait(ctx, func(complete bool) bool { return complete }) // else: everything is shown
}

// add adds what runs: the view, and from when it is wanted, the feed of the NodePool.
func (t *topology) add(g *run.Group) {
	if t.runPools != nil {
		g.Add("node pool", func(ctx context.Context) error {
			select {
			case <-t.wants:
				return t.runPools(ctx)
			case <-ctx.Done():
				return nil
			}
		})
	}
	g.Add("service topology", t.view.Run)
}

// serviceCopy is the copy of the Services that the set has at the moment: another one once Services become shared, or
// no longer are.
type serviceCopy struct{ s *sharing }

func (c serviceCopy) source() (stream.Source, error) {
	if found := c.s.copies.Find(services); found != nil {
		return found.Replica, nil
	}
	return nil, stream.ErrNotReady
}

// Snapshot implements stream.Source. It waits a moment for a copy that is not complete: what is on the disk is read now.
func (c serviceCopy) Snapshot(ctx context.Context) (stream.Snapshot, error) {
	select {
	case <-c.s.copies.Begun():
	case <-ctx.Done():
		return stream.Snapshot{}, context.Cause(ctx)
	}
	found := c.s.copies.Find(services)
	if found == nil {
		return stream.Snapshot{}, stream.ErrNotReady
	}
	return completed(ctx, found.Replica)
}

// completed reads a replica, which it gives a second to be complete.
func completed(ctx context.Context, r *replica.Replica) (stream.Snapshot, error) {
	waiting, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_, _ = r.Complete().Wait(waiting, func(complete bool) bool { return complete })
	return r.Snapshot(ctx)
}

// Watch implements stream.Source.
func (c serviceCopy) Watch(ctx context.Context, after edge.Revision) (stream.Watch, error) {
	source, err := c.source()
	if err != nil {
		return nil, err
	}
	return source.Watch(ctx, after)
}

// poolCopy is the copy of the NodePool, of which it may be known that there will be none.
type poolCopy struct {
	*replica.Replica
	fed *live.Value[feed.Status]
}

// Snapshot implements stream.Source. It fails with another error than ErrNotReady when the cloud has no NodePools for this
// node: no permission, or no such resource. Else service topology, and whoever asks for endpoints, would wait for them.
func (c poolCopy) Snapshot(ctx context.Context) (stream.Snapshot, error) {
	if status := c.fed.Get(); status.Denied && !c.Complete().Get() {
		return stream.Snapshot{}, errors.New(status.Refused)
	}
	return completed(ctx, c.Replica)
}

// fed is a feed as the set of copies sees it.
type fed struct {
	*feed.Feed
	links []*live.Value[link.State] // of its sources
}

// Live implements copies.Feed.
func (f fed) Live() bool {
	s := f.Status().Get()
	return s.Live && s.Source == feed.Cloud
}

// Unreachable implements copies.Feed.
func (f fed) Unreachable() bool {
	return !slices.ContainsFunc(f.links, func(l *live.Value[link.State]) bool { return l.Get() != link.Down })
}

// Source implements copies.Feed.
func (f fed) Source() string { return f.Status().Get().Source.String() }

// newFeed makes the feed of a replica of a selection, whose source is the cloud, or the pool too if it is shared.
func (h *Hub) newFeed(common feeds, r *replica.Replica, shared bool, what keep.Selection) (fed, error) {
	resource := r.Resource()
	config := feed.Config{
		Resource: resource, Sink: r, CloudLink: h.cloud.Link(), Lists: common.lists, Metrics: common.metrics,
		Precious: resource == pods, // kubelet kills those that are gone
	}
	var err error
	if config.Cloud, err = readFrom("cloud", common.as, h.servers[0], collection(resource, what.Namespace), what); err != nil {
		return fed{}, err
	}
	if shared && h.pool != nil {
		config.Coordinator, err = readFrom("coordinator", h.pool.coordinator.AsNode(), h.pool.address, mirrorPath(resource), what)
		if err != nil {
			return fed{}, err
		}
		config.CoordinatorLink = h.pool.coordinator.Link()
		config.Standing = h.pool.keeper.Standing()
		config.Covered = h.pool.coverage.Of(resource.GroupResource())
	}
	links := []*live.Value[link.State]{config.CloudLink}
	if config.Coordinator != nil {
		links = append(links, config.CoordinatorLink)
	}
	f, err := feed.New(config)
	return fed{f, links}, err
}

func readFrom(name string, as http.RoundTripper, base *url.URL, at string, what keep.Selection) (*remote.Source, error) {
	return remote.New(remote.Config{
		Client: &http.Client{Transport: transport.NewUserAgentRoundTripper(userAgent, as)},
		Base:   base, Path: at, FieldSelector: what.Fields, LabelSelector: what.Labels, Name: name,
	})
}

func collection(r schema.GroupVersionResource, namespace string) string {
	root := path.Join("/apis", r.Group, r.Version)
	if r.Group == "" {
		root = path.Join("/api", r.Version)
	}
	if namespace != "" {
		root = path.Join(root, "namespaces", namespace)
	}
	return path.Join(root, r.Resource)
}

func mirrorPath(r schema.GroupVersionResource) string {
	group := r.Group
	if group == "" {
		group = edge.MirrorCoreGroup
	}
	return path.Join(edge.PathMirror, group, r.Version, r.Resource)
}

// Resources implements push.Set: what the leader pushes.
func (s *sharing) Resources() ([]push.Resource, <-chan struct{}) {
	all, changed := s.copies.Copies()
	var shared []push.Resource
	for _, c := range all {
		if c.Shared {
			shared = append(shared, push.Resource{GVR: c.Resource, Replica: c.Replica, Live: c.Feed.Live})
		}
	}
	return shared, changed
}

func (s *sharing) add(g *run.Group) {
	g.Add("copies", s.copies.Run)
	if s.topology != nil {
		s.topology.add(g)
	}
}
