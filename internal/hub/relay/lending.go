package relay

import (
	"context"
	"net"
	"net/netip"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"yurtcoordinator/internal/conns"
	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/ends"
	"yurtcoordinator/internal/hub/front"
	"yurtcoordinator/internal/hub/link"
	"yurtcoordinator/internal/hub/upstream"
	"yurtcoordinator/internal/live"
	"yurtcoordinator/internal/run"
)

// maxPeerConnections and maxAllPeers bound the connections to the relay's port, from one address and in all. The tunnels in them
// have bounds of their own.
const maxPeerConnections, maxAllPeers = 48, 384

// LendingConfig is what a Lending needs. Fields without a default are required.
type LendingConfig struct {
	Node edge.NodeName
	Pool edge.PoolName
	// Address is where the hub serves Pods; the zero Addr means that this is not known yet. A nil Address disables relaying,
	// because the hub serves no Pods or has no coordinator.
	Address *live.Value[netip.Addr]
	// Dial opens a connection to an API server by the hub's own way.
	Dial    func(ctx context.Context, network, server string) (net.Conn, error)
	Metrics prometheus.Registerer
	// Ends are this machine's clocks, random numbers and network. DialNear is required.
	Ends ends.Ends
}

// Parties are what a Lending brings together.
type Parties struct {
	// Credentials are how this hub and the pool's other hubs verify each other.
	Credentials Credentials
	// Disk keeps which neighbours relay.
	Disk Disk
	// Cloud is the upstream whose line the hub lends.
	Cloud *upstream.Upstream
	// Coordinators returns clients of the coordinators that this hub reaches now, by slot. They know which hubs relay.
	Coordinators func() map[int]rest.Interface
	// DialCoordinator opens a connection to the coordinator with the given server name, if that coordinator is known to live.
	DialCoordinator func(ctx context.Context, serverName string) (net.Conn, error)
	// Nodes returns the pool's nodes, as the cloud last listed them; nil means that the cloud has not listed them yet. Denied
	// returns the users and credential ids whose certificates are no longer valid in the pool, as the cloud last said.
	Nodes  func() []edge.NodeName
	Denied func() []string
}

// Lending lends this hub's line to neighbours, and borrows theirs. Make one with NewLending, set its limits with Change, and
// its partners with Meet.
type Lending struct {
	cfg LendingConfig
	// use says which requests may use a neighbour's line, lends whether the hub lends its own, and limits how much it lends.
	use    *live.Value[upstream.Use]
	lends  *live.Value[bool]
	limits *live.Value[Limits]
	// parties are the partners that Meet was given. server relays for others, and client finds the neighbours that relay for
	// this hub. passer connects clients on the same port to a coordinator of the pool. All are nil before Meet.
	parties *Parties
	server  *Server
	client  *Client
	passer  *Passer
	// serves is the address at which neighbours find the server; the zero AddrPort means none.
	serves *live.Value[netip.AddrPort]
}

// NewLending returns a Lending that lends and borrows nothing yet.
func NewLending(cfg LendingConfig) *Lending {
	return &Lending{
		cfg: cfg, use: live.NewValue(upstream.ForNothing), lends: live.NewValue(false),
		limits: live.NewValue(Standard()), serves: live.NewValue(netip.AddrPort{}),
	}
}

// Change sets which requests may use a neighbour's line. If any may, the hub also lends its own line. If metered is true, that
// line is paid for by the byte, and the hub lends less of it.
func (l *Lending) Change(borrows upstream.Use, metered bool) {
	l.use.Set(borrows)
	l.lends.Set(borrows != upstream.ForNothing)
	limits := Standard()
	if metered {
		limits = Metered()
	}
	l.limits.Set(limits)
}

// Possible reports whether this hub can lend and borrow at all. Call Meet and Run only if it can.
func (l *Lending) Possible() bool { return l.cfg.Address != nil }

// Detour returns the way to the cloud over neighbours' lines; nil means that the hub never uses one.
func (l *Lending) Detour() *upstream.Detour {
	if !l.Possible() {
		return nil
	}
	return &upstream.Detour{Use: l.use, DialContext: func(ctx context.Context, network, server string) (net.Conn, error) {
		return l.client.DialContext(ctx, network, server)
	}}
}

