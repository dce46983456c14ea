package settings

import "github.com/prometheus/client_golang/prometheus"

// metrics counts nodes for each PoolSettings.
type metrics struct{ nodes *prometheus.GaugeVec }

func newMetrics() metrics {
	return metrics{prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "coordinator_controller_poolsettings_nodes",
		Help: "Nodes of the pools that a PoolSettings selects, by what their hubs say: updated, restart, refused, " +
			"waiting (nothing yet).",
	}, []string{"poolsettings", "state"})}
}

func (m metrics) stands(name string, n tally) {
	for state, count := range map[string]int32{
		"updated": n.updated, "restart": n.restart, "refused": n.refused, "waiting": n.waiting,
	} {
		m.nodes.WithLabelValues(name, state).Set(float64(count))
	}
}

func (m metrics) forget(name string) {
	m.nodes.DeletePartialMatch(prometheus.Labels{"poolsettings": name})
}
