package pool

import (
	"bufio"
	"crypto/x509/pkix"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/pool/pooltest"
)

// TestHubsHearWhatEndpointsNeed: of another node's Pods what its endpoints need, and who renews; nobody else hears it.
func TestHubsHearWhatEndpointsNeed(t *testing.T) {
	t.Parallel()
	c := start(t, nil)
	get := func(client *http.Client) *http.Response {
		t.Helper()
		return c.opensAt(t, client, edge.PathState+"?"+edge.QueryPresence+"="+edge.NodesAndPods)
	}
	if got := get(c.http(t, c.certificate(t, pooltest.Operator()))); got.StatusCode != http.StatusForbidden {
		t.Errorf("an operator gets %d", got.StatusCode)
	}
	stream := get(c.http(t, c.certificate(t, pooltest.Node("n2"))))
	if stream.StatusCode != http.StatusOK {
		t.Fatalf("a node gets %d", stream.StatusCode)
	}
	lines := bufio.NewScanner(stream.Body)
	lines.Buffer(nil, 1<<20)
	var last []string
	next := func(ok func(edge.State) bool) (found edge.State) {
		t.Helper()
		for lines.Scan() {
			last = append(last, lines.Text())
			var p edge.State
			if err := json.Unmarshal(lines.Bytes(), &p); err != nil {
				t.Fatal(err)
			}
			if ok(p) {
				return p
			}
		}
		t.Fatalf("the stream ends: %v; the last lines are %q", lines.Err(), last)
		return found
	}
	next(func(p edge.State) bool { return p.Whole })

	one := c.hub(t, "n1")
	one.Ask()
	one.Must(pooltest.KindNode, pooltest.Put(pooltest.NodeOf(t, "n1", 5)))
	one.Must(pooltest.KindPod, pooltest.Put(pooltest.PodOf(t, "n1", "a", 10, "conf")))
	got := next(func(p edge.State) bool { return len(p.Pods) > 0 })
	if p := got.Pods[0]; len(got.Pods) != 1 || p.Name != "a" || p.Node != "n1" || p.Revision != 10 || p.UID == "" {
		t.Errorf("it hears %+v", got)
	}
	leases := c.as(t, pooltest.Node("n1")).CoordinationV1().Leases(corev1.NamespaceNodeLease)
	_, err := leases.Create(t.Context(), &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Spec: coordinationv1.LeaseSpec{
			HolderIdentity: ptr.To("n1"), LeaseDurationSeconds: ptr.To[int32](40),
			RenewTime: &metav1.MicroTime{Time: time.Now()},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	got = next(func(p edge.State) bool { return len(p.Nodes) > 0 })
	if n := got.Nodes[0]; len(got.Nodes) != 1 || n != (edge.NodePresence{Name: "n1", GraceSeconds: 50}) {
		t.Errorf("it hears %+v", got)
	}
	one.Must(pooltest.KindPod, pooltest.Del(pooltest.PodOf(t, "n1", "a", 50)))
	next(func(p edge.State) bool { return len(p.Gone) == 1 && p.Gone[0].Name == "a" })
}

// TestHubsAskWhoRelays: two nodes say that they relay, and a third is told, until one of them is cut off; an operator is not.
func TestHubsAskWhoRelays(t *testing.T) {
	t.Parallel()
	c := start(t, nil)
	for i, name := range []string{"n1", "n2"} {
		l := heartbeat(name)
		l.Annotations = map[string]string{edge.AnnotationRelaysAt: fmt.Sprintf("10.0.0.%d:10269", i+1)}
		_, err := c.as(t, pooltest.Node(name)).CoordinationV1().Leases(l.Namespace).Create(t.Context(), l, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	ask := func(who pkix.Name) (int, string) {
		return c.get(t, c.http(t, c.certificate(t, who)), edge.PathState+"?"+edge.QueryRelaying+"=true")
	}
	said := func(want ...edge.Neighbour) {
		t.Helper()
		code, text := ask(pooltest.Node("n3"))
		var got edge.Relaying
		err := json.Unmarshal([]byte(text), &got)
		slices.SortFunc(got.Neighbours, func(a, b edge.Neighbour) int { return a.At.Compare(b.At) })
		if code != http.StatusOK || err != nil || !slices.Equal(got.Neighbours, want) {
			t.Errorf("n3 is told %d %s, want %v", code, text, want)
		}
	}
	one := edge.Neighbour{Name: "n1", At: netip.MustParseAddrPort("10.0.0.1:10269")}
	said(one, edge.Neighbour{Name: "n2", At: netip.MustParseAddrPort("10.0.0.2:10269")})
	if code, text := ask(pooltest.Operator()); code != http.StatusForbidden {
		t.Errorf("an operator is told %d %s", code, text)
	}
	patch := `{"metadata":{"annotations":{"` + edge.DelegateHeartbeat + `":"true"}}}` // the stamp is the same
	_, err := c.as(t, pooltest.Node("n2")).CoordinationV1().Leases(corev1.NamespaceNodeLease).Patch(t.Context(), "n2",
		types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	said(one)
}
