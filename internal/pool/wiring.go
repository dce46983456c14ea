package pool

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/endpoints/request"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/client-go/kubernetes"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"yurtcoordinator/internal/conns"
	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/pool/access"
	"yurtcoordinator/internal/pool/apiserver"
	"yurtcoordinator/internal/pool/etcd"
	"yurtcoordinator/internal/pool/exchange"
	"yurtcoordinator/internal/pool/limits"
	"yurtcoordinator/internal/pool/mirror"
	"yurtcoordinator/internal/pool/nodeobjects"
	"yurtcoordinator/internal/pool/page"
	"yurtcoordinator/internal/pool/presence"
	"yurtcoordinator/internal/pool/succession"
	"yurtcoordinator/internal/usage"
	"yurtcoordinator/internal/version"
	"yurtcoordinator/internal/version/buildinfo"
)

var errNotSetUp = errors.New("the pool's roles and Leases are not in place yet")

// wiring connects the parts.
type wiring struct {
	config   Config
	etcd     *etcd.Member
	listener *spread
	local    net.Listener
	present  *presence.Presence

	installed atomic.Bool // the pool's roles and Leases exist

	serving chan struct{} // closed when the fields below are set; the API answers soon after
	client  kubernetes.Interface
	own     *nodeobjects.Objects
	counted []prometheus.Collector
	members *access.Members
	denied  *access.Denied
	elected *access.Election
	meter   *usage.Meter

	reach     *apiserver.Reach
	strangers *strangers
}

// served returns member so that it runs once the API answers.
func (c *wiring) served(member func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		select {
		case <-c.serving:
			return member(ctx)
		case <-ctx.Done():
			return nil
		}
	}
}

// count has what the parts count served with kube-apiserver's own metrics, until ctx ends. Of several coordinators in one
// process, as in tests, the first is counted.
func (c *wiring) count(ctx context.Context) error {
	registry := legacyregistry.Registerer()
	for _, m := range c.counted {
		if err := registry.Register(m); err == nil {
			defer registry.Unregister(m)
		} else if twice := (prometheus.AlreadyRegisteredError{}); !errors.As(err, &twice) {
			return fmt.Errorf("register metrics: %w", err)
		}
	}
	<-ctx.Done()
	return nil
}

// Run waits for etcd, serves the API until ctx ends, and has stopped serving when it returns.
func (c *wiring) Run(ctx context.Context) error {
	select {
	case <-c.etcd.Ready():
	case <-ctx.Done():
		return errors.Join(c.listener.Close(), c.local.Close())
	}
	server, err := c.assemble(ctx)
	if err != nil {
		_, _ = c.listener.Close(), c.local.Close()
		return err
	}
	close(c.serving)
	return server.Run(ctx)
}

// assemble makes all that is served. Nothing listens or runs yet, except what reads from etcd.
func (c *wiring) assemble(ctx context.Context) (*apiserver.Server, error) {
	c.strangers = newStrangers(klog.FromContext(ctx), c.config.Ends.Clock)
	c.reach = apiserver.NewReach(c.kubelets())
	config, err := c.apiserver()
	if err != nil {
		return nil, err
	}
	kube, err := apiserver.Configure(ctx, config)
	if err != nil {
		return nil, err
	}
	c.client = kube.Client()
	parts := apiserver.Parts{
		Gate: c.gate(klog.FromContext(ctx)), Known: access.Known(kube.VerifyOptions, c.config.Ends.Clock),
		Door: access.AtTheDoor(kube.VerifyOptions, c.config.Ends.Clock), Unrecognized: access.Unrecognized,
		AuditPolicy: auditPolicy(), AuditLog: newAuditFilter(c.config.AuditLog, cmp.Or(c.config.refusals, refusalsPerSecond)),
		Outermost: func(next http.Handler) http.Handler { return exchange.Bound(access.TellWhy(next)) },
		Limit: func(api http.Handler, lasts func(*http.Request, *request.RequestInfo) bool) http.Handler {
			return limits.New(lasts, c.config.Ends.Clock, klog.FromContext(ctx)).Handler(api)
		},
		MayLast: func(r *http.Request) bool {
			return mirror.MayLast(r) || nodeobjects.MayLast(r) || presence.MayLast(r)
		},
		Ready: healthz.NamedCheck("pool-setup", func(*http.Request) error {
			if !c.installed.Load() {
				return errNotSetUp
			}
			return nil
		}),
	}
	c.elected = access.NewElection(c.client.CoordinationV1(), c.config.Ends.Clock)
	if err := c.decide(kube, c.elected, &parts); err != nil {
		return nil, err
	}
	if err := c.handle(ctx, kube, c.elected, &parts); err != nil {
		return nil, err
	}
	return kube.Build(parts)
}

// decide adds to parts the deciders of who may do what.
func (c *wiring) decide(kube *apiserver.Assembly, elected *access.Election, parts *apiserver.Parts) (err error) {
	c.members = access.NewMembers(c.config.PoolNodesFile)
	_, _ = c.members.Read() // Run reports its error
	c.denied = access.NewDenied(c.config.DeniedUsersFile)
	_, _ = c.denied.Read()
	pods := access.ReadPods(c.client.CoreV1())
	if parts.Authorizer, err = access.NewAuthorizer(c.denied, c.members, pods, kube.Authorizer()); err != nil {
		return err
	}
	parts.Admission, err = access.NewAdmission(kube.Informers(), parts.Authorizer, c.config.NodeName, elected, c.present.Renewed)
	return err
}

