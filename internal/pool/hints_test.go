package pool

import (
	"net/http"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"yurtcoordinator/internal/pool/access"
	"yurtcoordinator/internal/pool/pooltest"
)

// TestARefusalSaysWhatToDo, as kubectl prints it.
func TestARefusalSaysWhatToDo(t *testing.T) {
	t.Parallel()
	c := start(t, nil)
	ctx := t.Context()
	alice := c.as(t, pooltest.Operator())
	says := func(what string, err error, want string, is func(error) bool) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), want) || !is(err) {
			t.Errorf("%s: %v; want %q", what, err, want)
		}
	}
	says("a write", alice.CoreV1().Pods("shop").Delete(ctx, "a", metav1.DeleteOptions{}), access.HintChange,
		apierrors.IsForbidden)
	_, err := alice.CoreV1().Pods("shop").Patch(ctx, "a", types.MergePatchType, []byte(`{}`), metav1.PatchOptions{})
	says("a patch", err, access.HintChange, apierrors.IsForbidden)
	_, err = alice.CoreV1().Secrets("").List(ctx, metav1.ListOptions{})
	says("Secrets", err, access.HintSecrets, apierrors.IsForbidden)
	err = alice.CoreV1().RESTClient().Get().AbsPath("/api/v1/nodes/n1/proxy/pods").Do(ctx).Error()
	says("a kubelet", err, access.HintProxy, apierrors.IsForbidden)
	err = alice.CoreV1().RESTClient().Get().AbsPath("/api/v1/pods").SetHeader("Impersonate-User", "admin").Do(ctx).Error()
	says("as another", err, access.HintSelf, apierrors.IsForbidden)
	_, err = alice.Discovery().OpenAPISchema()
	says("OpenAPI v2", err, access.HintOpenAPI, apierrors.IsNotAcceptable)
	_, err = alice.Discovery().OpenAPIV3().Paths()
	says("OpenAPI v3", err, access.HintOpenAPI, apierrors.IsNotAcceptable)

	_, err = c.as(t, pooltest.Node("n1")).CoreV1().Pods("shop").List(ctx, metav1.ListOptions{})
	if err == nil || strings.Contains(err.Error(), "operators") {
		t.Errorf("a node: %v", err)
	}
	old := c.ca.Issue(t, pooltest.Operator(), time.Now().Add(-time.Hour))
	late, err := kubernetes.NewForConfig(&rest.Config{Host: "https://" + c.address, TLSClientConfig: rest.TLSClientConfig{
		CAData: c.ca.Pem, CertData: old.Cert, KeyData: old.Key,
	}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = late.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	says("an expired certificate", err, "expired", apierrors.IsUnauthorized)
	says("an expired certificate", err, access.HintKubeconfig, apierrors.IsUnauthorized)
	if code, text := c.probe(t, "/api/v1/pods"); code != http.StatusUnauthorized ||
		!strings.Contains(text, access.ErrNoCertificate.Error()) || strings.Count(text, "Status") > 2 {
		t.Errorf("nobody: %d %s", code, text)
	}
}
