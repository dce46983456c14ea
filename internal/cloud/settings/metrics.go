package settings

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics is a prometheus.Collector.
type metrics struct {
	nodes *prometheus.Desc

	mu     sync.Mutex
	byName map[string]tally
}

func newMetrics() *metrics {
	return &metrics{
		nodes: prometheus.NewDesc("coordinator_controller_poolsettings_nodes",
			"Nodes of the pools that a PoolSettings selects, by what their hubs say: updated, restart, refused, "+
				"waiting (nothing yet).",
			[]string{"poolsettings", "state"}, nil),
		byName: map[string]tally{},
	}
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) { ch <- m.nodes }

// Collect implements prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, n := range m.byName {
		for state, count := range map[string]int32{
			"updated": n.updated, "restart": n.restart, "refused": n.refused, "waiting": n.waiting,
		} {
			ch <- prometheus.MustNewConstMetric(m.nodes, prometheus.GaugeValue, float64(count), name, state)
		}
	}
}

func (m *metrics) stands(name string, n tally) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.byName[name] = n
}

func (m *metrics) forget(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.byName, name)
}
