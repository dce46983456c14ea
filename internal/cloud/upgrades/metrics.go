package upgrades

import "github.com/prometheus/client_golang/prometheus"

// metrics count pools and nodes whose hubs are to be of a version.
type metrics struct{ pools, nodes *prometheus.GaugeVec }

func newMetrics() metrics {
	m := metrics{
		pools: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "coordinator_controller_hub_upgrade_pools",
			Help: "NodePools whose hubs are to be of a version, by how far they are.",
		}, []string{"state"}),
		nodes: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "coordinator_controller_hub_upgrade_nodes",
			Help: "Nodes whose hubs are to be of a version, by whether they say that they are.",
		}, []string{"upgraded"}),
	}
	m.stand(nil)
	return m
}

func (m metrics) stand(decisions []decision) {
	pools, upgraded, nodes := map[state]int{}, 0, 0
	for _, d := range decisions {
		if d.version != "" {
			pools[d.state]++
			upgraded += d.upgraded
			nodes += d.nodes
		}
	}
	for _, s := range order {
		m.pools.WithLabelValues(string(s)).Set(float64(pools[s]))
	}
	m.nodes.WithLabelValues("true").Set(float64(upgraded))
	m.nodes.WithLabelValues("false").Set(float64(nodes - upgraded))
}
