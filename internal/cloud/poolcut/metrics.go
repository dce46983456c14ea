package poolcut

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"yurtcoordinator/internal/edge"
)

// metrics is a prometheus.Collector. The gauge has a series for each pool that is held or would be.
type metrics struct {
	held  *prometheus.Desc
	begun prometheus.Counter
	ends  *prometheus.CounterVec

	mu    sync.Mutex
	pools map[edge.PoolName]standing
}

// standing is what the gauge says about a pool.
type standing struct{ asked, holds bool }

func newMetrics() *metrics {
	m := &metrics{
		held: prometheus.NewDesc("coordinator_controller_pool_evictions_held",
			"1 while the evictions of a pool that is wholly cut off are held, 0 for other pools that would be; "+
				"none on a replica that does not lead.", []string{"pool"}, nil),
		begun: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "coordinator_controller_pool_holds_begun_total",
			Help: "Holds of evictions that began.",
		}),
		ends: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "coordinator_controller_pool_holds_ended_total",
			Help: "Holds of evictions that ended, by outcome.",
		}, []string{"outcome"}),
		pools: make(map[edge.PoolName]standing),
	}
	for outcome := range endings {
		m.ends.WithLabelValues(string(outcome))
	}
	return m
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	ch <- m.held
	m.begun.Describe(ch)
	m.ends.Describe(ch)
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	for pool, holds := range m.held01() {
		ch <- prometheus.MustNewConstMetric(m.held, prometheus.GaugeValue, holds, string(pool))
	}
	m.begun.Collect(ch)
	m.ends.Collect(ch)
}

func (m *metrics) held01() map[edge.PoolName]float64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make(map[edge.PoolName]float64, len(m.pools))
	for pool, s := range m.pools {
		if s.holds {
			out[pool] = 1
		} else {
			out[pool] = 0
		}
	}
	return out
}

func (m *metrics) stands(pool edge.PoolName, s standing) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s == (standing{}) {
		delete(m.pools, pool)
	} else {
		m.pools[pool] = s
	}
}

func (m *metrics) forget(pool edge.PoolName) { m.stands(pool, standing{}) }

func (m *metrics) began() { m.begun.Inc() }

func (m *metrics) ended(o Outcome) { m.ends.WithLabelValues(string(o)).Inc() }
