package hub

import (
	"encoding/json"
	"io"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"yurtcoordinator/internal/hub/bypass"
	"yurtcoordinator/internal/hub/filter"
	"yurtcoordinator/internal/stream"
)

// pastHub counts connections to the API servers that programs of the host's network have besides the hub. The hub has no rights
// over other processes, and so sees whose connections they are, but not which program's: `yurthub check` says that.
type pastHub struct {
	about *prometheus.Desc
	proc  string
	// servers are where the API servers are now.
	servers func() []netip.AddrPort
}

func (h *Hub) measurePast() {
	h.metrics.MustRegister(&pastHub{
		about: prometheus.NewDesc("yurthub_connections_past_hub", "Connections from this host's network to the API servers "+
			"that are not this hub's, by the number of the user whose program has them", []string{"user"}, nil),
		proc: "/proc", servers: h.apiServers,
	})
}

// Describe implements prometheus.Collector.
func (p *pastHub) Describe(to chan<- *prometheus.Desc) { to <- p.about }

// Collect implements prometheus.Collector.
func (p *pastHub) Collect(to chan<- prometheus.Metric) {
	own, servers := bypass.Own(p.proc), p.servers()
	count := map[string]int{"0": 0}
	for _, table := range []string{"tcp", "tcp6"} {
		for _, c := range bypass.Connections(p.table(table)) {
			if !own[c.Inode] && slices.Contains(servers, c.Remote) {
				count[c.UID]++
			}
		}
	}
	for user, n := range count {
		to <- prometheus.MustNewConstMetric(p.about, prometheus.GaugeValue, float64(n), user)
	}
}

// maxSockets bounds what is read of the kernel's list of sockets, of some 150 bytes each.
const maxSockets = 4 << 20

func (p *pastHub) table(name string) []byte {
	f, err := os.Open(p.proc + "/self/net/" + name)
	if err != nil {
		return nil // without IPv6 there is one list
	}
	defer f.Close()
	content, _ := io.ReadAll(io.LimitReader(f, maxSockets)) // what was read before an error counts
	return content
}

// apiServers returns where the API servers are, by address: as the hub is told, and as Pods find them.
func (h *Hub) apiServers() (all []netip.AddrPort) {
	add := func(host, port string) {
		ip, err := netip.ParseAddr(host)
		number, errPort := strconv.ParseUint(port, 10, 16)
		if err == nil && errPort == nil {
			all = append(all, netip.AddrPortFrom(ip.Unmap(), uint16(number)))
		}
	}
	for _, server := range h.servers {
		add(server.Hostname(), portOf(server))
	}
	typ, o, ok := h.followed.Held(filter.Services, stream.Key{Namespace: "default", Name: "kubernetes"})
	if !ok {
		return all
	}
	s := &corev1.Service{}
	read := s.Unmarshal
	if typ.Encoding == stream.JSON {
		read = func(raw []byte) error { return json.Unmarshal(raw, s) }
	}
	if read(o.Raw) != nil {
		return all
	}
	for _, port := range s.Spec.Ports {
		for _, ip := range s.Spec.ClusterIPs {
			add(ip, strconv.Itoa(int(port.Port)))
		}
	}
	return all
}

func portOf(u *url.URL) string {
	if port := u.Port(); port != "" {
		return port
	}
	return "443"
}
