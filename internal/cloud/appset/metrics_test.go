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
	c.metrics.stands(of("a"), standing{7, false})
	c.metrics.stands(of("a"), standing{2, true})
	c.metrics.stands(of("b"), standing{})
	c.metrics.stands(of("c"), standing{1, true})
	c.metrics.forget(of("c"))
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(c.Metrics())
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
	m := w.controller.metrics
	m.mu.Lock()
	defer m.mu.Unlock()
	got, found := m.bySet[types.NamespacedName{Namespace: w.namespace, Name: name}]
	if !found {
		got.outdated = -1
	}
	if got.outdated != want {
		w.t.Errorf("%d outdated pools of %s, want %d", got.outdated, name, want)
	}
}
