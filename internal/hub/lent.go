package hub

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"time"

	"k8s.io/klog/v2"

	"yurtcoordinator/internal/conns"
	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/hub/config"
	"yurtcoordinator/internal/hub/front"
	"yurtcoordinator/internal/hub/link"
	"yurtcoordinator/internal/hub/relay"
	"yurtcoordinator/internal/hub/upstream"
	"yurtcoordinator/internal/live"
	"yurtcoordinator/internal/run"
)

// lent is how a hub lends its line to its pool, and borrows another's. A hub without a coordinator, or without an address at
// which it serves Pods, does neither.
type lent struct {
	// use is what is borrowed for, lends whether anything is lent, and limits is how much.
	use    *live.Value[upstream.Use]
	lends  *live.Value[bool]
	limits *live.Value[relay.Limits]
	// server relays for others, client finds those that relay for this hub; nil in a hub that does neither. passer leads
	// whoever asks at the same port for a coordinator of the pool to one.
	server *relay.Server
	client *relay.Client
	passer *relay.Passer
	// serves is where others find the server; not valid means nowhere.
	serves *live.Value[netip.AddrPort]
}

func newLent(starts config.Running) lent {
	l := lent{
		use: live.NewValue(upstream.ForNothing), lends: live.NewValue(false), limits: live.NewValue(relay.Standard()),
		serves: live.NewValue(netip.AddrPort{}),
	}
	l.change(starts)
	return l
}

// change takes settings.
func (l *lent) change(now config.Running) {
	l.use.Set(now.Borrows)
	l.lends.Set(now.Borrows != upstream.ForNothing)
	limits := relay.Standard()
	if now.Metered {
		limits = relay.Metered()
	}
	l.limits.Set(limits)
}

// by returns the node that relays for this one, or did last.
func (l *lent) by() edge.NodeName {
	if l.client == nil {
		return ""
	}
	return l.client.By()
}

// lends reports whether this hub can take part: neighbours know each other by what the pool's authority signs for hubs that serve
// Pods, and hear of each other at the coordinator.
func (h *Hub) lends() bool { return h.cfg.EnableCoordinator && h.pods.Address() != nil }

// detour returns how the cloud is reached over neighbours' lines; nil if it never is.
func (h *Hub) detour() *upstream.Detour {
	if !h.lends() {
		return nil
	}
	return &upstream.Detour{Use: h.lent.use, DialContext: func(ctx context.Context, network, server string) (net.Conn, error) {
		return h.lent.client.DialContext(ctx, network, server)
	}}
}

// dialCloud opens a connection to an API server for what does not use the upstream: over a neighbour's line where all goes
// there.
func (h *Hub) dialCloud(ctx context.Context, network, server string) (net.Conn, error) {
	if h.cloud != nil && h.cloud.Link().Get() == link.Relayed {
		return h.lent.client.DialContext(ctx, network, server)
	}
	return h.way.DialContext(ctx, network, server)
}

// lend adds what relays for others, and what finds those that relay for this hub.
func (h *Hub) lend() error {
	if !h.lends() {
		return nil
	}
	known := relay.Credentials{Own: h.identity.Served().Get, Now: h.checked.Now}
	h.lent.client = relay.NewClient(relay.ClientConfig{
		Credentials: known, Node: h.cfg.Node, Coordinator: h.member.Leases(), Dial: upstream.Dial, Metrics: h.metrics,
	})
	h.lent.server = relay.NewServer(relay.ServerConfig{
		Credentials: known, Lends: h.lent.lends, Link: h.cloud.Link(), Targets: h.cloud.Servers(), Dial: h.way.DialContext,
		Limits: h.lent.limits.Get, Metrics: h.metrics,
	})
	h.lent.passer = relay.NewPasser(relay.PasserConfig{
		Named: func(name string) bool { return name == h.cfg.Pool.CoordinatorServerName() },
		Dial:  h.dialCoordinator, Metrics: h.metrics,
	})
	h.parts.Add("relay", h.serveNeighbours)
	return nil
}

// relaysAt returns what neighbours are told of where this hub relays; empty if it doesn't.
func (h *Hub) relaysAt() string {
	at := h.lent.serves.Get()
	if h.lent.server == nil || !at.IsValid() || !h.lent.server.Relays() {
		return ""
	}
	return at.String()
}

// errMoved says that the node's address is another.
var errMoved = errors.New("the node's address is another")

// listenPause bounds the pause between two tries to listen at the node's address: it may not be on an interface yet.
const listenPause = 10 * time.Second

// errNoCoordinator says that none is known to live.
var errNoCoordinator = errors.New("this hub reaches no coordinator of the pool")

// dialCoordinator opens a connection to the coordinator, if that is known to live.
func (h *Hub) dialCoordinator(ctx context.Context, _ string) (net.Conn, error) {
	at, err := url.Parse(h.member.URL())
	if err != nil || at.Host == "" || h.member.Link().Get() != link.Up {
		return nil, errors.Join(errNoCoordinator, err)
	}
	return upstream.Dial(ctx, "tcp", at.Host)
}

// serveNeighbours serves the pool's other hubs at the node's address until ctx ends, and whoever asks there for a coordinator.
func (h *Hub) serveNeighbours(ctx context.Context) error {
	for ctx.Err() == nil {
		at, err := h.pods.Address().Wait(ctx, netip.Addr.IsValid)
		if err != nil {
			return nil //nolint:nilerr // ctx has ended
		}
		same, left := h.pods.Address().While(ctx, func(now netip.Addr) bool { return now == at }, errMoved)
		err = h.serveNeighboursAt(same, netip.AddrPortFrom(at, edge.PortHubRelay))
		left()
		if err != nil {
			return err
		}
	}
	return nil
}

const (
	// maxPeerConnections and maxAllPeers bound the connections to the relay's port, of one address and of all. The tunnels in
	// them have bounds of their own.
	maxPeerConnections, maxAllPeers = 48, 384
)

func (h *Hub) serveNeighboursAt(ctx context.Context, at netip.AddrPort) error {
	logger := klog.FromContext(ctx).WithValues("address", at)
	config := front.ServerConfig{
		Handler: h.lent.server, TLS: relay.Credentials{Own: h.identity.Served().Get, Now: h.checked.Now}.Serving(), HTTP1: true,
		PerSource: maxPeerConnections, All: maxAllPeers, Aside: h.lent.passer.Aside(),
		Refused: func(_ netip.AddrPort, why conns.Reason, _ error) { h.lent.server.NotLetIn(string(why)) },
	}
	for pause := (run.Backoff{Min: time.Second, Max: listenPause}); ctx.Err() == nil; _ = run.Pause(ctx, pause.Next()) {
		server, err := front.Listen(at.String(), config)
		if err != nil {
			logger.Error(err, "Cannot relay for the pool's other nodes, trying again")
			continue
		}
		h.lent.serves.Set(at)
		logger.Info("Relaying for the pool's other nodes")
		err = server.Run(ctx)
		h.lent.serves.Set(netip.AddrPort{})
		if err != nil {
			return fmt.Errorf("relaying at %s: %w", at, err)
		}
	}
	return nil
}
