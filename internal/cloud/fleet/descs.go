package fleet

import "github.com/prometheus/client_golang/prometheus"

// descs are all of the descriptions below.
var descs []*prometheus.Desc

func desc(name, help string, labels ...string) *prometheus.Desc {
	d := prometheus.NewDesc("coordinator_controller_"+name, help, labels, nil)
	descs = append(descs, d)
	return d
}

// Of each pool.
var (
	descLed = desc("pool_led", "1 while a pool's leader reports, 0 once it does not; of pools whose leader has ever reported.",
		"pool")
	descPoolBytes = desc("pool_wan_bytes_total", "Bytes that the links of a pool's hubs to the cloud have carried, as hubs say.",
		"pool", "direction")
	descDelegated = desc("delegated_nodes", "Nodes whose link is down and whose heartbeats come all the same, by pool.", "pool")
	descAnswer    = desc("pool_line_answer_seconds", "What a heartbeat takes over the slowest of a pool's lines to the cloud.",
		"pool")
	descLost = desc("pool_lost_heartbeats", "Heartbeats of the last ten minutes that the cloud did not answer, of pools "+
		"with any.", "pool")
	descSettings = desc("pool_oldest_settings_generation", "Lowest generation of the pool's settings that a hub runs with, of "+
		"pools whose hubs run with several.", "pool")
)

// Of single nodes, while something is wrong with them.
var (
	descTrouble = desc("node_trouble", "1 for each trouble that a hub has: disk, disk-damaged, client-certificate, "+
		"serving-certificate.", "pool", "node", "trouble")
	descCut = desc("node_cut_since_timestamp_seconds", "When the link of a living node went down (Unix time); of nodes whose "+
		"link is down.", "pool", "node")
	descUntold = desc("node_troubles_untold", "Nodes with trouble that have no series, since there are too many.")
)

// Of all pools together.
var (
	descHubs = desc("hubs", "Hubs that report, by their version; of the 20 versions that most have, and other.",
		"version")
	descLinks  = desc("hub_links", "Hubs that report, by the state of their link to the cloud.", "state")
	descBytes  = desc("wan_bytes_total", "Bytes that the links of all hubs have carried, by what for.", "direction", "kind")
	descExpiry = desc("hub_certificate_expiry_timestamp_seconds", "When the first of the hubs' certificates ends (Unix time).",
		"certificate")
	descLeft = desc("hub_certificate_life_left_ratio", "Smallest share of life left among the hubs' certificates.", "certificate")
)

func one(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
