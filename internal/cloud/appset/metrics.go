package appset

import (
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
)

// metrics are of each YurtAppSet: how many of its pools are outdated, and whether its rollout has stopped.
type metrics struct{ outdated, stopped *prometheus.GaugeVec }

func newMetrics() metrics {
	of := func(name, help string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, []string{"namespace", "yurtappset"})
	}
	return metrics{
		outdated: of("coordinator_controller_yurtappset_outdated_pools",
			"Pools of a YurtAppSet whose workload is missing, not as wanted, or not fully rolled out. Those that wait for a "+
				"rollout do not count."),
		stopped: of("coordinator_controller_yurtappset_rollout_stopped",
			"1 while a pool that fails with a change stops the rollout of a YurtAppSet. Its condition Stalled says why."),
	}
}

func (m metrics) stands(set types.NamespacedName, outdated int, stopped bool) {
	m.outdated.WithLabelValues(set.Namespace, set.Name).Set(float64(outdated))
	has := 0.
	if stopped {
		has = 1
	}
	m.stopped.WithLabelValues(set.Namespace, set.Name).Set(has)
}

func (m metrics) forget(set types.NamespacedName) {
	m.outdated.DeleteLabelValues(set.Namespace, set.Name)
	m.stopped.DeleteLabelValues(set.Namespace, set.Name)
}
