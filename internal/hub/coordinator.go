package hub

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"yurtcoordinator/apis/hub/v1alpha1"
	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/hub/discover"
	"yurtcoordinator/internal/hub/feed"
	"yurtcoordinator/internal/hub/filter"
	"yurtcoordinator/internal/hub/follow"
	"yurtcoordinator/internal/hub/heartbeat"
	"yurtcoordinator/internal/hub/line"
	"yurtcoordinator/internal/hub/link"
	"yurtcoordinator/internal/hub/openings"
	"yurtcoordinator/internal/hub/oversee"
	"yurtcoordinator/internal/hub/pin"
	"yurtcoordinator/internal/hub/push"
	"yurtcoordinator/internal/hub/role"
	"yurtcoordinator/internal/hub/roster"
	"yurtcoordinator/internal/hub/upstream"
	"yurtcoordinator/internal/hub/warrant"
	"yurtcoordinator/internal/live"
)

// proofTimeout bounds the request that proves that a hub may lead.
const proofTimeout = 5 * time.Second

// pool is how a hub takes part in its pool.
type pool struct {
	// place is where the coordinator is, as far as is known.
	place interface {
		URL() string
		OnThisMachine() bool
		Clients() (ids []string, known bool)
		About() corev1.ObjectReference
	}
	// address names the coordinator in requests, coordinator reaches it as this node, and leases is a client of it.
	address     *url.URL
	coordinator *upstream.Upstream
	leases      *coordinationv1client.CoordinationV1Client

	link     *live.Value[link.State]
	standing *live.Value[role.Standing]
	mirror   *follow.Pool // what can be read at the coordinator; nil means nothing
	elector  *role.Elector
	// kubelet finds the certificate by which the coordinator knows kubelet; nil means that there is no coordinator.
	kubelet *pin.Finder
}

// joinPool makes the parts that a member of a pool needs. Without a coordinator the hub is alone.
func (h *Hub) joinPool() error {
	p := &h.pool
	*p = pool{place: discover.Nowhere{}, link: live.NewValue(link.Down), standing: live.NewValue(role.Standing{})}
	if h.cfg.EnableCoordinator {
		if err := h.reachCoordinator(); err != nil {
			return err
		}
		p.link = p.coordinator.Link()
		if err := h.beat(); err != nil {
			return err
		}
		coverage := feed.NewCoverage(feed.CoverageConfig{Leases: p.leases, Link: p.link})
		h.parts.Add("coverage", coverage.Run)
		cloud, err := h.forwarding()
		if err != nil {
			return err
		}
		duties, err := h.duties(cloud)
		if err != nil {
			return err
		}
		p.elector = role.New(role.Config{
			Node: h.cfg.Node, Cloud: h.cloud.Link(), Coordinator: p.link, Leases: p.leases, Lead: role.Together(duties...),
			Prove: prove(cloud, h.cfg.Pool), Metrics: h.metrics,
		})
		p.standing = p.elector.Standing()
		overseer := oversee.New(oversee.Config{
			Node: h.cfg.Node, Coordinator: p.leases, Cloud: cloud, CloudLink: h.cloud.Link(), Standing: p.standing,
			Accuse: p.elector.Accuse, Metrics: h.metrics,
		})
		h.parts.Add("checks on the leader", overseer.Run)
		if err := h.compareWithCloud(); err != nil {
			return err
		}
		p.mirror = &follow.Pool{
			As: p.coordinator.AsNode(), Base: p.address, Link: p.link, Standing: p.standing,
			Covered: coverage.Of, Filling: coverage.Filling, History: coverage.History(),
		}
	}
	h.serves.CoordinatorLink = p.link.Get
	h.serves.Warrants = warrant.New(warrant.Config{
		Node: h.cfg.Node, Pool: h.cfg.Pool, Metrics: h.metrics, Word: func() warrant.Word {
			ids, known := p.place.Clients()
			return warrant.Word{Known: known, Clients: ids}
		},
	})
	h.parts.Add("disk and links", func(ctx context.Context) error { return h.disk.Heed(ctx, h.cloud.Link(), p.link) })
	return nil
}

