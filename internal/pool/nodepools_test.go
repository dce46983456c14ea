package pool

import (
	"net/http"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/pool/pooltest"
	"yurtcoordinator/internal/stream"
)

const nodePool = `{"apiVersion":"apps.openyurt.io/v1beta2","kind":"NodePool","metadata":{"name":"p1","uid":"u1",` +
	`"resourceVersion":"950","creationTimestamp":"2026-01-01T00:00:00Z","labels":{"site":"north"}},"spec":{"type":"Edge"},` +
	`"status":{"readyNodeNum":3}}`

var nodePoolType = stream.Type{GroupVersionKind: edge.NodePools.GroupVersion().WithKind("NodePool"), Encoding: stream.JSON}

// TestNodePoolsAreShown: what the leader brings of the pool's NodePool is read with an operator's ordinary client; a node, and
// who wants to write, are refused.
func TestNodePoolsAreShown(t *testing.T) {
	t.Parallel()
	c := start(t, nil)
	ctx := t.Context()
	alice, warned := c.warned(t)
	of := func(verb, path string) rest.Result {
		return alice.Discovery().RESTClient().Verb(verb).AbsPath("/apis/apps.openyurt.io" + path).MaxRetries(0).Do(ctx)
	}
	if err := of(http.MethodGet, "/v1beta2/nodepools").Error(); !apierrors.IsServiceUnavailable(err) ||
		!strings.Contains(err.Error(), "not complete here") {
		t.Errorf("before anybody has brought it: %v", err)
	}
	c.lead(t, "n1", 1)
	body := pooltest.Frames(t, nodePoolType, pooltest.WholeStream(2000, stream.Object{
		Key: stream.Key{Name: "p1"}, Revision: 950, Raw: []byte(nodePool),
	})...)
	leader := c.http(t, c.certificate(t, pooltest.Node("n1")))
	answer := pooltest.Do(t, leader, http.MethodPost, "https://"+c.address+pooltest.Target(edge.OwnNodePools, 0, 1),
		stream.JSON.ContentType(true), body, "")
	if answer.Code != http.StatusOK {
		t.Fatalf("push: %d %s", answer.Code, answer.Body)
	}
	for path, want := range map[string]string{
		"":                                       `"groupVersion":"apps.openyurt.io/v1beta2"`,
		"/v1beta2":                               `"name":"nodepools"`,
		"/v1beta2/nodepools":                     `"readyNodeNum":3`,
		"/v1beta2/nodepools/p1":                  `"uid":"u1"`,
		"/v1beta2/nodepools?labelSelector=site":  `"name":"p1"`,
		"/v1beta2/nodepools?labelSelector=!site": `"items":[]`,
	} {
		path, query, _ := strings.Cut(path, "?")
		request := alice.Discovery().RESTClient().Get().AbsPath("/apis/apps.openyurt.io" + path)
		if key, value, ok := strings.Cut(query, "="); ok {
			request.Param(key, value)
		}
		if text, err := request.Do(ctx).Raw(); err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s: %s, %v", path, text, err)
		}
	}
	const behind = "nodepools.apps.openyurt.io are complete here but not current"
	if said := warned.take(); len(said) == 0 || !strings.Contains(said[0], behind) {
		t.Errorf("warned of %q", said)
	}
	if err := of(http.MethodGet, "/v1beta2/nodepools/p2").Error(); !apierrors.IsNotFound(err) {
		t.Errorf("another pool's: %v", err)
	}
	for what, err := range map[string]error{
		"delete it":         of(http.MethodDelete, "/v1beta2/nodepools/p1").Error(),
		"its subresource":   of(http.MethodGet, "/v1beta2/nodepools/p1/status").Error(),
		"YurtCoordinators":  of(http.MethodGet, "/v1alpha1/yurtcoordinators").Error(),
		"another version's": of(http.MethodGet, "/v1beta1/yurtappsets").Error(),
	} {
		forbidden(t, what, err)
	}
	if answer := pooltest.Do(t, leader, http.MethodGet, "https://"+c.address+pooltest.Target(edge.NodePools, 0, 0), "", nil,
		""); answer.Code != http.StatusNotFound && answer.Code != http.StatusServiceUnavailable {
		t.Errorf("a hub that wants all NodePools is answered %d by the mirror, which has one: %s", answer.Code, answer.Body)
	}
	if code, _ := c.get(t, leader, "/apis/apps.openyurt.io/v1beta2/nodepools"); code != http.StatusForbidden {
		t.Errorf("a node reads them with %d", code)
	}
}
