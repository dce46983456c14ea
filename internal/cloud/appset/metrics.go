package appset

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
)

// metrics is a prometheus.Collector. It computes the gauge on collection, so that a deleted YurtAppSet leaves no
// series.
type metrics struct {
	outdated *prometheus.Desc

	mu    sync.Mutex
	bySet map[types.NamespacedName]int
}

func newMetrics() *metrics {
	return &metrics{
		outdated: prometheus.NewDesc("coordinator_controller_yurtappset_outdated_pools",
			"Pools of a YurtAppSet whose workload is missing, not as wanted, or not fully rolled out.",
			[]string{"namespace", "yurtappset"}, nil),
		bySet: make(map[types.NamespacedName]int),
	}
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) { ch <- m.outdated }

// Collect implements prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for set, n := range m.bySet {
		ch <- prometheus.MustNewConstMetric(m.outdated, prometheus.GaugeValue, float64(n), set.Namespace, set.Name)
	}
}

func (m *metrics) stands(set types.NamespacedName, outdated int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.bySet[set] = outdated
}

func (m *metrics) forget(set types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.bySet, set)
}
