package bypass

import (
	"net/netip"
	"net/url"
	"slices"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"yurtcoordinator/internal/conns"
)

// Gauge counts connections from the host's network to the API servers past the hub. The hub may not look into other processes,
// so it sees a connection's user but not its program; `yurthub check` names the program. A Gauge is a prometheus.Collector.
type Gauge struct {
	about *prometheus.Desc
	proc  string
	// servers are where the API servers are now.
	servers func() []netip.AddrPort
}

// NewGauge returns a Gauge for a hub whose API servers are where servers says. proc is where the kernel says it, /proc.
func NewGauge(proc string, servers func() []netip.AddrPort) *Gauge {
	return &Gauge{prometheus.NewDesc("yurthub_connections_past_hub", "Connections from this host's network to the API servers "+
		"that are not this hub's, by the number of the user whose program has them", []string{"user"}, nil), proc, servers}
}

// Describe implements prometheus.Collector.
func (g *Gauge) Describe(to chan<- *prometheus.Desc) { to <- g.about }

// Collect implements prometheus.Collector.
func (g *Gauge) Collect(to chan<- prometheus.Metric) {
	own, servers := Own(g.proc), g.servers()
	count := map[string]int{"0": 0}
	for _, table := range []string{"tcp", "tcp6"} {
		content, _ := read(g.proc+"/self/net/"+table, maxSockets) // without IPv6 there is one list
		for _, c := range conns.Sockets(content) {
			if c.Open && !own[c.Inode] && slices.Contains(servers, c.Remote) {
				count[c.UID]++
			}
		}
	}
	for user, n := range count {
		to <- prometheus.MustNewConstMetric(g.about, prometheus.GaugeValue, float64(n), user)
	}
}

// ByAddress returns where servers are that are named by an address; those with names are left out.
func ByAddress(servers ...*url.URL) (all []netip.AddrPort) {
	for _, u := range servers {
		port := u.Port()
		if port == "" {
			port = "443"
		}
		ip, err := netip.ParseAddr(u.Hostname())
		number, errPort := strconv.ParseUint(port, 10, 16)
		if err == nil && errPort == nil {
			all = append(all, netip.AddrPortFrom(ip.Unmap(), uint16(number)))
		}
	}
	return all
}
