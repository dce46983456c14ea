// Package hub is the node's side: one API endpoint for the node's own programs.
//
//	kubelet                                        upstream "cloud"  ───▶ the cloud's API servers
//	        │                                        ▲        ▲
//	        ▼                                        │        │ as the pool's forwarding user, while leading
//	      front ───────────┬── everything else ──────┘        │
//	                       ├── own Lease ─▶ heartbeat.Proxy   │
//	                       │                  │   heartbeat.Forwarder ◀── lead.Elector: Pending, Follower, Leader
//	                       │                  ▼        │                       │
//	                       │          upstream "coordinator" ◀─────────────────┘ ───▶ the pool's coordinator
//	                       │                  ▲     ▲ share: this node's own; while leading, the pool's
//	                       ├── cache: lists and watches, from replicas that the cloud or the mirror feeds ──▶ disk
//	                       │      └─ seen through views, which know what the pool says of its Pods
//	                       ├── recall: the cloud's last answers to single reads ──▶ disk
//	                       └── share.Taker: kubelet's writes that the cloud does not answer ──▶ the coordinator
//
//	Pods ─▶ front.Guests ─ front.Callers: who they are, what they may ─┬── cache: the pool's resources
//	                                                                    └── cache, recall: each its own, or the cloud
//
// identity gets the node's certificates, for both upstreams and for Pods. member connects the parts of a hub that belong to its
// pool: the coordinator, heartbeats, the election, duties, and pushes. config holds the settings of each part.
//
// This package is the wiring. hub.go connects all parts. following.go sets up the caches, and which clients are answered from
// them. settings.go applies settings that may change while the hub runs, and serving.go opens the ports. Each part knows only
// what its own Config names. A part that another part uses always exists. Without a coordinator, for example, the hub has a
// Membership that takes no part in a pool.
package hub

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"os"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/ends"
	"yurtcoordinator/internal/hub/cache"
	"yurtcoordinator/internal/hub/config"
	"yurtcoordinator/internal/hub/front"
	"yurtcoordinator/internal/hub/identity"
	"yurtcoordinator/internal/hub/member"
	"yurtcoordinator/internal/hub/recall"
	"yurtcoordinator/internal/hub/relay"
	"yurtcoordinator/internal/hub/share"
	"yurtcoordinator/internal/hub/upstream"
	"yurtcoordinator/internal/hub/views"
	"yurtcoordinator/internal/live"
	"yurtcoordinator/internal/run"
	"yurtcoordinator/internal/store"
	"yurtcoordinator/internal/version"
	"yurtcoordinator/internal/version/buildinfo"
)

// Hub is a node's hub. Make one with New.
type Hub struct {
	cfg      config.Config // with which it started
	metrics  *prometheus.Registry
	ends     ends.Ends
	disk     *cache.Disk
	servers  []*url.URL    // the cloud's API servers
	way      *upstream.Way // to them
	identity certificates
	// checked is the time by which servers' certificates are checked.
	checked  *upstream.CertClock
	cloud    *upstream.Upstream
	history  *cache.HistoryKeeper
	member   *member.Membership // the hub's part in its pool
	lent     *relay.Lending     // how lines are lent within the pool
	followed *cache.Set
	// shown are ConfigMaps that kubelet sees in another form than the cloud's.
	shown *views.ConfigMaps
	// overlay shows endpoints as the pool knows them.
	overlay *views.EndpointsView
	guests  *front.Guests
	pods    *views.Entrance // how Pods come to the hub
	// inForce has the settings of the node and its pool at present, and reported returns the hub's report about the pool's.
	inForce  *config.InForce
	reported func() edge.SettingsReport
	// agents and lasting take settings while the hub runs.
	agents  *cache.Agents
	lasting *recall.Tenure
	proof   *front.Proof
	// serves is the Config of front, which build fills in.
	serves front.Config
	front  *front.Front
	// certified is closed once the node has its certificate.
	certified chan struct{}
	// parts run from then on. They start in this order; the servers come last.
	parts run.Group
}

// certificates are the node's certificates: an identity.Manager or identity.Given.
type certificates interface {
	Files() (ca, cert, key string)
	Ensure(ctx context.Context) error
	Serving(*tls.ClientHelloInfo) (*tls.Certificate, error)
	Served() *live.Value[*tls.Certificate]
	Report() *identity.Status
	FollowAuthorities(ctx context.Context, reachable func() (bool, <-chan struct{})) error
}

