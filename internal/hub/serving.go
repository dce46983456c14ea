package hub

import (
	"context"
	"crypto/tls"
	"errors"
	"net/http"

	"k8s.io/klog/v2"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/hub/config"
	"yurtcoordinator/internal/hub/front"
	"yurtcoordinator/internal/hub/link"
	"yurtcoordinator/internal/run"
	"yurtcoordinator/internal/version"
)

// Run serves until ctx ends. Then it stops in order: first the servers, then the parts that they use. It returns an error if a
// port is taken, if a node without a certificate gets none for some minutes, or if a part fails.
func (h *Hub) Run(ctx context.Context) error {
	ctx = klog.NewContext(ctx, klog.FromContext(ctx).WithValues("node", h.cfg.Node))
	ports, err := h.listen()
	if err != nil {
		return errors.Join(err, h.disk.Close())
	}
	var g run.Group
	g.Add(ports[0].Name, ports[0].Run)
	// It takes the hub's own word for the Lease, so that asking costs the line nothing.
	ask := h.proof.Asks(h.ends.Dial, h.cfg.Node.LeasePath()+"?resourceVersion=0")
	g.Add("watchdog", front.Watchdog{Begun: []<-chan struct{}{h.certified, h.followed.Begun()}, Ask: ask}.Run)
	g.Add("hub", func(ctx context.Context) error { return h.serve(ctx, ports[1:]) })
	return g.Run(ctx)
}

// serve runs everything that needs the node's certificate.
func (h *Hub) serve(ctx context.Context, ports []front.Listener) error {
	if err := h.identity.Ensure(ctx); err != nil {
		return errors.Join(err, front.CloseAll(ports), h.disk.Close())
	}
	close(h.certified)
	h.pods.Tell() // before kubelet asks
	for _, p := range ports {
		h.parts.Add(p.Name, p.Run)
	}
	klog.FromContext(ctx).Info("Serving kubelet and this host's programs", "version", version.Get().Version,
		"address", config.Loopback, "port", h.cfg.Port, "cloud", h.cfg.ServerAddresses, "coordinator", h.member.URL())
	return h.parts.Run(ctx)
}

// listen opens the ports. The health port comes first: it serves before there is a certificate.
func (h *Hub) listen() ([]front.Listener, error) {
	programs, refused := h.front.Programs(h.proof.TLS(), h.followed.Begun()), front.Refusals(h.metrics)
	programs.Refused = refused
	ofPods := h.pods.Serve(front.ServerConfig{
		Handler: h.front.Guests(), After: h.followed.Begun(), Refused: refused,
		TLS: &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: h.identity.Serving},
	})
	ports := []front.Port{
		{Name: "health", Flag: "health-port", Address: h.cfg.HealthBindAddress, Number: h.cfg.HealthPort,
			Config: front.ServerConfig{Handler: h.health(front.OfRoot)}},
		{Name: "proxy", Flag: "port", Address: config.Loopback, Number: h.cfg.Port, Config: programs},
	}
	if fixed, _ := h.cfg.PodsAt(); fixed.IsValid() {
		ports = append(ports, front.Port{
			Name: "pods", Flag: "secure-bind-address", Address: fixed.String(), Number: h.cfg.SecurePort, Config: ofPods,
		})
	}
	return front.ListenAll(h.ends.Net, ports...)
}

// health serves what the hub tells of itself, and most of it only to root.
func (h *Hub) health(root func(*http.Request) bool) http.Handler {
	return front.HealthHandler(front.HealthConfig{
		Cloud: h.cloud.Link(), Status: h.Status, Metrics: h.metrics, OpenMetrics: h.cfg.OpenMetrics, Root: root,
	})
}

// Status returns the hub's present state.
func (h *Hub) Status() front.HubStatus {
	standing := h.member.Standing().Get()
	s := front.HubStatus{
		Version: version.Get().Version, Node: h.cfg.Node, Pool: h.cfg.Pool, Role: standing.Role.String(), Leader: standing.Leader,
		Cloud: h.cloud.Link().Get().String(), Coordinator: "none", CoordinatorAddress: h.member.URL(),
		Followed: front.FollowedOf(h.followed.Status()), Disk: h.disk.Status(), Identity: h.identity.Report(),
		Settings: front.SettingsOf(h.reported(), h.inForce.Kept()), Pods: h.pods.Status(),
		LinkProfile: string(h.inForce.LinkProfile()), Relays: h.lent.Neighbours(),
	}
	if h.cloud.AnywayLink().Get() == link.Relayed {
		s.RelayedBy = h.lent.By()
	}
	if h.cfg.EnableCoordinator {
		s.Coordinator = h.member.Link().Get().String()
		if found := h.member.Kubelet().Found(); found.Way != "" {
			s.Kubelet = &found
		}
		if all := h.member.Coordinators(); len(all) > 1 {
			s.Coordinators = all
		}
	}
	return s
}

// report returns what the hub says of itself to its pool.
func (h *Hub) report() edge.HubReport {
	link := h.cloud.AnywayLink().Get().String()
	r := edge.HubReport{Link: link, Carried: h.cloud.Carried(), Settings: h.reported().Runs}
	return front.AddToReport(r, h.disk.Status(), h.identity.Report())
}
