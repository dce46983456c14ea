// Package hub is the node's side: one API endpoint for the node's own programs.
//
//	kubelet, kube-proxy, …                         upstream "cloud"  ───▶ the cloud's API servers
//	        │                                        ▲        ▲
//	        ▼                                        │        │ as the pool's forwarding user, while leading
//	      front ── route ──┬── everything else ──────┘        │
//	                       ├── own Lease ─▶ heartbeat.Proxy   │
//	                       │                  │   heartbeat.Forwarder ◀── role.Keeper: Pending, Follower, Leader
//	                       │                  ▼        │                       │
//	                       │          upstream "coordinator" ◀─────────────────┘ ───▶ the pool's coordinator
//	                       │                  ▲     ▲ push, while leading
//	                       │  cloud ─┐        │     │
//	                       ├── copies ◀─ feed ┴── replica ──▶ disk
//	                       └── keep: what else the node's programs read ──▶ disk
//
//	Pods ─▶ front.Guests ─ callers: who they are, what they may ─┬── copies
//	                                                             └── keep.Guests: each its own, or the cloud
//
// identity gets the node's certificates, for both upstreams and for Pods.
//
// A resource of the pool's scope is answered from the hub's own replica of it. One feed fills the replica, from the cloud
// or from the coordinator's mirror; the leader's pushes it there.
//
// This package is the only wiring: hub.go of the whole, coordinator.go of the coordinator, sharing.go of the pool's
// resources, keeping.go of what is kept, owning.go of the node's own objects, guests.go of callers with credentials of their
// own, identify.go of certificates.
// What is wired knows only what its own Config names.
package hub

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"reflect"
	"strconv"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"k8s.io/klog/v2"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/hub/copies"
	"yurtcoordinator/internal/hub/front"
	"yurtcoordinator/internal/hub/identity"
	"yurtcoordinator/internal/hub/keep"
	"yurtcoordinator/internal/hub/own"
	"yurtcoordinator/internal/hub/role"
	"yurtcoordinator/internal/hub/route"
	"yurtcoordinator/internal/hub/upstream"
	"yurtcoordinator/internal/run"
	"yurtcoordinator/internal/store"
)

// Hub is a node's hub. Make one with New.
type Hub struct {
	cfg     Config
	metrics *prometheus.Registry
	front   *front.Front
	servers []*url.URL // the cloud's
	// identity gets the node's certificate; nil if somebody else does.
	identity *identity.Manager
	files    credentialFiles
	cloud    *upstream.Upstream
	pool     *pool // nil without a coordinator
	sharing  *sharing
	disk     *store.Store // nil without
	// diskClock is by how many nanoseconds the disk's clock is ahead of the machine's.
	diskClock atomic.Int64
	keeper    *keeper     // nil without a disk
	guests    *guests     // nil without a disk
	own       *own.Pusher // nil without a disk or a coordinator
}

