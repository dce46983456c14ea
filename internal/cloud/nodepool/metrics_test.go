package nodepool

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"yurtcoordinator/apis/apps/v1beta2"
)

func TestMetrics(t *testing.T) {
	c := New(Config{})
	c.pools.metrics.stands("a", v1beta2.NodePoolStatus{ReadyNodeNum: 1, UnreadyNodeNum: 1})
	c.pools.metrics.stands("a", v1beta2.NodePoolStatus{ReadyNodeNum: 3, UnreadyNodeNum: 2})
	c.pools.metrics.stands("b", v1beta2.NodePoolStatus{ReadyNodeNum: 4})
	c.pools.metrics.stands("c", v1beta2.NodePoolStatus{ReadyNodeNum: 10})
	c.pools.metrics.forget("c")
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(c.Metrics())
	want := `
# HELP coordinator_controller_nodepool_nodes Nodes in all NodePools together, by state (ready, unready); zero on ` +
		`a replica that does not lead.
# TYPE coordinator_controller_nodepool_nodes gauge
coordinator_controller_nodepool_nodes{state="ready"} 7
coordinator_controller_nodepool_nodes{state="unready"} 2
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}

// of returns what is counted of a pool, and whether anything is.
func (m *metrics) of(pool string) (counts, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c, found := m.byPool[pool]
	return c, found
}