// Meet creates the server that relays for others, and the client that finds neighbours that relay for this hub.
func (l *Lending) Meet(p Parties) {
	l.parties = &p
	l.client = NewClient(ClientConfig{
		Credentials: p.Credentials, Node: l.cfg.Node, Pool: l.cfg.Pool, Disk: p.Disk, Coordinators: p.Coordinators,
		Dial: l.cfg.Ends.DialNear, Wanted: l.lends.Get, May: l.mayBeAt,
		Metrics: l.cfg.Metrics, Clock: l.cfg.Ends.Clock, Chance: l.cfg.Ends.Chance,
	})
	l.server = NewServer(ServerConfig{
		Credentials: p.Credentials, Lends: l.lends, Link: p.Cloud.Link(), Targets: p.Cloud.Servers(), Dial: l.cfg.Dial,
		Node: l.cfg.Node, Nodes: p.Nodes, Denied: p.Denied,
		Limits: l.limits.Get, Metrics: l.cfg.Metrics, Clock: l.cfg.Ends.Clock,
	})
	l.passer = NewPasser(PasserConfig{
		Named: func(name string) bool { return name == l.cfg.Pool.CoordinatorServerName() },
		Dial:  p.DialCoordinator, Metrics: l.cfg.Metrics, Clock: l.cfg.Ends.Clock,
	})
}

// mayBeAt reports whether a neighbour's hub can relay at an address. The neighbour names its address itself, so mayBeAt allows
// only global unicast addresses at the relay's port. If this hub itself serves at a loopback address, mayBeAt allows any address
// at that port.
func (l *Lending) mayBeAt(at netip.AddrPort) bool {
	return at.Port() == edge.PortHubRelay && (at.Addr().Unmap().IsGlobalUnicast() || l.cfg.Address.Get().IsLoopback())
}

// DialContext opens a connection to an API server for code that does not use package upstream. The connection goes through a
// neighbour while the link to the cloud is relayed.
func (l *Lending) DialContext(ctx context.Context, network, server string) (net.Conn, error) {
	if l.parties != nil && l.parties.Cloud.Link().Get() == link.Relayed {
		return l.client.DialContext(ctx, network, server)
	}
	return l.cfg.Dial(ctx, network, server)
}

// By returns the node that relays for this one, or the last that did; empty means none.
func (l *Lending) By() edge.NodeName {
	if l.client == nil {
		return ""
	}
	return l.client.By()
}

// Relayed returns which node relays for this one, or the last that did, and for which requests.
func (l *Lending) Relayed() edge.Relayed {
	return edge.Relayed{By: l.By(), HeartbeatsOnly: l.use.Get() == upstream.ForSome}
}

// RelaysAt returns the address at which neighbours can use this hub's line; empty means that this hub does not relay.
func (l *Lending) RelaysAt() string {
	at := l.serves.Get()
	if l.server == nil || !at.IsValid() || !l.server.Relays() {
		return ""
	}
	return at.String()
}

// Neighbours returns for how many nodes this hub relays now.
func (l *Lending) Neighbours() int {
	if l.server == nil {
		return 0
	}
	return l.server.Neighbours()
}

// Run serves the pool's other hubs, and clients that ask for a coordinator, at the node's address until ctx ends. It also keeps
// the list of relaying neighbours up to date.
func (l *Lending) Run(ctx context.Context) error {
	logger := klog.FromContext(ctx)
	at := front.Moving{
		Address: l.cfg.Address, Port: edge.PortHubRelay, What: "relaying", Config: func() front.ServerConfig {
			return front.ServerConfig{
				Handler: l.server, TLS: l.parties.Credentials.Serving(), HTTP1: true,
				PerSource: maxPeerConnections, All: maxAllPeers, Named: true, Aside: l.passer.Aside(),
				Refused: func(_ netip.AddrPort, why conns.Reason, _ error) { l.server.NotLetIn(string(why)) },
			}
		},
		Serves: func(at netip.AddrPort) {
			l.serves.Set(at)
			logger.Info("Relaying for the pool's other nodes", "address", at)
		},
		Fails: func(at netip.AddrPort, err error) {
			logger.Error(err, "Cannot relay for the pool's other nodes, trying again", "address", at)
		},
		Ends: func() { l.serves.Set(netip.AddrPort{}) }, On: l.cfg.Ends.Net, Chance: l.cfg.Ends.Chance,
	}
	var g run.Group
	g.Add("neighbours", l.client.Run)
	g.Add("who may borrow", l.server.Run)
	g.Add("relay", at.Run)
	return g.Run(ctx)
}
