package poolcut

import (
	"github.com/prometheus/client_golang/prometheus"

	"yurtcoordinator/internal/edge"
)

// metrics are the Controller's. The gauge has a series for each pool that is held or would be.
type metrics struct {
	held  *prometheus.GaugeVec
	begun prometheus.Counter
	ends  *prometheus.CounterVec
}

func newMetrics() metrics {
	m := metrics{
		held: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "coordinator_controller_pool_evictions_held",
			Help: "1 while the evictions of a pool that is wholly cut off are held, 0 for other pools that would be; " +
				"none on a replica that does not lead.",
		}, []string{"pool"}),
		begun: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "coordinator_controller_pool_holds_begun_total",
			Help: "Holds of evictions that began.",
		}),
		ends: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "coordinator_controller_pool_holds_ended_total",
			Help: "Holds of evictions that ended, by outcome.",
		}, []string{"outcome"}),
	}
	for outcome := range endings {
		m.ends.WithLabelValues(string(outcome))
	}
	return m
}

// stands says whether a pool is held, and whether it would be if it were cut off.
func (m metrics) stands(pool edge.PoolName, holds, asked bool) {
	switch {
	case holds:
		m.held.WithLabelValues(string(pool)).Set(1)
	case asked:
		m.held.WithLabelValues(string(pool)).Set(0)
	default:
		m.held.DeleteLabelValues(string(pool))
	}
}
