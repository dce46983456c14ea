package appset

import (
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
)

// metrics are of each YurtAppSet: how many pools are outdated, whether its rollout has stopped, and how many removals wait.
type metrics struct {
	outdated, stopped *prometheus.GaugeVec
	waiting           RemovalsWaiting
}

// RemovalsWaiting counts the objects of a kind that Brakes hold back, by the YurtAppSet that confirms their removal.
type RemovalsWaiting struct{ *prometheus.GaugeVec }

func newMetrics() metrics {
	of := func(name, help string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, []string{"namespace", "yurtappset"})
	}
	return metrics{
		waiting: NewRemovalsWaiting("workload"),
		outdated: of("coordinator_controller_yurtappset_outdated_pools",
			"Pools of a YurtAppSet whose workload is missing, not as wanted, or not fully rolled out. Those that wait for a "+
				"rollout do not count."),
		stopped: of("coordinator_controller_yurtappset_rollout_stopped",
			"1 while a pool that fails with a change stops the rollout of a YurtAppSet. Its condition Stalled says why."),
	}
}

// NewRemovalsWaiting returns a gauge of one kind.
func NewRemovalsWaiting(kind string) RemovalsWaiting {
	return RemovalsWaiting{prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "coordinator_controller_removals_waiting", ConstLabels: prometheus.Labels{"kind": kind},
		Help: "Workloads of a YurtAppSet, or YurtCoordinators, that nobody asks for any more, and that stay because so many " +
			"may be a mistake. The YurtAppSet can confirm or pause their removal.",
	}, []string{"namespace", "yurtappset"})}
}

// Set sets how many wait. A YurtAppSet without any has no series.
func (w RemovalsWaiting) Set(set types.NamespacedName, n int) {
	w.DeleteLabelValues(set.Namespace, set.Name)
	if n > 0 {
		w.WithLabelValues(set.Namespace, set.Name).Set(float64(n))
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
	m.waiting.Set(set, 0)
}
