package charts

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"yurtcoordinator/internal/cloud/cloudtest"
	"yurtcoordinator/internal/edge"
)

// coordinatorUser is who coordinators are to kubelets, and so to the API server: its pool follows.
const coordinatorUser = edge.CoordinatorUsers

// connections are all that the API server connects with something else, with the ways to ask for it.
var connections = []struct {
	path    string
	methods []string
}{
	{"/api/v1/nodes/cc/proxy", []string{"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"}},
	{"/api/v1/nodes/cc/proxy/pods", []string{"GET", "POST"}},
	{"/api/v1/nodes/https:cc:10250/proxy/run/kube-system/etcd/etcd?cmd=id", []string{"GET", "POST"}},
	{"/api/v1/namespaces/default/pods/cc/exec?command=id&stdout=true", []string{"GET", "POST"}},
	{"/api/v1/namespaces/default/pods/cc/attach?stdout=true", []string{"GET", "POST"}},
	{"/api/v1/namespaces/default/pods/cc/portforward?ports=80", []string{"GET", "POST"}},
	{"/api/v1/namespaces/default/pods/cc/proxy/x", []string{"GET", "POST", "PUT", "PATCH", "DELETE"}},
	{"/api/v1/namespaces/default/services/cc/proxy/x", []string{"GET", "POST", "PUT", "PATCH", "DELETE"}},
}

func connect(ctx context.Context, t *testing.T, cfg *rest.Config, method, path string) error {
	t.Helper()
	c, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c.CoreV1().RESTClient().Verb(method).RequestURI(path).Do(ctx).Error()
}

// TestTheServerDoesNotConnectCoordinators: not even one that RBAC lets do everything. Nodes, Pods and Services of these names
// are not there: whoever gets as far as being told so is not refused.
func TestTheServerDoesNotConnectCoordinators(t *testing.T) {
	cfg := policed(t)
	for user, refused := range map[string]bool{
		coordinatorUser:                          true,
		coordinatorUser + ":p1":                  true,
		coordinatorUser + ":not-signed-yet":      true,
		"admin":                                  false,
		edge.PoolName("p1").OperatorUser():       false,
		edge.NodeName("yurt-coordinator").User(): false,
		"openyurt:yurt":                          false,
		"x:" + coordinatorUser:                   false,
		"system:serviceaccount:kube-system:coordinator-controller": false,
	} {
		as := cloudtest.As(cfg, user, "system:masters")
		for _, c := range connections {
			for _, method := range c.methods {
				err := connect(t.Context(), t, as, method, c.path)
				switch {
				case refused && method == http.MethodHead: // has no body to say why
					if !apierrors.IsForbidden(err) {
						t.Errorf("%s: %s %s: %v", user, method, c.path, err)
					}
				case refused:
					mustRefuse(t, fmt.Sprintf("%s: %s %s", user, method, c.path), err, "known to kubelets only", user)
				case err == nil || apierrors.IsForbidden(err):
					t.Errorf("%s: %s %s: %v, want that there is none", user, method, c.path, err)
				}
			}
		}
	}
	// What it does not connect is as ever.
	c := cloudtest.Client(t, cloudtest.As(cfg, coordinatorUser, "system:masters"))
	mustAccept(t, "a list of Nodes, by who may", c.List(t.Context(), &corev1.NodeList{}))
}

// TestACoordinatorHasNoRight: all that is installed gives a coordinator nothing that not everybody has, neither by its own
// requests nor where kubelets ask.
func TestACoordinatorHasNoRight(t *testing.T) {
	cfg := policed(t)
	admin := cloudtest.Client(t, cfg)
	var given []string
	for _, s := range verbatim(t) {
		for _, each := range []string{"subjects", "rules"} {
			if rules, ok := s.object.Object[each]; ok && strings.Contains(fmt.Sprint(rules), edge.CoordinatorUsers) {
				given = append(given, s.file)
			}
		}
	}
	if len(given) > 0 {
		t.Errorf("these name the user: %q", given)
	}
	may := func(user, verb, resource string) bool {
		t.Helper()
		resource, subresource, _ := strings.Cut(resource, "/")
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: user, Groups: []string{"system:authenticated"},
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Verb: verb, Version: "v1", Resource: resource, Subresource: subresource, Name: "n1",
			},
		}}
		create(t, admin, review)
		return review.Status.Allowed
	}
	ours := edge.PoolName("p1").CoordinatorUser()
	verbs := []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection", "impersonate"}
	for _, verb := range verbs {
		for _, resource := range []string{
			"nodes", "nodes/status", "nodes/proxy", "nodes/metrics", "nodes/stats", "nodes/log", "nodes/checkpoint",
			"nodes/configz", "nodes/healthz", "nodes/pods", "nodes/statusz", "pods", "pods/log", "pods/exec", "pods/attach",
			"pods/portforward", "pods/proxy", "services", "services/proxy", "secrets", "configmaps", "users",
		} {
			if may(ours, verb, resource) {
				t.Errorf("it may %s %s", verb, resource)
			}
		}
	}
	as := cloudtest.As(cfg, ours)
	for _, path := range []string{
		"/api/v1/nodes", "/api/v1/nodes/cc", "/api/v1/pods", "/api/v1/secrets", "/api/v1/nodes/cc/metrics",
		"/api/v1/nodes/cc/proxy/pods", "/api/v1/namespaces/default/pods/cc/log",
		"/api/v1/namespaces/default/pods/cc/exec?command=id", "/metrics", "/logs/",
	} {
		mustRefuse(t, path, connect(t.Context(), t, as, http.MethodGet, path), "cannot")
	}
}
