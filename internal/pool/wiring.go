package pool

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/kubernetes"
	coordinationlisters "k8s.io/client-go/listers/coordination/v1"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"yurtcoordinator/internal/conns"
	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/pool/access"
	"yurtcoordinator/internal/pool/apiserver"
	"yurtcoordinator/internal/pool/etcd"
	"yurtcoordinator/internal/pool/limits"
	"yurtcoordinator/internal/pool/page"
	"yurtcoordinator/internal/run"
	"yurtcoordinator/internal/usage"
	"yurtcoordinator/internal/version"
	"yurtcoordinator/internal/version/buildinfo"
)

// wiring connects a Coordinator with etcd, kube-apiserver and the machine.
type wiring struct {
	config   Config
	etcd     *etcd.Member
	listener *spread
	local    net.Listener
	// ready is called once the pool's Leases are in place.
	ready func(context.Context, kubernetes.Interface) error

	client    kubernetes.Interface
	meter     *usage.Meter
	reach     *apiserver.Reach
	strangers *strangers
	linked    *linkPort
	// members are the pool's nodes, and reported what they say of their kubelets. Both are set before anything is served.
	members  *access.Members
	reported coordinationlisters.LeaseLister
}

// count registers the parts' metrics with kube-apiserver's own until ctx ends. A second coordinator in the same process, as in
// tests, registers none.
func (c *wiring) count(ctx context.Context, counted []prometheus.Collector) error {
	registry := legacyregistry.Registerer()
	for _, m := range counted {
		if err := registry.Register(m); err == nil {
			defer registry.Unregister(m)
		} else if twice := (prometheus.AlreadyRegisteredError{}); !errors.As(err, &twice) {
			return fmt.Errorf("register metrics: %w", err)
		}
	}
	<-ctx.Done()
	return nil
}

// Run waits for etcd and serves the API until ctx ends. When it returns, it has stopped serving. For its group, the function
// adding returns the function by which Run adds members to the group.
func (c *wiring) Run(ctx context.Context, adding func(*run.Group) func(string, func(context.Context) error)) error {
	select {
	case <-c.etcd.Ready():
	case <-ctx.Done():
		return errors.Join(c.listener.Close(), c.local.Close())
	}
	server, coordinator, err := c.assemble(ctx)
	if err != nil {
		_, _ = c.listener.Close(), c.local.Close()
		return err
	}
	var group run.Group
	add := adding(&group)
	add("kube-apiserver", server.Run)
	add("addresses", func(ctx context.Context) error { return c.listener.follow(ctx, c.config.AddressesFile) })
	add("metrics", func(ctx context.Context) error {
		return c.count(ctx, slices.Concat(coordinator.own.Metrics(), coordinator.mirrored.Metrics(),
			coordinator.present.Metrics(),
			[]prometheus.Collector{
				c.strangers.refused, c.linked.live(), buildinfo.New("yurt_coordinator", version.Get()),
			}))
	})
	add("usage", c.meter.Run)
	add("links", c.linked.Run)
	coordinator.AddTo(add)
	return group.Run(ctx)
}

// assemble makes all that is served. Nothing listens or runs yet, except what reads from etcd.
func (c *wiring) assemble(ctx context.Context) (*apiserver.Server, *Coordinator, error) {
	log := klog.FromContext(ctx)
	c.strangers = newStrangers(log)
	c.reach = apiserver.NewReach(c.kubelets())
	config, err := c.apiserver()
	if err != nil {
		return nil, nil, err
	}
	kube, err := apiserver.Configure(ctx, config)
	if err != nil {
		return nil, nil, err
	}
	c.client = kube.Client()
	coordinator, err := NewCoordinator(c.config, Around{
		Server: kube, Write: c.etcd.Write, Read: c.etcd.Read, Port: uint16(config.AdvertisePort),
		Dial: (&net.Dialer{}).DialContext, Log: log,
		Ready: func(ctx context.Context) error { return c.ready(ctx, c.client) },
	})
	if err != nil {
		return nil, nil, err
	}
	c.members, c.reported = coordinator.members, kube.Informers().Coordination().V1().Leases().Lister()
	parts := &coordinator.Parts
	parts.Gate, parts.AuditPolicy = c.gate(log), auditPolicy()
	parts.AuditLog = newAuditFilter(c.config.AuditLog, cmp.Or(c.config.refusals, refusalsPerSecond))
	if err := c.show(kube, coordinator); err != nil {
		return nil, nil, err
	}
	server, err := kube.Build(*parts)
	return server, coordinator, err
}

