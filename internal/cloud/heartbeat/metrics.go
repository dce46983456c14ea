package heartbeat

import (
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
)

// metrics are the Policy's. How many nodes are delegated follows from their conditions: see package fleet.
type metrics struct {
	transitions *prometheus.CounterVec
	flapping    *prometheus.CounterVec
	putBack     *prometheus.CounterVec
}

func newMetrics() metrics {
	return metrics{
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
	}
}

func (m metrics) changed(from, to corev1.ConditionStatus) {
	if from == "" {
		from = "None"
	}
	m.transitions.WithLabelValues(string(from), string(to)).Inc()
}
