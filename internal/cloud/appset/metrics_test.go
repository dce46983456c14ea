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
	c.metrics.stands(of("a"), 7)
	c.metrics.stands(of("a"), 2)
	c.metrics.stands(of("b"), 0)
	c.metrics.stands(of("c"), 1)
	c.metrics.forget(of("c"))
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(c.Metrics())
	want := `
# HELP coordinator_controller_yurtappset_outdated_pools Pools of a YurtAppSet whose workload is missing, not as wanted, or ` +
		`not fully rolled out.
# TYPE coordinator_controller_yurtappset_outdated_pools gauge
coordinator_controller_yurtappset_outdated_pools{namespace="n",yurtappset="a"} 2
coordinator_controller_yurtappset_outdated_pools{namespace="n",yurtappset="b"} 0
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
		got = -1
	}
	if got != want {
		w.t.Errorf("%d outdated pools of %s, want %d", got, name, want)
	}
}
