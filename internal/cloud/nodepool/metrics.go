package nodepool

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"yurtcoordinator/apis/apps/v1beta2"
)

// metrics is a prometheus.Collector. It counts the gauge on collection, so the gauge can't drift from what it counts.
type metrics struct {
	nodes *prometheus.Desc

	mu     sync.Mutex
	byPool map[string]counts
}

// counts are the numbers of a pool's nodes.
type counts struct{ ready, unready int32 }

func newMetrics() *metrics {
	return &metrics{
		nodes: prometheus.NewDesc("coordinator_controller_nodepool_nodes",
			"Nodes in all NodePools together, by state (ready, unready); zero on a replica that does not lead.",
			[]string{"state"}, nil),
		byPool: make(map[string]counts),
	}
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) { ch <- m.nodes }

// Collect implements prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	all := m.sum()
	ch <- prometheus.MustNewConstMetric(m.nodes, prometheus.GaugeValue, float64(all.ready), "ready")
	ch <- prometheus.MustNewConstMetric(m.nodes, prometheus.GaugeValue, float64(all.unready), "unready")
}

func (m *metrics) sum() (all counts) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range m.byPool {
		all.ready += c.ready
		all.unready += c.unready
	}
	return all
}

func (m *metrics) stands(pool string, s v1beta2.NodePoolStatus) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.byPool[pool] = counts{s.ReadyNodeNum, s.UnreadyNodeNum}
}

func (m *metrics) forget(pool string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.byPool, pool)
}