// New checks the configuration, opens the disk's cache, and builds a hub. The certificate files are read by Run, which
// must be called to free the disk.
func New(cfg Config) (*Hub, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	h := &Hub{cfg: cfg, metrics: prometheus.NewRegistry()}
	h.metrics.MustRegister(collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	if cfg.DiskCachePath != "" {
		var err error
		h.diskClock.Store(int64(cfg.DiskCacheClockOffset))
		disk := store.Config{Dir: cfg.DiskCachePath, Last: nodesOwn, Now: h.diskTime}
		if h.disk, err = store.Open(disk); err != nil {
			return nil, fmt.Errorf("--disk-cache-path: %w", err)
		}
	}
	if err := h.build(); err != nil {
		if h.disk != nil {
			err = errors.Join(err, h.disk.Close())
		}
		return nil, err
	}
	return h, nil
}

func (h *Hub) build() error {
	cfg := h.cfg
	var err error
	if h.servers, err = addresses("server-addr", cfg.ServerAddresses...); err != nil {
		return err
	}
	if err := h.identify(); err != nil {
		return err
	}
	if h.cloud, err = h.upstream("cloud", h.servers, h.files.ca); err != nil {
		return err
	}
	shared, err := resources("pool-scope-resources", cfg.PoolScopeResources)
	if err != nil {
		return err
	}
	if h.sharing, err = h.newSharing(shared); err != nil {
		return err
	}
	frontConfig := front.Config{
		Cloud:     h.cloud,
		Replicas:  h.sharing.copies,
		Situation: route.Situation{Node: cfg.Node, Coordinator: cfg.EnableCoordinator},
		Metrics:   h.metrics,

		MaxReadOnly:    cfg.MaxRequestsInFlight,
		MaxMutating:    cfg.MaxMutatingRequestsInFlight,
		MaxLongRunning: cfg.MaxLongRunningRequests,
	}
	if h.disk != nil {
		if h.keeper, err = h.newKeeper(); err != nil {
			return err
		}
		if h.guests, err = h.newGuests(); err != nil {
			return err
		}
		frontConfig.Keeper, frontConfig.Callers = h.keeper, h.guests
	}
	if cfg.EnableCoordinator {
		if h.pool, err = h.newPool(); err != nil {
			return err
		}
		frontConfig.OwnLease = h.pool.heartbeats
	}
	if h.pool != nil && h.keeper != nil && cfg.OwnObjects {
		if h.own, err = h.newOwn(); err != nil {
			return err
		}
		frontConfig.Cloud = overheard{h.cloud, h.own}
	}
	h.front, err = front.New(frontConfig)
	return err
}

func (h *Hub) upstream(name string, servers []*url.URL, ca string) (*upstream.Upstream, error) {
	return upstream.New(upstream.Config{
		Name: name, Servers: servers, CAFile: ca, CertFile: h.files.cert, KeyFile: h.files.key, Metrics: h.metrics,
	})
}

// Run serves until ctx ends, then stops in order: first the servers, then what they use. It returns an error when a
// port is taken, a node without a certificate gets none for some minutes, or a part fails.
func (h *Hub) Run(ctx context.Context) error {
	ctx = klog.NewContext(ctx, klog.FromContext(ctx).WithValues("node", h.cfg.Node))
	servers, err := h.listen()
	if err != nil {
		return errors.Join(err, h.closeDisk())
	}
	var g run.Group
	g.Add("health", servers.health.Run)
	g.Add("hub", func(ctx context.Context) error {
		if h.identity != nil {
			if err := h.identity.Ensure(ctx); err != nil {
				return errors.Join(err, servers.proxy.Close(), servers.pods.Close(), h.closeDisk())
			}
		}
		return h.serve(ctx, servers)
	})
	return g.Run(ctx)
}

// serve runs everything that needs the node's certificate.
func (h *Hub) serve(ctx context.Context, s servers) error {
	var g run.Group
	if h.disk != nil {
		g.Add("disk", h.runDisk)
	}
	if h.identity != nil {
		g.Add("identity", h.identity.Run)
	}
	g.Add("cloud", h.cloud.Run)
	if h.pool != nil {
		if h.pool.finder != nil {
			g.Add("where the coordinator is", h.pool.finder.Run)
		}
		g.Add("coordinator", h.pool.coordinator.Run)
		g.Add("heartbeats", h.pool.heartbeats.Run)
		g.Add("coverage", h.pool.coverage.Run)
	}
	if h.disk != nil {
		g.Add("disk at a cut", h.flushCut)
		g.Add("disk's clock", h.countOnline)
	}
	h.sharing.add(&g)
	if h.keeper != nil {
		g.Add("keeper", h.keeper.Run)
		g.Add("guests", h.guests.Run)
	}
	if h.pool != nil {
		g.Add("role", h.pool.keeper.Run)
	}
	if h.own != nil {
		g.Add("own objects", h.own.Run)
	}
	proxy := func(server *front.Server) func(context.Context) error {
		return func(ctx context.Context) error {
			h.begun(ctx)
			return server.Run(ctx)
		}
	}
	g.Add("proxy", proxy(s.proxy))
	if s.pods != nil {
		g.Add("pods", proxy(s.pods))
	}
	klog.FromContext(ctx).Info("Serving this node's programs", "address", h.cfg.BindAddress, "port", h.cfg.Port,
		"cloud", h.cfg.ServerAddresses, "coordinator", h.coordinatorAddress())
	return g.Run(ctx)
}

// servers are what a hub serves: the node's programs, Pods (nil: it does not), and those who look after it.
type servers struct{ proxy, pods, health *front.Server }

func (h *Hub) listen() (s servers, err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, s.proxy.Close(), s.pods.Close(), s.health.Close())
		}
	}()
	at := func(flag, address string, port int, handler http.Handler, secure *tls.Config) (*front.Server, error) {
		l, err := net.Listen("tcp", net.JoinHostPort(address, strconv.Itoa(port)))
		if err != nil {
			return nil, fmt.Errorf("--%s: %w", flag, err)
		}
		return front.NewServer(front.ServerConfig{Listener: l, Handler: handler, TLS: secure})
	}
	if s.proxy, err = at("port", h.cfg.BindAddress, h.cfg.Port, h.front, nil); err != nil {
		return s, err
	}
	if address := h.cfg.SecureBindAddress; address != "" {
		secure := &tls.Config{
			MinVersion:     tls.VersionTLS12,
			GetCertificate: h.identity.Serving([]net.IP{net.ParseIP(address)}, nil),
		}
		if s.pods, err = at("secure-bind-address", address, h.cfg.SecurePort, h.front.Guests(), secure); err != nil {
			return s, err
		}
	}
	s.health, err = at("health-port", h.cfg.HealthBindAddress, h.cfg.HealthPort, h.healthHandler(), nil)
	return s, err
}

