package upgrades

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics is a prometheus.Collector.
type metrics struct {
	pools, nodes *prometheus.Desc

	mu        sync.Mutex
	decisions []decision
}

func newMetrics() *metrics {
	return &metrics{
		pools: prometheus.NewDesc("coordinator_controller_hub_upgrade_pools",
			"NodePools whose hubs are to be of a version, by how far they are.", []string{"state"}, nil),
		nodes: prometheus.NewDesc("coordinator_controller_hub_upgrade_nodes",
			"Nodes whose hubs are to be of a version, by whether they say that they are.", []string{"upgraded"}, nil),
	}
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) { ch <- m.pools; ch <- m.nodes }

// Collect implements prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	m.mu.Lock()
	defer m.mu.Unlock()
	pools, nodes := map[state]int{}, map[string]int{"true": 0, "false": 0}
	for _, d := range m.decisions {
		if d.version != "" {
			pools[d.state]++
			nodes["true"] += d.upgraded
			nodes["false"] += d.nodes - d.upgraded
		}
	}
	for _, s := range order {
		ch <- prometheus.MustNewConstMetric(m.pools, prometheus.GaugeValue, float64(pools[s]), string(s))
	}
	for upgraded, n := range nodes {
		ch <- prometheus.MustNewConstMetric(m.nodes, prometheus.GaugeValue, float64(n), upgraded)
	}
}

func (m *metrics) stand(decisions []decision) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.decisions = decisions
}
