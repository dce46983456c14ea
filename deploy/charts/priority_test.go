package charts

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yurtcoordinator/internal/cloud/cloudtest"
	"yurtcoordinator/internal/edge"
)

// TestForwardedHeartbeatsHaveTheLevelOfDirectOnes: the API server says which level a request had.
func TestForwardedHeartbeatsHaveTheLevelOfDirectOnes(t *testing.T) {
	cfg := policed(t)
	c := cloudtest.Client(t, cfg)
	out, err := template(t, required...)
	if err != nil {
		t.Fatal(err)
	}
	for _, doc := range documents(t, out) {
		if o := parse(t, doc); o.GetKind() == "FlowSchema" {
			create(t, c, o)
			t.Cleanup(func() { _ = c.Delete(context.Background(), o) })
		}
	}
	var level flowcontrolv1.PriorityLevelConfiguration
	if err := c.Get(t.Context(), client.ObjectKey{Name: "node-high"}, &level); err != nil {
		t.Fatal(err)
	}
	levelOf := func(user, namespace string, groups ...string) string {
		t.Helper()
		h, err := rest.HTTPClientFor(cloudtest.As(cfg, user, groups...))
		if err != nil {
			t.Fatal(err)
		}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
			cfg.Host+"/apis/coordination.k8s.io/v1/namespaces/"+namespace+"/leases/n1", nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := h.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		return answer.Header.Get(flowcontrolv1.ResponseHeaderMatchedPriorityLevelConfigurationUID)
	}
	forwarder := edge.PoolName("p1").ForwardingUser()
	cloudtest.Eventually(t, "forwarded heartbeats are node-high", func() error {
		if got := levelOf(forwarder, "kube-node-lease"); got != string(level.UID) {
			return fmt.Errorf("their level is %s, and node-high is %s", got, level.UID)
		}
		return nil
	})
	if got := levelOf("system:node:n1", "kube-node-lease", "system:nodes"); got != string(level.UID) {
		t.Errorf("those of a node have the level %s, and node-high is %s", got, level.UID)
	}
	for what, got := range map[string]string{
		"another ServiceAccount": levelOf("system:serviceaccount:default:x", "kube-node-lease"),
		"another namespace":      levelOf(forwarder, "default"),
	} {
		if got == string(level.UID) || strings.TrimSpace(got) == "" {
			t.Errorf("%s has the level %q, and node-high is %s", what, got, level.UID)
		}
	}
}
