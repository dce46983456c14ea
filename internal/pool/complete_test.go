package pool

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/pool/pooltest"
)

// warnings are what a client was warned of since they were last taken.
type warnings struct {
	mu   sync.Mutex
	said []string
}

// HandleWarningHeaderWithContext implements rest.WarningHandlerWithContext.
func (w *warnings) HandleWarningHeaderWithContext(_ context.Context, _ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !strings.Contains(text, "deprecated") { // Kubernetes' own, of Endpoints
		w.said = append(w.said, text)
	}
}

func (w *warnings) take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	said := w.said
	w.said = nil
	return said
}

// warned is a client of an operator, and what it is warned of.
func (c *coordinator) warned(t *testing.T) (kubernetes.Interface, *warnings) {
	t.Helper()
	cert := c.ca.Issue(t, pooltest.Operator(), pooltest.Tomorrow())
	w := &warnings{}
	client, err := kubernetes.NewForConfig(&rest.Config{
		Host:                      "https://" + c.address,
		TLSClientConfig:           rest.TLSClientConfig{CAData: c.ca.Pem, CertData: cert.Cert, KeyData: cert.Key},
		ContentConfig:             rest.ContentConfig{ContentType: runtime.ContentTypeJSON},
		Timeout:                   30 * time.Second,
		WarningHandlerWithContext: w,
	})
	if err != nil {
		t.Fatal(err)
	}
	return client, w
}

