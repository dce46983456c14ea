package heartbeat

import (
	"maps"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"yurtcoordinator/internal/edge"
)

// metrics is a prometheus.Collector. It computes the gauge from its records whenever it is asked, so gauge and records always
// agree, and a pool without nodes leaves no series.
type metrics struct {
	delegated   *prometheus.Desc
	transitions *prometheus.CounterVec
	flapping    *prometheus.CounterVec
	putBack     *prometheus.CounterVec

	mu    sync.Mutex
	nodes map[edge.NodeName]standing
	// inPool are the delegated nodes among nodes.
	inPool map[edge.PoolName]map[edge.NodeName]bool
}

// standing is what the gauge counts of a node.
type standing struct {
	pool      edge.PoolName
	delegated bool
}

func newMetrics() *metrics {
	return &metrics{
		delegated: prometheus.NewDesc("coordinator_controller_delegated_nodes",
			"Nodes whose heartbeats come delegated, by pool; zero on a replica that does not lead.",
			[]string{"pool"}, nil),
		transitions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "coordinator_controller_cloud_link_transitions_total",
			Help: "Changes written to the CloudLinkDown condition of Nodes, by the status before " +
				"(None if there was no condition) and after.",
		}, []string{"from", "to"}),
		flapping: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "coordinator_controller_flapping_nodes_total",
			Help: "Times that a node's heartbeats went to and fro between its own and forwarded ones, so that they are " +
				"unsettled, by pool; no series for pools without.",
		}, []string{"pool"}),
		putBack: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "coordinator_controller_renew_times_put_back_total",
			Help: "Leases of silent nodes whose renewTime was from the future, and was put back, by pool; no series for pools " +
				"without.",
		}, []string{"pool"}),
		nodes: make(map[edge.NodeName]standing), inPool: make(map[edge.PoolName]map[edge.NodeName]bool),
	}
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	ch <- m.delegated
	m.transitions.Describe(ch)
	m.flapping.Describe(ch)
	m.putBack.Describe(ch)
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	for pool, n := range m.count() {
		ch <- prometheus.MustNewConstMetric(m.delegated, prometheus.GaugeValue, float64(n), string(pool))
	}
	m.transitions.Collect(ch)
	m.flapping.Collect(ch)
	m.putBack.Collect(ch)
}

// count returns the delegated nodes of each pool that has nodes.
func (m *metrics) count() map[edge.PoolName]int {
	m.mu.Lock()
	defer m.mu.Unlock()
	counts := make(map[edge.PoolName]int)
	for _, s := range m.nodes {
		n := counts[s.pool]
		if s.delegated {
			n++
		}
		counts[s.pool] = n
	}
	return counts
}

func (m *metrics) stands(node edge.NodeName, s standing) {
	m.mu.Lock()
	defer m.mu.Unlock()
	was, is := m.nodes[node], s
	m.nodes[node] = is
	if was == is {
		return
	}
	m.leaveLocked(node, was)
	if is.delegated {
		if m.inPool[is.pool] == nil {
			m.inPool[is.pool] = make(map[edge.NodeName]bool)
		}
		m.inPool[is.pool][node] = true
	}
}

func (m *metrics) leaveLocked(node edge.NodeName, was standing) {
	delete(m.inPool[was.pool], node)
	if len(m.inPool[was.pool]) == 0 {
		delete(m.inPool, was.pool)
	}
}

// delegatedIn returns the delegated nodes of a pool.
func (m *metrics) delegatedIn(pool edge.PoolName) []edge.NodeName {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Collect(maps.Keys(m.inPool[pool]))
}

func (m *metrics) forget(node edge.NodeName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.leaveLocked(node, m.nodes[node])
	delete(m.nodes, node)
}

func (m *metrics) changed(from, to corev1.ConditionStatus) {
	if from == "" {
		from = "None"
	}
	m.transitions.WithLabelValues(string(from), string(to)).Inc()
}
