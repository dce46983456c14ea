package pool

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"golang.org/x/net/html"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/pool/pooltest"
)

// shown is what a browser shows of a page, word by word.
func shown(t *testing.T, page string) string {
	t.Helper()
	root, err := html.Parse(strings.NewReader(page))
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for n := range root.Descendants() {
		if n.Type == html.TextNode {
			out.WriteString(n.Data + " ")
		}
	}
	return strings.Join(strings.Fields(out.String()), " ")
}

// TestThePageOnSite shows operators what hubs have brought, and nobody else anything.
func TestThePageOnSite(t *testing.T) {
	t.Parallel()
	c := start(t, nil)
	operator := c.http(t, c.certificate(t, pooltest.Operator()))
	look := func(path string) string {
		t.Helper()
		c.clock.Step(3 * time.Second) // whatever was gathered is old; the leader still leads
		code, body := c.get(t, operator, path)
		if code != http.StatusOK {
			t.Fatalf("%s: %d %s", path, code, body)
		}
		return shown(t, body)
	}
	shows := func(text string, want ...string) {
		t.Helper()
		for _, w := range want {
			if !strings.Contains(text, w) {
				t.Errorf("it does not show %q:\n%s", w, text)
			}
		}
	}
	shows(look("/ui/"), "No node has been heard here", "No Pods here", "services no no not all have come",
		"nodepools.apps.openyurt.io no no")

	one := c.hub(t, "n1")
	one.Ask()
	one.Must(pooltest.KindNode, pooltest.Put(pooltest.NodeOf(t, "n1", 5)))
	one.Must(pooltest.KindPod, pooltest.Put(pooltest.PodOf(t, "n1", "till", 10)))
	one.Must(pooltest.KindEvent, pooltest.Put(pooltest.EventOf(t, "n1", "till", 30)))
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: "n1", Annotations: map[string]string{edge.AnnotationTraffic: "2048/4096/1767268800"}},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: ptr.To("n1"), LeaseDurationSeconds: ptr.To[int32](40), RenewTime: &metav1.MicroTime{Time: time.Now()},
		},
	}
	leases := c.as(t, pooltest.Node("n1")).CoordinationV1().Leases(corev1.NamespaceNodeLease)
	lease, err := leases.Create(t.Context(), lease, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c.lead(t, "n1", 1)
	now := look("/ui/live")
	shows(now, "Leader n1", "n1 leader coordinator up reaches the cloud itself", "2 KiB 4 KiB", "shop/ till",
		"Pod shop/till", "kubelet on n1")
	table, err := c.as(t, pooltest.Operator()).CoreV1().RESTClient().Get().Resource("pods").
		SetHeader("Accept", "application/json;as=Table;g=meta.k8s.io;v=v1").DoRaw(t.Context())
	if err != nil || !strings.Contains(string(table), `"cells":["till","0/1","Running"`) {
		t.Errorf("kubectl is told %s, %v", table, err)
	}
	shows(now, "till Running 0/1")

	lease.Annotations[edge.DelegateHeartbeat] = edge.DelegateHeartbeatOn
	lease.Labels = map[string]string{edge.DelegateHeartbeat: edge.DelegateHeartbeatOn}
	if _, err := leases.Update(t.Context(), lease, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	allowed(t, "the page shows the cut", eventually(t.Context(), func() error { // the API server's cache has the Lease soon
		if text := look("/ui/live"); !strings.Contains(text, "own link down") {
			return errors.New(text)
		}
		c.lead(t, "n1", 1)
		return nil
	}))
	shows(look("/ui/"), "This site is cut off from the cloud", "n1 leader coordinator down own link down")

	for who, client := range map[string]*http.Client{
		"a node": c.http(t, c.certificate(t, pooltest.Node("n1"))), "another node": c.http(t, c.certificate(t,
			pooltest.Node("n2"))),
	} {
		for _, path := range []string{"/ui/", "/ui/live", "/ui/page.js"} {
			if code, body := c.get(t, client, path); code != http.StatusForbidden {
				t.Errorf("%s gets %s with %d %s", who, path, code, body)
			}
		}
	}
	if code, _ := c.get(t, c.http(t, c.certificate(t, pooltest.Debugger())), "/ui/"); code != http.StatusOK {
		t.Errorf("a person who may enter any Pod gets %d", code)
	}
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodHead} {
		if code := c.ask(t, operator, method, "/ui/", nil); code != http.StatusForbidden {
			t.Errorf("%s: %d", method, code)
		}
	}
	other := pooltest.NewAuthority(t, "another pool's").Issue(t, pooltest.Operator(), pooltest.Tomorrow())
	c.shutOut(t, "another pool's operator", badCertificate, other.TLS(t))
	c.shutOut(t, "nobody", certificateRequired)
}