// reachCoordinator makes the upstream to the coordinator: at the configured address, or wherever the cloud says it is.
func (h *Hub) reachCoordinator() error {
	p := &h.pool
	var config upstream.Config
	if h.cfg.CoordinatorAddress != "" {
		servers, err := addresses("coordinator-server-addr", h.cfg.CoordinatorAddress)
		if err != nil {
			return err
		}
		p.address, p.place = servers[0], discover.Fixed{At: servers[0], Pool: h.cfg.Pool}
		config = h.upstream("coordinator", servers)
		config.CAFile = cmp.Or(h.cfg.CoordinatorCAFile, config.CAFile)
	} else {
		finder, err := h.findCoordinator()
		if err != nil {
			return err
		}
		p.address, p.place = finder.Name(), finder
		config = h.upstream("coordinator", []*url.URL{p.address})
		config.CAFile, config.Address, config.CA = "", finder.Address, finder.CA
	}
	config.Link = link.Near()
	var err error
	if p.coordinator, err = upstream.New(config); err != nil {
		return fmt.Errorf("the pool's coordinator: %w", err)
	}
	h.parts.Add("coordinator", p.coordinator.Run)
	p.leases, err = coordinationv1client.NewForConfig(p.coordinator.RESTConfig())
	return err
}

func (h *Hub) findCoordinator() (*discover.Finder, error) {
	cloud, err := corev1client.NewForConfig(h.cloud.RESTConfig())
	if err != nil {
		return nil, err
	}
	finder := discover.New(discover.Config{
		Pool: h.cfg.Pool, ConfigMaps: cloud.ConfigMaps(edge.NamespaceSystem), Dir: h.cfg.CertDir,
		Reachable: h.cloud.NotDown, Moved: func() { h.pool.coordinator.Moved() },
	})
	h.parts.Add("where the coordinator is", finder.Run)
	return finder, nil
}

// beat makes the heartbeat.Proxy, through which kubelet's heartbeats go.
func (h *Hub) beat() error {
	anyway := h.cloud.RESTConfig()
	anyway.Transport = upstream.Anyways(anyway.Transport)
	asNode, err := coordinationv1client.NewForConfig(anyway)
	if err != nil {
		return err
	}
	ca, _, _ := h.identity.Files()
	h.pool.kubelet = pin.New(pin.Config{
		Settings: h.cfg.KubeletConfig, Certificate: h.cfg.KubeletServing, Authorities: ca, Clock: clock.RealClock{},
		Metrics: h.metrics,
	})
	h.parts.Add("kubelet's certificate", h.pool.kubelet.Run)
	proxy := heartbeat.NewProxy(heartbeat.ProxyConfig{
		Node: h.cfg.Node, Cloud: asNode, CloudLink: h.cloud.AnywayLink(), Coordinator: h.pool.leases,
		CoordinatorLink: h.pool.link, RelayedBy: h.lent.by, RelaysAt: h.relaysAt,
		OnCoordinatorHost: h.pool.place.OnThisMachine, Traffic: h.cloud.Traffic, Kubelet: h.pool.kubelet.Serving,
		Metered: func() bool { return h.linkProfile() == v1alpha1.LinkMetered }, Metrics: h.metrics,
	})
	h.serves.OwnLease = proxy
	h.parts.Add("heartbeats", proxy.Run)
	return nil
}

// forwarding returns a client of the cloud with the pool's forwarding identity. Nobody has a key for that. The pool's nodes may
// impersonate it, and the cloud's audit log says which node did.
func (h *Hub) forwarding() (*coordinationv1client.CoordinationV1Client, error) {
	asForwarder := h.cloud.RESTConfig()
	asForwarder.Impersonate = rest.ImpersonationConfig{UserName: h.cfg.Pool.ForwardingUser()}
	return coordinationv1client.NewForConfig(asForwarder)
}

