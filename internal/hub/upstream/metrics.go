package upstream

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"yurtcoordinator/internal/hub/link"
)

// metrics are an upstream's metrics. Without a Registerer they count, but nobody sees them.
type metrics struct {
	register promauto.Factory
	inFlight prometheus.Gauge
	probes   *prometheus.HistogramVec
	failures *prometheus.CounterVec

	began          time.Time
	sent, received atomic.Uint64 // bytes
	spent          spent
}

func newMetrics(u *Upstream) *metrics {
	registerer := prometheus.WrapRegistererWith(prometheus.Labels{"upstream": u.cfg.Name}, u.cfg.Metrics)
	register := promauto.With(registerer)
	m := &metrics{
		register: register,
		began:    u.cfg.Ends.Wall(),
		inFlight: register.NewGauge(prometheus.GaugeOpts{
			Name: "yurthub_upstream_requests_in_flight", Help: "Requests sent whose answer has not ended.",
		}),
		probes: register.NewHistogramVec(prometheus.HistogramOpts{
			Name: "yurthub_upstream_probe_duration_seconds", Help: "Time that probes took, by their result.",
			Buckets: []float64{.002, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}, []string{"server", "ask", "result"}),
		failures: register.NewCounterVec(prometheus.CounterOpts{
			Name: "yurthub_upstream_traffic_failures_total",
			Help: "Connections and requests that failed, perhaps because of the link.",
		}, []string{"server"}),
	}
	register.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "yurthub_upstream_client_certificate_expiry_seconds",
		Help: "When the client certificate in use expires, in seconds since 1970; 0 before one is read.",
	}, func() float64 {
		if c := u.credentials.Load(); c != nil {
			return float64(c.Client.Leaf.NotAfter.Unix())
		}
		return 0
	})
	if u.cfg.Detour != nil {
		register.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "yurthub_upstream_relayed",
			Help: "1: the node's own line is down, and requests go through a neighbour's; else 0.",
		}, func() float64 {
			if u.anyway.Get() == link.Relayed {
				return 1
			}
			return 0
		})
	}
	if registerer != nil {
		registerer.MustRegister(&carriedByKind{m})
	}
	return m
}

// follow registers the metrics of one server's link.
func (m *metrics) follow(s *server) {
	labels := prometheus.Labels{"server": s.addr}
	m.register.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "yurthub_upstream_link_up", Help: "1: the link is up; 0: it is down; -1: not known yet.",
		ConstLabels: labels,
	}, func() float64 {
		switch s.state() {
		case link.Up, link.Failing:
			return 1
		case link.Down:
			return 0
		default:
			return -1
		}
	})
	to := func(label string, count func() float64) {
		m.register.NewCounterFunc(prometheus.CounterOpts{
			Name: "yurthub_upstream_link_transitions_total", Help: "How often the link came up or went down.",
			ConstLabels: prometheus.Labels{"server": s.addr, "to": label},
		}, count)
	}
	to("up", func() float64 { ups, _ := s.monitor.Transitions(); return float64(ups) })
	to("down", func() float64 { _, downs := s.monitor.Transitions(); return float64(downs) })
	if s.cfg.CoreRead == "" {
		return
	}
	m.register.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "yurthub_upstream_failing", Help: "1: the server answers core reads and Leases with 502, 503 or 504; else 0.",
		ConstLabels: labels,
	}, func() float64 {
		if s.state() == link.Failing {
			return 1
		}
		return 0
	})
	m.register.NewCounterFunc(prometheus.CounterOpts{
		Name: "yurthub_upstream_failings_total", Help: "How often the server began to answer so.", ConstLabels: labels,
	}, func() float64 { return float64(s.monitor.Failings()) })
}

func (m *metrics) probed(server string, ask link.Ask, ok bool, took time.Duration) {
	result := "failed"
	if ok {
		result = "ok"
	}
	m.probes.WithLabelValues(server, ask.String(), result).Observe(took.Seconds())
}
