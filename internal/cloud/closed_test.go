package cloud

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	yamlcodec "sigs.k8s.io/yaml"

	"yurtcoordinator/internal/cloud/cloudtest"
)

// TestRightsForMetrics: with a real API server and the chart's rights, both programs find out who may read their metrics.
func TestRightsForMetrics(t *testing.T) {
	cfg := cloudtest.Start(t)
	admin := cloudtest.Client(t, cfg)
	applyClusterRoles(t, admin)
	typed, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	token := func(name string) string {
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
		if err := admin.Create(t.Context(), account); err != nil {
			t.Fatal(err)
		}
		given, err := typed.CoreV1().ServiceAccounts("default").CreateToken(t.Context(), name,
			&authenticationv1.TokenRequest{}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return given.Status.Token
	}
	codes := map[string]int{
		"": http.StatusUnauthorized, "made-up": http.StatusInternalServerError, token("other"): http.StatusForbidden,
		token("reader"): http.StatusOK,
	}
	reader := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "metrics"},
		Rules:      []rbacv1.PolicyRule{{NonResourceURLs: []string{"/metrics"}, Verbs: []string{"get"}}},
	}
	if err := errors.Join(admin.Create(t.Context(), reader), admin.Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "metrics"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "metrics"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: "reader"}},
	})); err != nil {
		t.Fatal(err)
	}
	for _, program := range []string{Name, approver} {
		as := cloudtest.As(cfg, "system:serviceaccount:kube-system:"+program)
		httpClient, err := rest.HTTPClientFor(as)
		if err != nil {
			t.Fatal(err)
		}
		filter, err := closedMetrics(Config{}, newAnswers()).FilterProvider(as, httpClient)
		if err != nil {
			t.Fatal(err)
		}
		closed, err := filter(logr.Discard(), http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		if err != nil {
			t.Fatal(err)
		}
		for token, want := range codes {
			cloudtest.Eventually(t, "the rights of "+program, func() error {
				r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil)
				if token != "" {
					r.Header.Set("Authorization", "Bearer "+token)
				}
				answer := httptest.NewRecorder()
				if closed.ServeHTTP(answer, r); answer.Code != want {
					return errors.New(answer.Result().Status)
				}
				return nil
			})
		}
	}
}

// applyClusterRoles makes the ClusterRoles of the chart's file, and binds them.
func applyClusterRoles(t *testing.T, c client.Client) {
	t.Helper()
	for docs := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(manifests(t)))); ; {
		doc, err := docs.Read()
		if errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
		o := &unstructured.Unstructured{}
		if err := yamlcodec.Unmarshal(doc, &o.Object); err != nil {
			t.Fatal(err)
		}
		if o.GetKind() != "ClusterRole" && o.GetKind() != "ClusterRoleBinding" {
			continue
		}
		if err := c.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
}
