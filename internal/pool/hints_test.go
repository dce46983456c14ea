package pool

import (
	"net/http"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"yurtcoordinator/internal/edge"
)

func TestHints(t *testing.T) {
	alice := &user.DefaultInfo{Name: "alice", Groups: []string{edge.GroupOperators}}
	n1 := &user.DefaultInfo{Name: "system:node:n1", Groups: []string{edge.GroupNodes}}
	bob := &user.DefaultInfo{Name: "bob", Groups: []string{"people"}}
	for what, c := range map[string]struct {
		caller             user.Info
		verb, group, thing string
		want               string
	}{
		"an operator deletes a Pod":     {alice, "delete", "", "pods", hintChange},
		"an operator deletes all":       {alice, "deletecollection", "", "pods", hintChange},
		"an operator debugs":            {alice, "patch", "", "pods/ephemeralcontainers", hintChange},
		"an operator drains":            {alice, "create", "", "pods/eviction", hintChange},
		"an operator writes a Secret":   {alice, "create", "", "secrets", hintChange},
		"an operator reads Secrets":     {alice, "list", "", "secrets", hintSecrets},
		"secrets of another group":      {alice, "list", "example.com", "secrets", hintOther},
		"an operator asks a kubelet":    {alice, "get", "", "nodes/proxy", hintProxy},
		"an operator runs by a kubelet": {alice, "create", "", "nodes/proxy", hintProxy},
		"an operator writes a Node":     {alice, "patch", "", "nodes/status", hintChange},
		"an operator asks a Pod":        {alice, "get", "", "pods/proxy", "use kubectl port-forward"},
		"an operator as another":        {alice, "impersonate", "", "users", hintSelf},
		"constrained":                   {alice, "impersonate-on:user-info:list", "", "pods", hintSelf},
		"what is not shown":             {alice, "list", "", "componentstatuses", hintOther},
		"somebody":                      {bob, "get", "", "pods", hintKubeconfig},
		"somebody execs":                {bob, "create", "", "pods/exec", hintKubeconfig},
		"a node":                        {n1, "delete", "", "pods", ""},
		"nobody":                        {nil, "delete", "", "pods", ""},
	} {
		resource, sub, _ := strings.Cut(c.thing, "/")
		a := authorizer.AttributesRecord{
			User: c.caller, Verb: c.verb, APIGroup: c.group, Resource: resource, Subresource: sub, ResourceRequest: true,
		}
		if got := hint(a); got != c.want {
			t.Errorf("%s: %q, want %q", what, got, c.want)
		}
		if decision, _, err := (hints{}).Authorize(t.Context(), a); decision != authorizer.DecisionNoOpinion || err != nil {
			t.Errorf("%s: %v, %v", what, decision, err)
		}
	}
	if got := hint(authorizer.AttributesRecord{User: alice, Verb: "get", Path: "/debug"}); got != "" {
		t.Errorf("of a path: %q", got)
	}
}

// TestARefusalSaysWhatToDo, as kubectl prints it.
func TestARefusalSaysWhatToDo(t *testing.T) {
	t.Parallel()
	c := start(t, nil)
	ctx := t.Context()
	alice := c.as(t, operator())
	says := func(what string, err error, want string, is func(error) bool) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), want) || !is(err) {
			t.Errorf("%s: %v; want %q", what, err, want)
		}
	}
	says("a write", alice.CoreV1().Pods("shop").Delete(ctx, "a", metav1.DeleteOptions{}), hintChange, apierrors.IsForbidden)
	_, err := alice.CoreV1().Pods("shop").Patch(ctx, "a", types.MergePatchType, []byte(`{}`), metav1.PatchOptions{})
	says("a patch", err, hintChange, apierrors.IsForbidden)
	_, err = alice.CoreV1().Secrets("").List(ctx, metav1.ListOptions{})
	says("Secrets", err, hintSecrets, apierrors.IsForbidden)
	err = alice.CoreV1().RESTClient().Get().AbsPath("/api/v1/nodes/n1/proxy/pods").Do(ctx).Error()
	says("a kubelet", err, hintProxy, apierrors.IsForbidden)
	err = alice.CoreV1().RESTClient().Get().AbsPath("/api/v1/pods").SetHeader("Impersonate-User", "admin").Do(ctx).Error()
	says("as another", err, hintSelf, apierrors.IsForbidden)
	_, err = alice.Discovery().OpenAPISchema()
	says("OpenAPI v2", err, hintOpenAPI, apierrors.IsNotAcceptable)

	_, err = c.as(t, node("n1")).CoreV1().Pods("shop").List(ctx, metav1.ListOptions{})
	if err == nil || strings.Contains(err.Error(), "operators") {
		t.Errorf("a node: %v", err)
	}
	old := c.ca.issue(t, operator(), time.Now().Add(-time.Hour))
	late, err := kubernetes.NewForConfig(&rest.Config{Host: "https://" + c.address, TLSClientConfig: rest.TLSClientConfig{
		CAData: c.ca.pem, CertData: old.cert, KeyData: old.key,
	}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = late.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	says("an expired certificate", err, "expired", apierrors.IsUnauthorized)
	says("an expired certificate", err, hintKubeconfig, apierrors.IsUnauthorized)
	if code, text := c.get(t, c.http(t), "/api/v1/pods"); code != http.StatusUnauthorized ||
		!strings.Contains(text, errNoCertificate.Error()) || strings.Count(text, "Status") > 2 {
		t.Errorf("nobody: %d %s", code, text)
	}
}