// New checks the configuration, opens the cache on disk, reads or makes kubelet's token and certificates, and builds a hub. It
// does not read the files of the node's certificate. Always call Run, because only Run closes the cache on disk.
func New(own config.Config, e ends.Ends) (*Hub, error) {
	if err := own.Validate(); err != nil {
		return nil, err
	}
	e.Net = upstream.Dials(e.Net)
	h := &Hub{
		metrics: prometheus.NewRegistry(),
		shown:   views.NewConfigMaps(views.RootCA, views.KubeProxy), overlay: views.NewEndpointsView(),
		checked: upstream.NewCertClock(own.CertDir, e.Clock), ends: e, certified: make(chan struct{}),
	}
	var started edge.SettingsReport
	h.inForce, started = config.Recall(own, h.apply)
	h.reported = func() edge.SettingsReport { return started }
	cfg := h.inForce.Starts()
	h.cfg = cfg
	fixed, ofNode := cfg.PodsAt()
	h.pods = views.NewEntrance(views.EntranceConfig{
		Node: cfg.Node, Fixed: fixed, OfNode: ofNode, Dir: cfg.CertDir, Port: uint16(cfg.SecurePort), Tell: cfg.MasterService,
		Shown: h.shown, Ends: e, Served: func() *live.Value[*tls.Certificate] { return h.identity.Served() },
	})
	h.way = upstream.NewWay(upstream.WayConfig{Proxy: cfg.Proxy(), Dial: e.Dial, Lookup: e.Lookup})
	h.lent = relay.NewLending(h.lends())
	h.lent.Change(cfg.Borrows(), cfg.Metered())
	h.metrics.MustRegister(buildinfo.New("yurthub", version.Get()), collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	at := cache.DiskConfig{
		Dir: cfg.DiskCachePath, Ahead: cfg.DiskCacheClockOffset, Last: cache.OfNode, Clock: e.Clock,
		KeyFile: cfg.DiskCacheKeyFile, Credentials: os.Getenv("CREDENTIALS_DIRECTORY"),
		Secret: cache.Secret, SecretBlob: recall.Secret, Prompt: store.Prompt{
			Collection: cache.Prompt, Blob: func(key string) bool { return recall.Secret(key) || front.Prompt(key) },
		},
	}
	var err error
	if h.disk, err = cache.OpenDisk(at); err != nil {
		return nil, fmt.Errorf("--disk-cache-path: %w", err)
	}
	if err := h.build(); err != nil {
		return nil, errors.Join(err, h.disk.Close())
	}
	return h, nil
}

// build makes the parts. Each step needs those before it.
func (h *Hub) build() error {
	h.serves = front.Config{
		Situation:   front.Situation{Node: h.cfg.Node},
		Metrics:     h.metrics,
		MaxReadOnly: h.cfg.MaxRequestsInFlight, MaxMutating: h.cfg.MaxMutatingRequestsInFlight,
		MaxLongRunning: h.cfg.MaxLongRunningRequests,
		Clock:          h.ends.Clock,
	}
	h.parts.Add("disk", h.disk.Run)
	for _, step := range []func() error{
		h.prove, h.identify, h.reachCloud, h.joinPool, h.follow, h.answer, h.takePart, h.heedPool, h.findPods, h.lend,
	} {
		if err := step(); err != nil {
			return err
		}
	}
	h.front = front.New(h.serves)
	return nil
}

// prove reads, or makes, what kubelet and the hub know each other by.
func (h *Hub) prove() (err error) {
	if h.proof, err = front.KeepProof(h.cfg.Proof()); err != nil {
		return fmt.Errorf("--cert-dir: %w", err)
	}
	h.serves.Proof = h.proof
	return nil
}

// identify decides where the node's certificate comes from, and adds the Manager if the hub gets it by itself.
func (h *Hub) identify() (err error) {
	cfg := h.cfg
	if h.servers, err = cfg.Servers(); err != nil {
		return err
	}
	if !cfg.OwnCertificate() {
		h.identity = identity.Given{CA: cfg.CAFile, Cert: cfg.CertFile, Key: cfg.KeyFile}
		return nil
	}
	how := cfg.Certificates()
	how.Servers, how.Dial, how.Metrics = h.servers, h.lent.DialContext, h.metrics
	how.Serve, how.Ends = h.pods.Address(), h.ends
	how.ShowAuthorities = func(all string) { h.shown.Change(views.RootCA.Name, all) }
	manager, err := identity.New(how)
	if err != nil {
		return fmt.Errorf("the node's own certificate: %w", err)
	}
	h.identity = manager
	h.parts.Add("identity", manager.Run)
	return nil
}

func (h *Hub) reachCloud() (err error) {
	to := h.upstream("cloud", h.servers)
	to.ServerName, to.DialContext, to.Addresses = h.cfg.TLSServerName, h.way.DialContext, h.way.Addresses
	to.Link, to.Detour = h.cfg.Judged(), h.lent.Detour()
	to.CoreRead = h.cfg.Node.LeasePath() // a node may always read it; an API server needs only its storage
	if h.cloud, err = upstream.New(to); err != nil {
		return err
	}
	h.serves.Cloud, h.serves.CloudLink, h.serves.HeartbeatLink = h.cloud, h.cloud.Link().Get, h.cloud.AnywayLink().Get
	h.history = cache.NewHistory(cache.HistoryConfig{Link: h.cloud.Link(), Disk: h.disk, Ends: h.ends})
	h.parts.Add("cloud", h.cloud.Run)
	h.parts.Add("authorities of the cloud", func(ctx context.Context) error {
		return h.identity.FollowAuthorities(ctx, func() (bool, <-chan struct{}) {
			state, changed := h.cloud.Link().Watch()
			return state.Answers(), changed
		})
	})
	h.parts.Add("history of the cloud", h.history.Run)
	return nil
}

// joinPool makes the hub's part in its pool. Without a coordinator the hub is alone.
func (h *Hub) joinPool() (err error) {
	if !h.cfg.EnableCoordinator {
		h.member, err = member.Alone(member.Config{
			Node: h.cfg.Node, Cloud: h.cloud, History: h.history, Metrics: h.metrics, Ends: h.ends,
		})
		if err != nil {
			return err
		}
	} else {
		at, err := h.cfg.Coordinators()
		if err != nil {
			return err
		}
		if h.member, err = member.New(member.Config{
			Node: h.cfg.Node, Pool: h.cfg.Pool, Cloud: h.cloud, At: at,
			Via: h.upstream("", nil), Dir: h.cfg.CertDir, KubeletConfig: h.cfg.KubeletConfig,
			KubeletServing: h.cfg.KubeletServing, Relayed: h.lent.Relayed, RelaysAt: h.lent.RelaysAt, Report: h.report,
			LinkProfile: h.inForce.LinkProfile, OwnObjects: h.cfg.OwnObjects, OwnSecrets: h.cfg.OwnSecrets,
			History: h.history, Disk: h.disk, Overlay: h.overlay, Metrics: h.metrics,
			Version: version.Get().Version, Ends: h.ends,
		}); err != nil {
			return err
		}
	}
	h.parts.Add("link to the pool", h.member.Reach)
	h.serves.OwnLease = h.member.Heartbeats()
	h.serves.CoordinatorLink = h.member.Link().Get
	h.serves.Warrants = share.NewWarrants(share.WarrantsConfig{
		Node: h.cfg.Node, Pool: h.cfg.Pool, Metrics: h.metrics, Word: h.member.Word,
	})
	h.parts.Add("disk and links", func(ctx context.Context) error {
		return h.disk.Heed(ctx, h.cloud.Link(), h.member.Link())
	})
	return nil
}

// takePart has the hub take part in its pool with what it follows.
func (h *Hub) takePart() error {
	if !h.cfg.EnableCoordinator {
		return nil
	}
	if err := h.member.Follow(h.followed); err != nil {
		return err
	}
	if h.cfg.OwnObjects {
		h.serves.StandIn, h.serves.Situation.StandIn = h.member.StandIn(), true
	}
	h.parts.Add("part in the pool", h.member.TakePart)
	return nil
}

// findPods adds what follows the node's address, and what serves and tells Pods there.
func (h *Hub) findPods() error {
	if h.pods.Address() == nil {
		return nil
	}
	cloud, err := corev1client.NewForConfig(h.cloud.RESTConfig())
	if err != nil {
		return err
	}
	h.pods.Follow(cloud, h.followed.OwnObject)
	h.parts.Add("where Pods find the hub", h.pods.Run)
	return nil
}

// lends returns the Config by which lines are lent and borrowed: among hubs that meet at a coordinator.
func (h *Hub) lends() relay.LendingConfig {
	c := relay.LendingConfig{Node: h.cfg.Node, Pool: h.cfg.Pool, Dial: h.way.DialContext, Metrics: h.metrics}
	c.Ends = h.ends
	if h.cfg.EnableCoordinator {
		c.Address = h.pods.Address()
	}
	return c
}

// lend adds what relays for others, and what finds those that relay for this hub.
func (h *Hub) lend() error {
	if !h.lent.Possible() {
		return nil
	}
	h.lent.Meet(relay.Parties{
		Credentials: relay.Credentials{Own: h.identity.Served().Get, Now: h.checked.Now}, Disk: h.disk, Cloud: h.cloud,
		Coordinators: h.member.Reached, DialCoordinator: h.member.Dial, Denied: h.member.Denied,
		Nodes: func() []edge.NodeName { return views.PoolNodes(h.followed, h.cfg.Pool) },
	})
	h.parts.Add("relay", h.lent.Run)
	return nil
}

// upstream returns the Config with which to reach an API server.
func (h *Hub) upstream(name string, servers []*url.URL) upstream.Config {
	ca, cert, key := h.identity.Files()
	return upstream.Config{Name: name, Servers: servers, CAFile: ca, CertFile: cert, KeyFile: key, CertificateTime: h.checked,
		DialContext: h.ends.Dial, Metrics: h.metrics, Ends: h.ends}
}
