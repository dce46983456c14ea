package coordinator

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"yurtcoordinator/apis/apps/v1alpha1"
	"yurtcoordinator/internal/edge"
)

// TestHubsHearWhoIsDenied: nodes, hubs and certificates, and no people.
func TestHubsHearWhoIsDenied(t *testing.T) {
	w := newWorld(t)
	w.pool("p1", 3)
	w.coordinator("c1", "p1")
	w.turns(9)
	const pool = edge.PoolName("p1")
	told := func() string {
		var hint corev1.ConfigMap
		w.get(edge.NamespaceSystem, pool.DiscoveryConfigMap(), &hint)
		return hint.Data[edge.DiscoveryDenied]
	}
	denies := func(want string, who ...string) {
		t.Helper()
		var c v1alpha1.YurtCoordinator
		w.get("", "c1", &c)
		c.Spec.DeniedUsers = who
		w.update(&c)
		w.turns(3)
		if got := told(); got != want {
			t.Errorf("with %q denied hubs are told of %q, want %q", who, got, want)
		}
	}
	if got := told(); got != "" {
		t.Errorf("hubs are told of %q", got)
	}
	denies("X509SHA256=aa\nopenyurt:hub:n2\nsystem:node:n1\n",
		"ana", "system:node:n1", "openyurt:operator:p1", "openyurt:hub:n2", "X509SHA256=aa", "system:node:n1 n2")
	denies("")
}
