package appset

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
)

// metrics is a prometheus.Collector. It computes the gauge on collection, so that a deleted YurtAppSet leaves no
// series.
type metrics struct {
	outdated, stopped *prometheus.Desc

	mu    sync.Mutex
	bySet map[types.NamespacedName]standing
}

// standing is how many pools of a YurtAppSet are outdated, and whether its rollout has stopped.
type standing struct {
	outdated int
	stopped  bool
}

func newMetrics() *metrics {
	return &metrics{
		outdated: prometheus.NewDesc("coordinator_controller_yurtappset_outdated_pools",
			"Pools of a YurtAppSet whose workload is missing, not as wanted, or not fully rolled out. Those that wait for a "+
				"rollout do not count.",
			[]string{"namespace", "yurtappset"}, nil),
		stopped: prometheus.NewDesc("coordinator_controller_yurtappset_rollout_stopped",
			"1 while a pool that fails with a change stops the rollout of a YurtAppSet. Its condition Stalled says why.",
			[]string{"namespace", "yurtappset"}, nil),
		bySet: make(map[types.NamespacedName]standing),
	}
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	ch <- m.outdated
	ch <- m.stopped
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for set, is := range m.bySet {
		stopped := 0.
		if is.stopped {
			stopped = 1
		}
		ch <- prometheus.MustNewConstMetric(m.outdated, prometheus.GaugeValue, float64(is.outdated), set.Namespace, set.Name)
		ch <- prometheus.MustNewConstMetric(m.stopped, prometheus.GaugeValue, stopped, set.Namespace, set.Name)
	}
}

func (m *metrics) stands(set types.NamespacedName, is standing) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.bySet[set] = is
}

func (m *metrics) forget(set types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.bySet, set)
}
