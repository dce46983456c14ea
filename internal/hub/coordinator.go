package hub

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"strconv"

	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/hub/discover"
	"yurtcoordinator/internal/hub/feed"
	"yurtcoordinator/internal/hub/heartbeat"
	"yurtcoordinator/internal/hub/link"
	"yurtcoordinator/internal/hub/push"
	"yurtcoordinator/internal/hub/role"
	"yurtcoordinator/internal/hub/roster"
	"yurtcoordinator/internal/hub/upstream"
	"yurtcoordinator/internal/run"
)

// pool is what a hub has of its pool.
type pool struct {
	// address is the coordinator's; only its name if finder is not nil, which knows where it is then.
	address     *url.URL
	finder      *discover.Finder
	coordinator *upstream.Upstream
	coverage    *feed.Coverage
	pusher      *push.Pusher
	heartbeats  *heartbeat.Proxy
	elector     *role.Elector
}

// host is the coordinator's address without its port; empty: it is not known.
func (p *pool) host() string {
	if p.finder == nil {
		return p.address.Hostname()
	}
	host, _, _ := net.SplitHostPort(p.finder.Target().Address) // empty, or it was checked
	return host
}

// coordinatorAddress is where the coordinator is, as far as is known.
func (h *Hub) coordinatorAddress() string {
	switch {
	case h.pool == nil:
		return ""
	case h.pool.finder != nil:
		if t := h.pool.finder.Target(); !t.IsZero() {
			return "https://" + t.Address
		}
		return ""
	default:
		return h.pool.address.String()
	}
}

// reachCoordinator builds the upstream of the coordinator: at the address that is set, or wherever the cloud says that it is.
func (h *Hub) reachCoordinator(p *pool) error {
	var err error
	if h.cfg.CoordinatorAddress != "" {
		servers, err := addresses("coordinator-server-addr", h.cfg.CoordinatorAddress)
		if err != nil {
			return err
		}
		ca := h.cfg.CoordinatorCAFile
		if ca == "" {
			ca = h.files.ca
		}
		p.address = servers[0]
		p.coordinator, err = h.upstream("coordinator", servers, ca, "")
		return err
	}
	cloud, err := corev1client.NewForConfig(h.cloud.RESTConfig())
	if err != nil {
		return err
	}
	p.finder = discover.New(discover.Config{
		Pool: h.cfg.Pool, ConfigMaps: cloud.ConfigMaps(edge.NamespaceSystem), Dir: h.cfg.CertDir,
		Moved: func() { p.coordinator.Moved() },
		Reachable: func(ctx context.Context) error {
			_, err := h.cloud.Link().Wait(ctx, func(s link.State) bool { return s != link.Down })
			return err
		},
	})
	p.address = &url.URL{
		Scheme: "https", Host: net.JoinHostPort(h.cfg.Pool.CoordinatorServerName(), strconv.Itoa(edge.PortCoordinator)),
	}
	p.coordinator, err = upstream.New(upstream.Config{
		Name: "coordinator", Servers: []*url.URL{p.address}, Address: p.finder.Address, CA: p.finder.CA,
		CertFile: h.files.cert, KeyFile: h.files.key, Metrics: h.metrics,
	})
	if err != nil {
		return fmt.Errorf("the pool's coordinator: %w", err)
	}
	return nil
}

func (h *Hub) newPool() (*pool, error) {
	p := &pool{}
	if err := h.reachCoordinator(p); err != nil {
		return nil, err
	}
	atCoordinator, err := coordinationv1client.NewForConfig(p.coordinator.RESTConfig())
	if err != nil {
		return nil, err
	}
	asNode, err := coordinationv1client.NewForConfig(h.cloud.RESTConfig())
	if err != nil {
		return nil, err
	}
	// Nobody has a key of the forwarding identity: the leader is allowed to take it on, and the cloud's audit log says
	// which node did.
	asForwarder := h.cloud.RESTConfig()
	asForwarder.Impersonate = rest.ImpersonationConfig{UserName: h.cfg.Pool.ForwardingUser()}
	forwarding, err := coordinationv1client.NewForConfig(asForwarder)
	if err != nil {
		return nil, err
	}

	if p.heartbeats, err = heartbeat.NewProxy(heartbeat.ProxyConfig{
		Node: h.cfg.Node, Cloud: asNode, CloudLink: h.cloud.Link(),
		Coordinator: atCoordinator, CoordinatorLink: p.coordinator.Link(),
		OnCoordinatorHost: func() bool { return isOwnAddress(p.host()) },
		Traffic: func() edge.Traffic {
			sent, received, since := h.cloud.Traffic()
			return edge.Traffic{Sent: sent, Received: received, Since: since}
		},
		Metrics: h.metrics,
	}); err != nil {
		return nil, err
	}
	forwarder, err := heartbeat.NewForwarder(heartbeat.ForwarderConfig{
		Node: h.cfg.Node, Coordinator: atCoordinator, Cloud: forwarding, Metrics: h.metrics,
	})
	if err != nil {
		return nil, err
	}
	reporter := roster.New(roster.Config{Node: h.cfg.Node, Pool: h.cfg.Pool, Coordinator: atCoordinator, Cloud: forwarding})
	p.coverage = feed.NewCoverage(feed.CoverageConfig{Leases: atCoordinator, Link: p.coordinator.Link()})
	if p.pusher, err = push.New(push.Config{
		Later: h.history.Raise,
		Node:  h.cfg.Node, Resources: shared{h}, Leases: atCoordinator, Metrics: h.metrics,
		Transport: transport.NewUserAgentRoundTripper(userAgent, p.coordinator.AsNode()), Base: p.address,
	}); err != nil {
		return nil, err
	}
	p.elector, err = role.New(role.Config{
		Node: h.cfg.Node, Cloud: h.cloud.Link(), Coordinator: p.coordinator.Link(), Leases: atCoordinator,
		Lead: func(ctx context.Context, t edge.Term) error {
			var duties run.Group
			duties.Add("forward heartbeats", func(ctx context.Context) error { return forwarder.Run(ctx, t) })
			duties.Add("report", func(ctx context.Context) error { return reporter.Run(ctx, t) })
			duties.Add("push", func(ctx context.Context) error { return p.pusher.Run(ctx, t) })
			return duties.Run(ctx)
		},
		Metrics: h.metrics,
	})
	return p, err
}

// isOwnAddress reports whether the host of an address is this machine.
func isOwnAddress(host string) bool {
	ip := net.ParseIP(host)
	own, err := net.InterfaceAddrs()
	if ip == nil || err != nil {
		return false
	}
	for _, a := range own {
		if n, ok := a.(*net.IPNet); ok && n.IP.Equal(ip) {
			return true
		}
	}
	return false
}
