package autonomy

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"yurtcoordinator/internal/edge"
)

// metrics is a prometheus.Collector. It counts the gauge on collection, so the gauge can't drift from what it counts.
type metrics struct {
	autonomous *prometheus.Desc
	patches    *prometheus.CounterVec
	failures   prometheus.Counter

	mu    sync.Mutex
	nodes map[edge.NodeName]series // all except ordinary ones
}

// series names one series of the gauge.
type series struct {
	pool edge.PoolName
	rule Rule
}

func newMetrics() *metrics {
	return &metrics{
		autonomous: prometheus.NewDesc("coordinator_controller_autonomous_nodes",
			"Nodes that are annotated as autonomous, by pool and rule (Kept, or Unreadable where the duration is); "+
				"zero on a replica that does not lead.", []string{"pool", "rule"}, nil),
		patches: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "coordinator_controller_autonomy_patches_total",
			Help: "Patches of Pods' tolerations, by step: hold (made endless), set (given the node's duration) and " +
				"release (reset to what the Pod had).",
		}, []string{"step"}),
		failures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "coordinator_controller_autonomy_patch_failures_total",
			Help: "Patches of Pods' tolerations that the API server refused, conflicts aside.",
		}),
		nodes: make(map[edge.NodeName]series),
	}
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	ch <- m.autonomous
	m.patches.Describe(ch)
	m.failures.Describe(ch)
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	for s, n := range m.count() {
		ch <- prometheus.MustNewConstMetric(m.autonomous, prometheus.GaugeValue, float64(n), string(s.pool),
			string(s.rule))
	}
	m.patches.Collect(ch)
	m.failures.Collect(ch)
}

func (m *metrics) count() map[series]int {
	m.mu.Lock()
	defer m.mu.Unlock()
	counts := make(map[series]int)
	for _, s := range m.nodes {
		counts[s]++
	}
	return counts
}

func (m *metrics) stands(node edge.NodeName, pool edge.PoolName, rule Rule) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if rule == Ordinary {
		delete(m.nodes, node)
		return
	}
	m.nodes[node] = series{pool, rule}
}

func (m *metrics) forget(node edge.NodeName) { m.stands(node, "", Ordinary) }

func (m *metrics) patched(s Step) { m.patches.WithLabelValues(string(s)).Inc() }

func (m *metrics) failed() { m.failures.Inc() }