// handle adds to parts what is served beside Kubernetes' own API.
func (c *wiring) handle(
	ctx context.Context, kube *apiserver.Assembly, elected *access.Election, parts *apiserver.Parts,
) error {
	builtIns, err := mirror.Stored(kube.Storage())
	if err != nil {
		return err
	}
	kinds, err := nodeobjects.Stored(kube.Storage(), c.config.OwnSecrets)
	if err != nil {
		return err
	}
	mirrored := mirror.New(mirror.Config{
		Quota: c.config.MirrorQuotaBytes, Clock: c.config.Ends.Clock, Leads: elected.Leads, Fills: elected.Fills, Write: c.etcd.Write,
		BuiltIns: builtIns, Current: elected.Declared().Current, Stalled: c.config.stalledPush,
	})
	c.own = nodeobjects.New(nodeobjects.Config{
		Quota: c.config.OwnQuotaBytes, Clock: c.config.Ends.Clock, Write: c.etcd.Write, Read: c.etcd.Read, Kinds: kinds,
		Log: klog.FromContext(ctx), Member: c.members.Has, Present: c.present, Stalled: c.config.stalledPush,
	})
	c.counted = slices.Concat(c.own.Metrics(), mirrored.Metrics(), c.present.Metrics(),
		[]prometheus.Collector{c.strangers.refused, buildinfo.New("yurt_coordinator", version.Get())})
	c.meter, err = usage.New(kube.Loopback(), usage.Kubelets{
		To: c.reach.To, Port: c.reach.Port(), AddressTypes: c.reach.AddressTypes(), Addresses: c.onLAN,
	}, clock.RealClock{}) //nolint:forbidigo // no simulation asks what nodes and Pods use
	if err != nil {
		return err
	}
	pools, err := mirrored.Show(edge.OwnNodePools, edge.NodePools)
	if err != nil {
		return err
	}
	site, err := c.page(mirrored)
	if err != nil {
		return err
	}
	parts.Install = func(server *genericapiserver.GenericAPIServer) error {
		discoverNodePools(server)
		return c.meter.Install(server)
	}
	parts.Innermost = func(api http.Handler) http.Handler { return access.FromHere(mirrored.Gate(api)) }
	parts.BeforeShutdown = func() error { // their watches and streams would delay the end
		return errors.Join(mirrored.Close(), c.present.Close())
	}
	parts.Handlers = map[string]http.Handler{
		edge.PathMirror: mirrored, edge.PathOwn: c.own, edge.PathPresence: c.present, edge.PathPage: site,
		nodePoolsGroup: servesNodePools(pools), "/openapi/": http.HandlerFunc(access.NoOpenAPI),
	}
	return nil
}

// page is what people look at.
func (c *wiring) page(mirrored *mirror.Mirror) (*page.Page, error) {
	return page.New(page.Config{
		Client: c.client, Leader: c.elected.Leader, Host: c.config.NodeName, Clock: c.config.Ends.Clock,
		Version: version.Get().Version,
		Heard: func() []page.Heard {
			var all []page.Heard
			for _, n := range c.present.Nodes() {
				all = append(all, page.Heard(n))
			}
			return all
		},
		Shared: func() []page.Shared {
			var all []page.Shared
			for _, s := range mirrored.Standings() {
				all = append(all, page.Shared{
					Resource: s.Resource.String(), Complete: s.Complete, Current: s.Current, Warns: s.Warns,
				})
			}
			return all
		},
	})
}

// gate lets in who shows a certificate of the pool's.
func (c *wiring) gate(log klog.Logger) func(*tls.Config) net.Listener {
	return func(secure *tls.Config) net.Listener {
		return conns.NewGate(c.listener, conns.GateConfig{
			TLS: secure, Handshake: handshakeTime, Waiting: maxHandshakes, WaitingPerSource: maxHandshakesOfOne,
			PerSource: cmp.Or(c.config.connections, maxConnections), Refused: limits.Refused(log),
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
		ServiceRange: serviceRange, Kubelets: c.reach, Schemes: []*runtime.Scheme{usage.Scheme},
	}, nil
}

// successor returns what ends this coordinator when it has a successor.
func (c *wiring) successor() *succession.Succession {
	at, _ := netip.ParseAddrPort(c.listener.Addr().String()) // a listener's address is one
	return succession.New(succession.Config{
		CertFile: c.config.TLSCertFile, CAFile: c.config.PoolCAFile, AddressesFile: c.config.PoolAddressesFile, Port: at.Port(),
		Certificate: func() (*tls.Certificate, error) {
			if c.config.KubeletClientCertificate == "" {
				return &tls.Certificate{}, nil
			}
			pair, err := tls.LoadX509KeyPair(c.config.KubeletClientCertificate, c.config.KubeletClientKey)
			return &pair, err
		},
		Led: func(ctx context.Context) bool {
			select {
			case <-c.serving:
				return c.elected.Led(ctx)
			default:
				return false
			}
		},
		Dial: (&net.Dialer{}).DialContext, Ends: c.config.Ends,
	})
}

const (
	// loopback is where kubelet's probes come, on IPv6-only nodes as well.
	loopback = "127.0.0.1"
	// maxConnections bounds the connections from one address: a node with its hub, or a person's machine.
	maxConnections = 256
	// handshakeTime bounds a TLS handshake: some round trips on a LAN.
	handshakeTime = 5 * time.Second
	// maxHandshakes and maxHandshakesOfOne bound the handshakes under way, and those of one address.
	maxHandshakes, maxHandshakesOfOne = 512, 64
	// maxProbes bounds the connections that other users of this machine have to the port for probes. A kubelet has one or
	// two, for some milliseconds.
	maxProbes = 64
)

// listen opens a port before anything else starts: a port in use is the likeliest mistake. Its error names the flags that gave
// address and port.
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