// declare has the leader say for 10 s, by the coordinator's clock, that it brings each change of these resources.
func (c *coordinator) declare(t *testing.T, name string, transitions int, applied string) {
	t.Helper()
	leases := c.as(t, pooltest.Node(name)).CoordinationV1().Leases(edge.NamespaceSystem)
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}},"spec":{"holderIdentity":%q,"leaseDurationSeconds":10,`+
		`"leaseTransitions":%d,"renewTime":%q}}`, edge.AnnotationAppliedRevisions, applied, name, transitions,
		time.Now().UTC().Format(metav1.RFC3339Micro))
	_, err := leases.Patch(t.Context(), edge.LeaseInformerSync, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// TestCompleteGatesReads: a program is refused what is not complete, with a time; a person is answered, and warned of what is not
// complete or not current.
func TestCompleteGatesReads(t *testing.T) {
	t.Parallel()
	c := start(t, nil)
	ctx := t.Context()
	began := c.clock.Now()
	node := c.http(t, c.certificate(t, pooltest.Node("n1")))
	alice, warned := c.warned(t)

	paths := []string{
		"/api/v1/endpoints", "/api/v1/namespaces/shop/endpoints/web", "/apis/discovery.k8s.io/v1/endpointslices",
		"/apis/discovery.k8s.io/v1/endpointslices?watch=true&timeoutSeconds=1",
	}
	for _, path := range paths {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+c.address+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := node.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if response.StatusCode != http.StatusServiceUnavailable || response.Header.Get("Retry-After") == "" {
			t.Errorf("a node is answered %s with %s, and to ask again after %q s", path, response.Status,
				response.Header.Get("Retry-After"))
		}
	}
	reads := map[string]func() error{
		"services": func() error {
			_, err := alice.CoreV1().Services("").List(ctx, metav1.ListOptions{})
			return err
		},
		"endpoints": func() error {
			_, err := alice.CoreV1().Endpoints("").List(ctx, metav1.ListOptions{})
			return err
		},
		"endpointslices.discovery.k8s.io": func() error {
			w, err := alice.DiscoveryV1().EndpointSlices("").Watch(ctx, metav1.ListOptions{})
			if err == nil {
				w.Stop()
			}
			return err
		},
	}
	says := func(resource string, parts ...string) {
		t.Helper()
		if err := reads[resource](); err != nil {
			t.Errorf("%s: %v", resource, err)
		}
		said := warned.take()
		if len(parts) == 0 && len(said) == 0 {
			return
		}
		if len(said) != 1 || len(parts) == 0 {
			t.Errorf("%s: warned of %q, want %q", resource, said, parts)
			return
		}
		for _, part := range append(parts, resource) {
			if !strings.Contains(said[0], part) {
				t.Errorf("%s: warned of %q, without %q", resource, said[0], part)
			}
		}
	}
	for resource := range reads {
		says(resource, "are not complete here", began.Add(-edge.ElectionTerm).UTC().Format("2006-01-02T15:"))
	}
	if _, err := alice.CoreV1().Services("shop").Get(ctx, "web", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("a Service that did not come: %v", err)
	}
	if said := warned.take(); len(said) != 1 || !strings.Contains(said[0], "what is missing may exist") {
		t.Errorf("of a Service that did not come: %q", said)
	}
	if _, err := alice.CoreV1().Pods("").List(ctx, metav1.ListOptions{}); err != nil || len(warned.take()) > 0 {
		t.Errorf("Pods are no resource that the pool shares: %v", err)
	}
	c.lead(t, "n1", 1)
	body := pooltest.Frames(t, pooltest.ProtobufType(corev1.SchemeGroupVersion.WithKind("Endpoints")),
		pooltest.WholeStream(2000, pooltest.AsObject(t, pooltest.CloudEndpoints(950)))...)
	if a := c.push(t, node, endpoints, 0, 1, body); a.Code != http.StatusOK {
		t.Fatalf("push: %d %s", a.Code, a.Body)
	}
	for _, path := range paths[:2] {
		if code, _ := c.get(t, node, path); code != http.StatusOK {
			t.Errorf("a node is answered %s with %d", path, code)
		}
	}
	if code, _ := c.get(t, node, paths[2]); code != http.StatusServiceUnavailable {
		t.Errorf("EndpointSlices, which have not come, are served with %d", code)
	}
	says("endpoints", "not current", "nobody brings what changes")
	c.declare(t, "n1", 1, `{"endpoints":"2000","services":"5"}`)
	says("endpoints")
	says("services", "are not complete here") // a leader's word is not enough
	c.clock.Step(9 * time.Second)
	says("endpoints")
	declared := c.clock.Now().Add(-9 * time.Second)
	c.clock.Step(2 * time.Second)
	says("endpoints", "not current", "since "+declared.UTC().Format("2006-01-02T15:"))
	if code, _ := c.get(t, node, paths[0]); code != http.StatusOK {
		t.Errorf("what is complete is refused with %d as nobody keeps it current", code)
	}
}

// TestUnfilledKindsAreNotServed: a kind that nobody fills is in no discovery, and its path is refused with what to do instead.
func TestUnfilledKindsAreNotServed(t *testing.T) {
	t.Parallel()
	c := start(t, nil)
	alice := c.as(t, pooltest.Operator())
	_, lists, err := alice.Discovery().ServerGroupsAndResources()
	if err != nil {
		t.Fatal(err)
	}
	var listed []string
	for _, list := range lists {
		for _, r := range list.APIResources {
			if slices.Contains(r.Verbs, "list") {
				listed = append(listed, r.Name+" "+list.GroupVersion)
			}
		}
	}
	slices.Sort(listed)
	filled := []string{
		"clusterrolebindings rbac.authorization.k8s.io/v1", "clusterroles rbac.authorization.k8s.io/v1", "configmaps v1",
		"endpoints v1", "endpointslices discovery.k8s.io/v1", "events v1", "leases coordination.k8s.io/v1", "namespaces v1",
		"nodepools apps.openyurt.io/v1beta2",
		"nodes metrics.k8s.io/v1beta1", "nodes v1", "pods metrics.k8s.io/v1beta1", "pods v1",
		"rolebindings rbac.authorization.k8s.io/v1", "roles rbac.authorization.k8s.io/v1", "secrets v1", "serviceaccounts v1",
		"services v1",
	}
	if !slices.Equal(listed, filled) {
		t.Errorf("served are %q, want those that somebody fills: %q", listed, filled)
	}
	for _, path := range []string{
		"/api/v1/persistentvolumeclaims", "/api/v1/namespaces/shop/resourcequotas", "/apis/networking.k8s.io/v1/ingresses",
		"/apis/networking.k8s.io/v1/networkpolicies", "/apis/storage.k8s.io/v1/storageclasses",
		// These are the coordinator's own, and not the cloud's.
		"/apis/rbac.authorization.k8s.io/v1/clusterroles", "/apis/rbac.authorization.k8s.io/v1/roles",
	} {
		err := alice.Discovery().RESTClient().Get().AbsPath(path).Do(t.Context()).Error()
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "not shown here; ask the cloud") {
			t.Errorf("%s: %v", path, err)
		}
	}
}