// duties returns what this hub does while it leads.
func (h *Hub) duties(cloud coordinationv1client.LeasesGetter) ([]role.Duty, error) {
	leases := h.pool.leases
	forwarder := heartbeat.NewForwarder(heartbeat.ForwarderConfig{
		Node: h.cfg.Node, Coordinator: leases, Cloud: cloud, Metrics: h.metrics,
	})
	forward := func(ctx context.Context, term edge.Term) error {
		err := forwarder.Run(ctx, term)
		if errors.Is(err, heartbeat.ErrRefused) {
			err = fmt.Errorf("%w: %w", role.ErrUnfit, err)
		}
		return err
	}
	asNode, err := corev1client.NewForConfig(h.cloud.RESTConfig())
	if err != nil {
		return nil, err
	}
	teller := openings.New(openings.Config{
		Node: h.cfg.Node, Pool: h.cfg.Pool, Coordinator: leases.RESTClient(), Events: asNode.Events(metav1.NamespaceDefault),
		About: h.pool.place.About, Metrics: h.metrics,
	})
	pusher, err := push.NewPool(push.PoolConfig{Config: h.pushes(), Resources: shared{h}, Leases: leases})
	if err != nil {
		return nil, err
	}
	reporter := roster.New(roster.Config{
		Node: h.cfg.Node, Pool: h.cfg.Pool, Coordinator: leases, Cloud: cloud, Fillings: pusher.Fillings,
		Every: func() time.Duration { return reportEvery(h.linkProfile()) },
	})
	lines := line.New(line.Config{
		Node: h.cfg.Node, Lines: reporter.Lines, Rested: func(now time.Time) bool { return h.pool.elector.Rested(now) },
	})
	return []role.Duty{
		{Name: "forward heartbeats", Run: forward}, {Name: "report", Run: reporter.Run}, {Name: "push", Run: pusher.Run},
		{Name: "tell who opened what", Run: teller.Run}, {Name: "compare lines", Run: lines.Run},
	}, nil
}

// prove returns a proof that this hub may forward: it reads the pool's report as the forwarding identity. That proves the link,
// the certificate and every right but to write.
func prove(cloud coordinationv1client.LeasesGetter, pool edge.PoolName) func(context.Context) error {
	return func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, proofTimeout)
		defer cancel()
		_, err := cloud.Leases(corev1.NamespaceNodeLease).Get(ctx, pool.ReportLease(), metav1.GetOptions{})
		switch {
		case err == nil || apierrors.IsNotFound(err):
			return nil
		case apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err):
			return fmt.Errorf("%w: %w: is this node in the NodePool %s, and has the pool a YurtCoordinator?",
				role.ErrUnfit, err, pool)
		}
		return fmt.Errorf("find out whether this hub may forward heartbeats: %w", err)
	}
}

// pushes is what the leader and this node push with.
func (h *Hub) pushes() push.Config {
	return push.Config{
		Node: h.cfg.Node, Transport: h.pool.coordinator.AsHub(), Base: h.pool.address, Later: h.history.Raise, Metrics: h.metrics,
	}
}

// shared is what the leader pushes: a push.Set.
type shared struct{ hub *Hub }

// Resources implements push.Set.
func (s shared) Resources() (all []push.Resource, changed <-chan struct{}) {
	members, changed := s.hub.followed.Shared()
	for _, m := range members {
		all = append(all, push.Resource{GVR: m.Resource, Replica: m.Replica, Live: m.Live, Filling: m.Filling})
	}
	if m := s.hub.followed.Wanted(filter.OwnPool(s.hub.cfg.Pool)); m != nil { // a cloud without NodePools has none
		all = append(all, push.Resource{GVR: edge.OwnNodePools, Replica: m.Replica, Live: m.Live, Optional: true})
	}
	return all, changed
}
