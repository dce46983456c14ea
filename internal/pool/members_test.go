package pool

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/utils/clock"

	"yurtcoordinator/internal/edge"
)

func TestMembers(t *testing.T) {
	file := filepath.Join(t.TempDir(), "nodes")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	m := newMembers(file, clock.RealClock{})
	decides := func(name, group string, want authorizer.Decision, says string) {
		t.Helper()
		who := &user.DefaultInfo{Name: name, Groups: []string{group}}
		got, why, err := m.Authorize(t.Context(), authorizer.AttributesRecord{User: who})
		if got != want || err != nil || !strings.Contains(why, says) {
			t.Errorf("%s: %v %q %v, want %v %q", name, got, why, err, want, says)
		}
	}
	news := func(want bool, wantErr string) {
		t.Helper()
		got, err := m.read()
		if got != want || (err == nil) != (wantErr == "") || err != nil && !strings.Contains(err.Error(), wantErr) {
			t.Errorf("news %v, %v, want %v %q", got, err, want, wantErr)
		}
	}
	const no, deny = authorizer.DecisionNoOpinion, authorizer.DecisionDeny
	news(false, "no such file")
	decides("system:node:n1", edge.GroupNodes, deny, "not been told yet")
	decides("openyurt:operator:p1", "openyurt:coordinators", no, "")
	write("n1\n  n2 \n\n")
	news(true, "")
	news(false, "")
	decides("system:node:n1", edge.GroupNodes, no, "")
	decides("system:node:n2", edge.GroupNodes, no, "")
	decides("system:node:n3", edge.GroupNodes, deny, "not of this pool")
	for text, says := range map[string]string{
		"n1\nn2 n3\n": "not a name", "N1": "not a name", strings.Repeat("n1\n", maxMembersFile): "longer than",
	} {
		write(text)
		news(false, says)
		decides("system:node:n2", edge.GroupNodes, no, "") // as before
	}
	write("n2\nn1")
	news(false, "")
	write("")
	news(true, "")
	decides("system:node:n1", edge.GroupNodes, deny, "not of this pool")
	m = newMembers("", clock.RealClock{})
	decides("system:node:n1", edge.GroupNodes, no, "")
}

func TestMembersAreFollowed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "nodes")
	synctest.Test(t, func(t *testing.T) {
		m := newMembers(file, clock.RealClock{})
		ctx, cancel := context.WithCancel(t.Context())
		calls, ended := 0, make(chan error)
		go func() { ended <- m.Run(ctx, func(context.Context) { calls++ }) }()
		for i, text := range []string{"n1", "n1\nn2", "n1\nn2\n", "n2"} {
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * membersEvery) // in the bubble
			synctest.Wait()
			if want := []int{1, 2, 2, 3}[i]; calls != want {
				t.Errorf("after %q: told %d times, want %d", text, calls, want)
			}
		}
		cancel()
		if err := errors.Join(<-ended, m.Run(ctx, nil)); err != nil {
			t.Error(err)
		}
	})
}

// TestNodesOfOtherPools may do nothing, and one that leaves the pool leaves nothing behind.
func TestNodesOfOtherPools(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "nodes")
	tell := func(text string) {
		t.Helper()
		if err := os.WriteFile(file+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
	}
	tell("n1\nn2\n")
	c := start(t, func(config *Config) { config.PoolNodesFile = file })
	ctx := t.Context()
	two, other := c.hub(t, "n2"), c.hub(t, "n3")
	two.ask()
	two.must(kindNode, put(nodeOf(t, "n2", 6)))
	two.must(kindPod, put(podOf(t, "n2", "b", 11)))

	refusedAll := func(name string) {
		t.Helper()
		client := c.as(t, node(name))
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
			if code, text := c.get(t, c.http(t, c.certificate(t, node(name))), path); code != http.StatusForbidden {
				t.Errorf("%s of %s: %d %s", path, name, code, text)
			}
		}
	}
	refusedAll("n3")
	if code, text, _ := other.do(http.MethodPost, edge.PathOwn+"/core/v1/nodes", nil, nil); code != http.StatusForbidden {
		t.Errorf("pushes its Node: %d %s", code, text)
	}
	if code, _ := c.get(t, c.http(t, c.certificate(t, node("n3"))), "/readyz"); code != http.StatusOK {
		t.Errorf("/readyz, which is open to all: %d", code)
	}

	tell("n1\nn3\n")
	allowed(t, "what a node had that has left is gone", eventually(ctx, func() error {
		list, err := c.as(t, operator()).CoreV1().Pods("").List(ctx, metav1.ListOptions{})
		if err == nil && len(list.Items) > 0 {
			err = errors.New("its Pod is still shown")
		}
		return err
	}))
	refusedAll("n2")
	other.ask()
	other.must(kindNode, put(nodeOf(t, "n3", 7)))
	lease, err := c.as(t, node("n3")).CoordinationV1().Leases(corev1.NamespaceNodeLease).Create(ctx, heartbeat("n3"),
		metav1.CreateOptions{})
	allowed(t, "the heartbeat of one that has come", err)
	if lease.Name != "n3" {
		t.Errorf("%+v", lease)
	}
}
