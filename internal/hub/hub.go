// Package hub is the node's side: one API endpoint for the node's own programs.
//
//	kubelet, kube-proxy, …                         upstream "cloud"  ───▶ the cloud's API servers
//	        │                                        ▲        ▲
//	        ▼                                        │        │ as the pool's forwarding user, while leading
//	      front ── route ──┬── everything else ──────┘        │
//	                       ├── own Lease ─▶ heartbeat.Proxy   │
//	                       │                  │   heartbeat.Forwarder ◀── role.Elector: Pending, Follower, Leader
//	                       │                  ▼        │                       │
//	                       │          upstream "coordinator" ◀─────────────────┘ ───▶ the pool's coordinator
//	                       │                  ▲     ▲ push, while leading
//	                       │  cloud ─┐        │     │
//	                       ├── follow: lists and watches, from replicas ◀─ feed ─┴──▶ disk
//	                       └── recall: the cloud's last answers to single reads ──▶ disk
//
//	Pods ─▶ front.Guests ─ callers: who they are, what they may ─┬── follow: the pool's resources
//	                                                             └── follow, recall: each its own, or the cloud
//
// identity gets the node's certificates, for both upstreams and for Pods.
//
// A resource of the pool's scope is answered from the hub's own replica of it. One feed fills the replica, from the cloud
// or from the coordinator's mirror; the leader's pushes it there.
//
// This package is the only wiring: hub.go of the whole, coordinator.go of the coordinator, sharing.go of what is followed,
// keeping.go of what is remembered and of the disk, owning.go of the node's own objects, guests.go of callers with
// credentials of their own, identify.go of certificates.
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
	"path"
	"reflect"
	"strconv"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"yurtcoordinator/internal/hub/callers/guests"
	"yurtcoordinator/internal/hub/filter"
	"yurtcoordinator/internal/hub/follow"
	"yurtcoordinator/internal/hub/front"
	"yurtcoordinator/internal/hub/history"
	"yurtcoordinator/internal/hub/identity"
	"yurtcoordinator/internal/hub/own"
	"yurtcoordinator/internal/hub/route"
	"yurtcoordinator/internal/hub/standin"
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
	history  *history.Keeper
	pool     *pool // nil without a coordinator
	followed *follow.Set
	topology *filter.Topology // nil without
	disk     *store.Store     // nil without
	// diskClock is by how many nanoseconds the disk's clock is ahead of the machine's.
	diskClock atomic.Int64
	keeper    *keeper        // nil without a disk
	guests    *guests.Guests // nil without a disk
	own       *own.Pusher    // nil without a disk or a coordinator
	standIn   *standin.Taker // nil where own is
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
		disk := store.Config{Dir: cfg.DiskCachePath, Last: nodesOwn, Now: h.diskTime, BlobShares: blobShares}
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
	// The node may always read its own Lease, and an API server does not read it but from its storage.
	lease := path.Join("/apis/coordination.k8s.io/v1/namespaces", corev1.NamespaceNodeLease, "leases", string(cfg.Node))
	if h.cloud, err = h.upstream("cloud", h.servers, h.files.ca, lease); err != nil {
		return err
	}
	past := history.Config{Link: h.cloud.Link()}
	if h.disk != nil {
		past.Disk = h.disk
	}
	if h.history, err = history.New(past); err != nil {
		return err
	}
	shared, err := resources("pool-scope-resources", cfg.PoolScopeResources)
	if err != nil {
		return err
	}
	frontConfig := front.Config{
		Cloud:     h.cloud,
		Situation: route.Situation{Node: cfg.Node, Coordinator: cfg.EnableCoordinator},
		Metrics:   h.metrics,

		MaxReadOnly:    cfg.MaxRequestsInFlight,
		MaxMutating:    cfg.MaxMutatingRequestsInFlight,
		MaxLongRunning: cfg.MaxLongRunningRequests,
	}
	if cfg.EnableCoordinator {
		if h.pool, err = h.newPool(); err != nil {
			return err
		}
		frontConfig.OwnLease = h.pool.heartbeats
	}
	if h.followed, err = h.newFollowed(shared); err != nil {
		return err
	}
	frontConfig.Replicas = h.followed
	if h.disk != nil {
		if h.keeper, err = h.newKeeper(); err != nil {
			return err
		}
		if h.guests, err = h.newGuests(); err != nil {
			return err
		}
		frontConfig.Keeper, frontConfig.Callers = h.keeper, h.guests
	}
	if h.pool != nil && h.keeper != nil && cfg.OwnObjects {
		if err = h.newOwn(); err != nil {
			return err
		}
		frontConfig.StandIn, frontConfig.Situation.StandIn = h.standIn, true
	}
	h.front, err = front.New(frontConfig)
	return err
}

func (h *Hub) upstream(name string, servers []*url.URL, ca, coreRead string) (*upstream.Upstream, error) {
	return upstream.New(upstream.Config{
		Name: name, Servers: servers, CAFile: ca, CertFile: h.files.cert, KeyFile: h.files.key, CoreRead: coreRead,
		Metrics: h.metrics,
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
	g.Add("history of the cloud", h.history.Run)
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
	g.Add("what is followed", h.followed.Run)
	if h.topology != nil {
		g.Add("service topology", h.topology.Run)
	}
	if h.pool != nil {
		g.Add("role", h.pool.elector.Run)
	}
	if h.own != nil {
		g.Add("writes in the cloud's place", h.standIn.Run)
		g.Add("own objects", h.own.Run)
	}
	proxy := func(server *front.Server) func(context.Context) error {
		return func(ctx context.Context) error {
			// Until then requests wait to be accepted: what is served before would go to the cloud, and a watch would stay there.
			select {
			case <-h.followed.Begun():
			case <-ctx.Done():
			}
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
	h.followed.Change(shared)
	h.diskClock.Store(int64(cfg.DiskCacheClockOffset))
	return nil
}