// show adds what only people and their tools look at.
func (c *wiring) show(kube *apiserver.Assembly, coordinator *Coordinator) (err error) {
	c.meter, err = usage.New(kube.Loopback(), usage.Kubelets{
		To: c.reach.To, Port: c.reach.Port(), AddressTypes: c.reach.AddressTypes(), Addresses: c.onLAN,
	}, clock.RealClock{}) //nolint:forbidigo // no simulation asks what nodes and Pods use
	if err != nil {
		return err
	}
	pools, err := coordinator.mirrored.Show(edge.OwnNodePools, edge.NodePools)
	if err != nil {
		return err
	}
	site, err := page.New(page.Config{
		Client: c.client, Leader: coordinator.elected.Leader, Host: c.config.NodeName, Clock: c.config.Ends.Clock,
		Version: version.Get().Version, Heard: coordinator.present.Nodes, Shared: coordinator.mirrored.Shared,
	})
	if err != nil {
		return err
	}
	links := access.NewLinks(c.config.Ends.Clock, coordinator.denied.Withdrawn)
	c.linked = newLinkPort(c.config, links, access.ByLink(links, site.ByLink()))
	parts := &coordinator.Parts
	parts.Install = func(server *genericapiserver.GenericAPIServer) error {
		discoverNodePools(server)
		return c.meter.Install(server)
	}
	parts.Handlers[edge.PathPage], parts.Handlers[nodePoolsGroup] = site, servesNodePools(pools)
	parts.Handlers[edge.PathLinks] = access.LinkIssuer{Links: links, Open: c.linked.Open}
	return nil
}

// gate lets in who shows a certificate of the pool's.
func (c *wiring) gate(log klog.Logger) func(*tls.Config) net.Listener {
	return func(secure *tls.Config) net.Listener {
		return conns.NewGate(c.listener, conns.GateConfig{
			TLS: secure, Named: true, Handshake: handshakeTime, Waiting: maxHandshakes, WaitingPerSource: maxHandshakesOfOne,
			PerSource: cmp.Or(c.config.connections, maxConnections), All: cmp.Or(c.config.connections, maxAllConnections),
			Unproved: cmp.Or(c.config.connections, maxUnproved), AllUnproved: maxAllUnproved, Refused: limits.Refused(log),
		})
	}
}

func (c *wiring) apiserver() (apiserver.Config, error) {
	serviceRange, err := c.config.serviceRange()
	if err != nil {
		return apiserver.Config{}, err
	}
	advertised := net.ParseIP(c.config.BindAddress)
	if advertised.IsUnspecified() {
		advertised = net.ParseIP(loopback)
	}
	at, err := netip.ParseAddrPort(c.listener.Addr().String())
	if err != nil {
		return apiserver.Config{}, fmt.Errorf("--bind-address: %w", err)
	}
	return apiserver.Config{
		Local:            conns.Local(c.local, maxProbes),
		AdvertiseAddress: advertised, AdvertisePort: int(at.Port()), EtcdEndpoint: c.etcd.Endpoint(),
		TLSCertFile: c.config.TLSCertFile, TLSPrivateKeyFile: c.config.TLSPrivateKeyFile,
		ClientCAFile: c.config.ClientCAFile,
		ServiceRange: serviceRange, Kubelets: c.reach, Shown: access.Shown, Schemes: []*runtime.Scheme{usage.Scheme},
	}, nil
}

const (
	// loopback is where kubelet's probes come, on IPv6-only nodes as well.
	loopback = "127.0.0.1"
	// maxConnections bounds the connections of one client, by the name in its certificate: a node, its hub, or a person.
	maxConnections = 256
	// maxAllConnections bounds the connections of all clients: four for each node of the largest pool. A hub has two at its home
	// and two at each standby, and more while its home moves. Beyond the bound, the client with the most connections loses its
	// oldest.
	maxAllConnections = 4096
	// maxUnproved bounds the connections from one address whose client has made no allowed request yet. A hub makes one a moment
	// after it has connected.
	maxUnproved = 8
	// maxAllUnproved bounds the connections from all addresses whose client has made no allowed request yet. When a coordinator
	// has restarted, all hubs connect at once, and are in this state for a round trip. The bound is far below maxAllConnections,
	// which such connections therefore can't fill.
	maxAllUnproved = 512
	// handshakeTime bounds a TLS handshake: some round trips on a LAN.
	handshakeTime = 5 * time.Second
	// maxHandshakes and maxHandshakesOfOne bound the handshakes under way, and those of one address.
	maxHandshakes, maxHandshakesOfOne = 512, 64
	// maxProbes bounds the connections to the port for probes, except those of this process. Any program of this machine may open
	// some. A kubelet has one or two, for some milliseconds. Each may hold 1 MiB of headers in kube-apiserver.
	maxProbes = 16
)

// listen opens a port. Its error names the flags of address and port.
func listen(ctx context.Context, addressFlag, address, portFlag string, port int) (net.Listener, error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", net.JoinHostPort(address, strconv.Itoa(port)))
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("--%s %d: another program serves on it; stop that one or give another port", portFlag, port)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return nil, fmt.Errorf("--%s %s: not an address of this machine", addressFlag, address)
	case err != nil:
		return nil, fmt.Errorf("--%s, --%s: %w", addressFlag, portFlag, err)
	}
	klog.FromContext(ctx).V(2).Info("Listening", "address", listener.Addr().String())
	return listener, nil
}
