package front

import (
	"net/netip"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"golang.org/x/time/rate"
	"k8s.io/klog/v2"

	"yurtcoordinator/internal/conns"
)

// Refusals returns a function for ServerConfig.Refused that counts and logs connections closed before a request.
func Refusals(metrics prometheus.Registerer) func(netip.AddrPort, conns.Reason, error) {
	count := promauto.With(metrics).NewCounterVec(prometheus.CounterOpts{
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
