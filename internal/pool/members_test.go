package pool

import (
	"errors"
	"net/http"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/pool/pooltest"
)

// TestNodesOfOtherPools may do nothing, and one that leaves the pool leaves nothing behind.
func TestNodesOfOtherPools(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "nodes")
	tell := func(text string) {
		t.Helper()
		tell(t, file, text)
	}
	tell("n1\nn2\n")
	c := start(t, func(config *Config) { config.PoolNodesFile = file })
	ctx := t.Context()
	two, other := c.hub(t, "n2"), c.hub(t, "n3")
	two.Ask()
	two.Must(pooltest.KindNode, pooltest.Put(pooltest.NodeOf(t, "n2", 6)))
	two.Must(pooltest.KindPod, pooltest.Put(pooltest.PodOf(t, "n2", "b", 11)))

	refusedAll := func(name string) {
		t.Helper()
		client := c.as(t, pooltest.Node(name))
		leases := client.CoordinationV1().Leases
		mine := heartbeat(name)
		_, err := leases(corev1.NamespaceNodeLease).Create(ctx, mine, metav1.CreateOptions{})
		forbidden(t, "its own heartbeat", err)
		_, err = leases(edge.NamespaceSystem).Patch(ctx, edge.LeaseElection, types.MergePatchType,
			[]byte(`{"spec":{"holderIdentity":"`+name+`"}}`), metav1.PatchOptions{})
		forbidden(t, "stands for election", err)
		_, err = leases(edge.NamespaceSystem).List(ctx, metav1.ListOptions{})
		forbidden(t, "reads Leases", err)
		_, err = client.DiscoveryV1().EndpointSlices("").List(ctx, metav1.ListOptions{})
		forbidden(t, "reads what the pool shares", err)
		_, err = client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		forbidden(t, "reads its own Node", err)
		_, err = client.Discovery().ServerVersion()
		forbidden(t, "reads the version", err)
		for _, path := range []string{edge.PathOwn, edge.PathMirror} {
			if code, text := c.get(t, c.http(t, c.certificate(t, pooltest.Node(name))), path); code != http.StatusForbidden {
				t.Errorf("%s of %s: %d %s", path, name, code, text)
			}
		}
	}
	refusedAll("n3")
	if code, text, _ := other.Do(http.MethodPost, edge.PathOwn+"/core/v1/nodes", nil, nil); code != http.StatusForbidden {
		t.Errorf("pushes its Node: %d %s", code, text)
	}
	if code, _ := c.get(t, c.http(t, c.certificate(t, pooltest.Node("n3"))), "/readyz"); code != http.StatusOK {
		t.Errorf("/readyz, which is open to all: %d", code)
	}

	tell("n1\nn3\n")
	allowed(t, "what a node had that has left is gone", eventually(ctx, func() error {
		list, err := c.as(t, pooltest.Operator()).CoreV1().Pods("").List(ctx, metav1.ListOptions{})
		if err == nil && len(list.Items) > 0 {
			err = errors.New("its Pod is still shown")
		}
		return err
	}))
	refusedAll("n2")
	other.Ask()
	other.Must(pooltest.KindNode, pooltest.Put(pooltest.NodeOf(t, "n3", 7)))
	lease, err := c.as(t, pooltest.Node("n3")).CoordinationV1().Leases(corev1.NamespaceNodeLease).Create(ctx, heartbeat("n3"),
		metav1.CreateOptions{})
	allowed(t, "the heartbeat of one that has come", err)
	if lease.Name != "n3" {
		t.Errorf("%+v", lease)
	}
}