// Reconfigure takes on the settings that can change while a hub runs: PoolScopeResources, and DiskCacheClockOffset for
// tests. It fails, and changes nothing, if cfg is not valid or differs in anything else.
func (h *Hub) Reconfigure(cfg Config) error {
	if err := cfg.Validate(); err != nil {
		return err
	}
	shared, err := resources("pool-scope-resources", cfg.PoolScopeResources)
	if err != nil {
		return err
	}
	fixed := cfg
	fixed.PoolScopeResources, fixed.DiskCacheClockOffset = h.cfg.PoolScopeResources, h.cfg.DiskCacheClockOffset
	if !reflect.DeepEqual(fixed, h.cfg) {
		return errors.New("only --pool-scope-resources can change while yurthub runs; restart it for the other settings")
	}
	h.sharing.copies.Change(shared)
	h.diskClock.Store(int64(cfg.DiskCacheClockOffset))
	return nil
}

// Status is what a hub says of itself at /status.
type Status struct {
	Node edge.NodeName `json:"node"`
	Pool edge.PoolName `json:"pool,omitempty"`
	// Role is Pending, Follower or Leader; Leader is the node that leads, if one does.
	Role   string        `json:"role"`
	Leader edge.NodeName `json:"leader,omitempty"`
	// Cloud and Coordinator are the states of the links: unknown, up or down; none without a coordinator.
	Cloud       string `json:"cloud"`
	Coordinator string `json:"coordinator"`
	// CoordinatorAddress is where the coordinator is, as far as the hub knows.
	CoordinatorAddress string `json:"coordinatorAddress,omitempty"`
	// Replicas are the resources that the hub keeps copies of, Kept what it follows for programs of its node.
	Replicas []copies.Status `json:"replicas,omitempty"`
	Kept     []keep.Status   `json:"kept,omitempty"`
	// Disk is the state of the disk's cache; absent without one.
	Disk *DiskStatus `json:"disk,omitempty"`
	// Identity is the state of the certificates that the hub gets by itself; absent if somebody else does.
	Identity *identity.Status `json:"identity,omitempty"`
}

// Status returns the hub's present state.
func (h *Hub) Status() Status {
	s := Status{
		Node: h.cfg.Node, Pool: h.cfg.Pool, Role: role.Pending.String(), Cloud: h.cloud.Link().Get().String(),
		Coordinator: "none", CoordinatorAddress: h.coordinatorAddress(), Replicas: h.sharing.copies.Status(),
	}
	if h.disk != nil {
		s.Kept, s.Disk = append(h.keeper.Status(), h.guests.Status()...), diskStatus(h.disk.Health())
	}
	if h.identity != nil {
		status := h.identity.Status()
		s.Identity = &status
	}
	if h.pool != nil {
		standing := h.pool.keeper.Standing().Get()
		s.Role, s.Leader = standing.Role.String(), standing.Leader
		s.Coordinator = h.pool.coordinator.Link().Get().String()
	}
	return s
}
