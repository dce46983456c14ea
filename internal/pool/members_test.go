package pool

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/pool/pooltest"
	"yurtcoordinator/internal/stream"
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

// TestWhoHasJoinedSinceTheCutIsAMember: the cloud's list comes by the coordinator's own node, which is cut off; a leader brings
// the NodePool. Nobody brings back who is denied or was taken off the list.
func TestWhoHasJoinedSinceTheCutIsAMember(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	nodes, denied := filepath.Join(dir, "nodes"), filepath.Join(dir, "denied")
	tell(t, nodes, "n1\nn2\n")
	tell(t, denied, "system:node:n4\n")
	c := start(t, func(config *Config) { config.PoolNodesFile, config.DeniedUsersFile = nodes, denied })
	reads := func(name string) bool {
		_, err := c.as(t, pooltest.Node(name)).Discovery().ServerVersion()
		return err == nil
	}
	brings := func(revision edge.Revision, names ...string) {
		t.Helper()
		status, err := json.Marshal(map[string]any{"nodes": names})
		if err != nil {
			t.Fatal(err)
		}
		body := pooltest.Frames(t, nodePoolType, pooltest.WholeStream(revision, stream.Object{
			Key: stream.Key{Name: "p1"}, Revision: revision,
			Raw: []byte(fmt.Sprintf(`{"apiVersion":"apps.openyurt.io/v1beta2","kind":"NodePool","metadata":{"name":"p1",`+
				`"resourceVersion":"%d"},"status":%s}`, revision, status)),
		})...)
		answer := pooltest.Do(t, c.http(t, c.certificate(t, pooltest.Node("n1"))), http.MethodPost,
			"https://"+c.address+pooltest.Target(edge.OwnNodePools, 0, 1), stream.JSON.ContentType(true), body, "")
		if answer.Code != http.StatusOK {
			t.Fatalf("push: %d %s", answer.Code, answer.Body)
		}
	}
	c.lead(t, "n1", 1)
	if reads("n3") {
		t.Fatal("n3 is a member before anybody says so")
	}
	brings(1000, "n1", "n2", "n3", "n4")
	if !reads("n3") || reads("n4") {
		t.Errorf("n3 has joined: %v; n4 is denied, and let in: %v", reads("n3"), reads("n4"))
	}
	tell(t, nodes, "n1\nn3\n")
	allowed(t, "the next list", eventually(t.Context(), func() error {
		if reads("n2") {
			return errors.New("n2 is still a member")
		}
		return nil
	}))
	brings(1001, "n1", "n2", "n3", "n5")
	if !reads("n3") || reads("n2") || !reads("n5") {
		t.Errorf("n3 %v, n2 %v, which has left, n5 %v", reads("n3"), reads("n2"), reads("n5"))
	}
}
