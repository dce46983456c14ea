package appset

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/types"
)

func TestMetrics(t *testing.T) {
	c := New(Config{})
	of := func(name string) types.NamespacedName { return types.NamespacedName{Namespace: "n", Name: name} }
	c.metrics.stands(of("a"), 7, false)
	c.metrics.stands(of("a"), 2, true)
	c.metrics.stands(of("b"), 0, false)
	c.metrics.stands(of("c"), 1, true)
	c.metrics.forget(of("c"))
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(c.Metrics()...)
	want := `
# HELP coordinator_controller_yurtappset_outdated_pools Pools of a YurtAppSet whose workload is missing, not as wanted, or ` +
		`not fully rolled out. Those that wait for a rollout do not count.
# TYPE coordinator_controller_yurtappset_outdated_pools gauge
coordinator_controller_yurtappset_outdated_pools{namespace="n",yurtappset="a"} 2
coordinator_controller_yurtappset_outdated_pools{namespace="n",yurtappset="b"} 0
# HELP coordinator_controller_yurtappset_rollout_stopped 1 while a pool that fails with a change stops the rollout of a ` +
		`YurtAppSet. Its condition Stalled says why.
# TYPE coordinator_controller_yurtappset_rollout_stopped gauge
coordinator_controller_yurtappset_rollout_stopped{namespace="n",yurtappset="a"} 1
coordinator_controller_yurtappset_rollout_stopped{namespace="n",yurtappset="b"} 0
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}

// outdated fails unless the metrics count so many outdated pools of a set; -1: they don't know it.
func (w *world) outdated(name string, want int) {
	w.t.Helper()
	if got := w.counted(w.controller.metrics.outdated, name); got != want {
		w.t.Errorf("%d outdated pools of %s, want %d", got, name, want)
	}
}

// waiting fails unless the metrics count so many removals of a set that wait; -1: none.
func (w *world) waiting(name string, want int) {
	w.t.Helper()
	if got := w.counted(w.controller.metrics.waiting, name); got != want {
		w.t.Errorf("%d removals of %s wait, want %d", got, name, want)
	}
}

// counted returns a gauge of a set; -1: there is none.
func (w *world) counted(gauge prometheus.Collector, name string) int {
	w.t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(gauge)
	families, err := registry.Gather()
	if err != nil {
		w.t.Fatal(err)
	}
	got := -1
	for _, f := range families {
		for _, m := range f.GetMetric() {
			of := map[string]string{}
			for _, l := range m.GetLabel() {
				of[l.GetName()] = l.GetValue()
			}
			if of["namespace"] == w.namespace && of["yurtappset"] == name {
				got = int(m.GetGauge().GetValue())
			}
		}
	}
	return got
}
