package hub

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"golang.org/x/time/rate"
	"k8s.io/klog/v2"

	"yurtcoordinator/internal/conns"
	"yurtcoordinator/internal/hub/front"
	"yurtcoordinator/internal/hub/health"
	"yurtcoordinator/internal/hub/link"
	"yurtcoordinator/internal/run"
)

// Run serves until ctx ends, then stops in order: first the servers, then what they use. It returns an error if a port
// is taken, if a node without a certificate gets none for some minutes, or if a part fails.
func (h *Hub) Run(ctx context.Context) error {
	ctx = klog.NewContext(ctx, klog.FromContext(ctx).WithValues("node", h.cfg.Node))
	ports, err := h.listen()
	if err != nil {
		return errors.Join(err, h.disk.Close())
	}
	var g run.Group
	g.Add(ports[0].name, ports[0].Run)
	g.Add("hub", func(ctx context.Context) error { return h.serve(ctx, ports[1:]) })
	return g.Run(ctx)
}

// serve runs everything that needs the node's certificate.
func (h *Hub) serve(ctx context.Context, ports []port) error {
	if err := h.identity.Ensure(ctx); err != nil {
		return errors.Join(err, closed(ports), h.disk.Close())
	}
	h.pods.Tell() // before kubelet asks
	for _, p := range ports {
		h.parts.Add(p.name, p.Run)
	}
	klog.FromContext(ctx).Info("Serving kubelet and this host's programs", "address", h.cfg.BindAddress, "port", h.cfg.Port,
		"cloud", h.cfg.ServerAddresses, "coordinator", h.member.URL())
	return h.parts.Run(ctx)
}

// maxNewcomers bounds the connections to kubelet's port on which nobody has proved yet who he is. Where a hub has been away,
// kubelet comes back with one for each watch, some 200.
const maxNewcomers = 512

// refusedConnection returns what counts and logs connections that are closed before a request.
func (h *Hub) refusedConnection() func(netip.AddrPort, conns.Reason, error) {
	count := promauto.With(h.metrics).NewCounterVec(prometheus.CounterOpts{
		Name: "yurthub_connections_refused_total",
		Help: "Connections that were closed before a request, by the reason: too-many of their address or, at kubelet's port, " +
			"of those without proof; slow, broken",
	}, []string{"reason"})
	lines := map[conns.Reason]*rate.Limiter{}
	for _, why := range []conns.Reason{conns.TooMany, conns.Slow, conns.Broken} {
		count.WithLabelValues(string(why))
		lines[why] = rate.NewLimiter(rate.Every(10*time.Second), 5)
	}
	return func(from netip.AddrPort, why conns.Reason, err error) {
		count.WithLabelValues(string(why)).Inc()
		if l := lines[why]; l != nil && l.Allow() {
			klog.Background().Info("Closed a connection", "source", from, "reason", why, "err", err)
		}
	}
}

// port is one port and its server.
type port struct {
	name, flag, address string
	number              int
	config              front.ServerConfig
	*front.Server
}

// listen opens the ports. The health port comes first: it serves before there is a certificate.
func (h *Hub) listen() ([]port, error) {
	// A request that came before anything is followed would go to the cloud, and a watch would stay there.
	// HTTP/1.1 alone, as client-go speaks without TLS: in Go, HTTP/2 costs more of the hub's time for each GET.
	refused := h.refusedConnection()
	programs := front.ServerConfig{Handler: h.front, After: h.followed.Begun(), TLS: h.proof.TLS(), HTTP1: true,
		Newcomers: maxNewcomers, Refused: refused}
	ports := []port{
		{"health", "health-port", h.cfg.HealthBindAddress, h.cfg.HealthPort, front.ServerConfig{Handler: h.health(ofRoot)}, nil},
		{"proxy", "port", h.cfg.BindAddress, h.cfg.Port, programs, nil},
	}
	ofPods := h.pods.Serve(front.ServerConfig{Handler: h.front.Guests(), After: programs.After, TLS: &tls.Config{
		MinVersion: tls.VersionTLS12, GetCertificate: h.identity.Serving,
	}, Refused: refused})
	if fixed, _ := h.cfg.PodsAt(); fixed.IsValid() {
		ports = append(ports, port{"pods", "secure-bind-address", fixed.String(), h.cfg.SecurePort, ofPods, nil})
	}
	for i, p := range ports {
		var err error
		if ports[i].Server, err = front.Listen(net.JoinHostPort(p.address, strconv.Itoa(p.number)), p.config); err != nil {
			return nil, errors.Join(fmt.Errorf("--%s: %w", p.flag, err), closed(ports[:i]))
		}
	}
	return ports, nil
}

// closed closes ports that are not served.
func closed(ports []port) (err error) {
	for _, p := range ports {
		err = errors.Join(err, p.Close())
	}
	return err
}

// health serves what the hub tells of itself, and most of it only to root.
func (h *Hub) health(root func(*http.Request) bool) http.Handler {
	return health.Handler(health.Config{
		Cloud: h.cloud.Link(), Status: h.Status, Metrics: h.metrics, Profiling: h.cfg.Profiling, OpenMetrics: h.cfg.OpenMetrics,
		Root: root,
	})
}

// ofRoot reports whether a request came from a process of root's on this host.
func ofRoot(r *http.Request) bool {
	local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	if !ok || err != nil {
		return false
	}
	owner, err := conns.OwnerOf(local, net.TCPAddrFromAddrPort(from))
	return err == nil && owner == "0"
}

// Status returns the hub's present state.
func (h *Hub) Status() health.Status {
	standing := h.member.Standing().Get()
	s := health.Status{
		Node: h.cfg.Node, Pool: h.cfg.Pool, Role: standing.Role.String(), Leader: standing.Leader,
		Cloud: h.cloud.Link().Get().String(), Coordinator: "none", CoordinatorAddress: h.member.URL(),
		Followed: health.FollowedOf(h.followed.Status()), Disk: h.disk.Status(), Identity: h.identity.Report(),
		Settings: health.SettingsOf(h.reported(), h.inForce.Kept()), Pods: h.pods.Status(),
		LinkProfile: string(h.inForce.LinkProfile()),
	}
	if h.cloud.AnywayLink().Get() == link.Relayed {
		s.RelayedBy = h.lent.by()
	}
	if h.lent.server != nil {
		s.Relays = h.lent.server.Neighbours()
	}
	if h.cfg.EnableCoordinator {
		s.Coordinator = h.member.Link().Get().String()
		s.Kubelet = health.KubeletOf(h.member.Kubelet().Found())
	}
	return s
}
