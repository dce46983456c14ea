package charts

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/openapi"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"yurtcoordinator/apis/apps/v1beta2"
	"yurtcoordinator/internal/cloud/cloudtest"
)

// cluster is a real API server of its own, without anything of ours.
type cluster struct {
	*testing.T
	access     *rest.Config
	client     client.Client
	kubeconfig string
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	// Not the server that the other tests share, which has our CRDs.
	c := &cluster{T: t, access: cloudtest.Start(t, cloudtest.WithoutCRDs())}
	c.client = cloudtest.Client(t, c.access)
	config := clientcmdapi.NewConfig()
	config.Clusters["it"] = &clientcmdapi.Cluster{Server: c.access.Host, CertificateAuthorityData: c.access.CAData}
	config.AuthInfos["admin"] = &clientcmdapi.AuthInfo{
		ClientCertificateData: c.access.CertData, ClientKeyData: c.access.KeyData,
	}
	config.Contexts["it"] = &clientcmdapi.Context{Cluster: "it", AuthInfo: "admin"}
	config.CurrentContext = "it"
	c.kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, c.kubeconfig); err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *cluster) helm(args ...string) string {
	c.Helper()
	out, err := helm(c.T, append(args, "--kubeconfig", c.kubeconfig, "--namespace", "kube-system")...)
	if err != nil {
		c.Fatalf("helm %s: %v", args[0], err)
	}
	return out
}

func (c *cluster) kubectl(args ...string) (string, error) {
	args = append([]string{"--kubeconfig", c.kubeconfig, "--cache-dir", c.kubeconfig + ".cache"}, args...)
	cmd := exec.CommandContext(c.Context(), filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), "kubectl"), args...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("kubectl %v: %w: %s", args, err, out)
	}
	return string(out), err
}

// settled waits until the server has made what it makes by itself.
func (c *cluster) settled() {
	c.Helper()
	for _, name := range []string{"kube-system", "kube-public", "kube-node-lease"} { // made after the server is ready
		cloudtest.Eventually(c.T, "the namespace "+name, func() error {
			ns := &unstructured.Unstructured{}
			ns.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: "Namespace"})
			return c.client.Get(c.Context(), client.ObjectKey{Name: name}, ns)
		})
	}
	cloudtest.Eventually(c.T, "the API server's own Service", func() error { // made later still
		for _, name := range []string{"services default/kubernetes", "endpoints default/kubernetes"} {
			if _, there := c.objects()[name]; !there {
				return errors.New(name + " is not there")
			}
		}
		return nil
	})
}

// passing are the kinds of which a server makes and removes objects by itself, or that are none.
var passing = []string{"events", "leases", "componentstatuses"}

// objects are all of the cluster, with the UID of each.
func (c *cluster) objects() map[string]string {
	c.Helper()
	found, err := discovery.NewDiscoveryClientForConfigOrDie(c.access).ServerPreferredResources()
	if err != nil {
		c.Fatal(err)
	}
	access := rest.CopyConfig(c.access)
	access.WarningHandler = rest.NoWarnings{} // of what is deprecated, we read nothing but names
	reader := metadata.NewForConfigOrDie(access)
	all := map[string]string{}
	for _, group := range found {
		version, err := schema.ParseGroupVersion(group.GroupVersion)
		if err != nil {
			c.Fatal(err)
		}
		for _, r := range group.APIResources {
			if !slices.Contains(r.Verbs, "list") || slices.Contains(passing, r.Name) {
				continue
			}
			list, err := reader.Resource(version.WithResource(r.Name)).List(c.Context(), metav1.ListOptions{})
			if err != nil {
				c.Fatalf("%s: %v", r.Name, err)
			}
			for _, o := range list.Items {
				all[strings.ReplaceAll(fmt.Sprintf("%s %s/%s", r.Name, o.Namespace, o.Name), " /", " ")] = string(o.UID)
			}
		}
	}
	return all
}

// new are the objects that were not there before.
func (c *cluster) new(before map[string]string) []string {
	now := c.objects()
	maps.DeleteFunc(now, func(name, _ string) bool { return before[name] != "" })
	return slices.Sorted(maps.Keys(now))
}

var ourCRDs = []string{
	"customresourcedefinitions nodepools.apps.openyurt.io", "customresourcedefinitions poolsettings.apps.openyurt.io",
	"customresourcedefinitions yurtappsets.apps.openyurt.io", "customresourcedefinitions yurtcoordinators.apps.openyurt.io",
}

// left expects that nothing new is there but our CRDs, the namespace of keys and one NodePool, which stay the same all the time.
// (A server keeps an APIService for each version of a group that it has.)
func (c *cluster) left(when string, before, same map[string]string) {
	c.Helper()
	var left []string
	now := c.objects()
	for _, name := range c.new(before) {
		if !strings.HasPrefix(name, "apiservices ") {
			left = append(left, name)
		}
	}
	want := append(slices.Clone(ourCRDs), "namespaces yurt-coordinator-system", "nodepools hangzhou")
	if !slices.Equal(left, want) {
		c.Errorf("%s, there is %q, want %q", when, left, want)
	}
	for _, name := range want {
		if now[name] != same[name] {
			c.Errorf("%s, %s is another one", when, name)
		}
	}
}

// cleansUp expects the release to have the Job that cleans up, and `helm template` not to: whoever applies its output would
// clean up when installing.
func cleansUp(c *cluster) {
	c.Helper()
	job := &batchv1.Job{}
	for _, doc := range documents(c.T, c.helm("get", "hooks", chart)) {
		if parse(c.T, doc).GetKind() == "Job" {
			mustAccept(c.T, "its hook", yaml.UnmarshalStrict([]byte(doc), job))
		}
	}
	pod := job.Spec.Template.Spec
	if job.Name != "coordinator-controller-clean-up" || job.Annotations["helm.sh/hook"] != "pre-delete" ||
		len(pod.Containers) != 1 || !slices.Contains(pod.Containers[0].Args, "--clean-up") ||
		!strings.HasPrefix(pod.Containers[0].Image, "registry.example.org/edge/coordinator-controller:") ||
		pod.ServiceAccountName != "coordinator-controller" || pod.Affinity == nil {
		c.Errorf("its hook is %+v", job)
	}
	job.ResourceVersion = ""
	mustAccept(c.T, "the API server takes it", c.client.Create(c.Context(), job, client.DryRunAll))
	out, err := template(c.T, required...)
	if err != nil || strings.Contains(out, "clean-up") {
		c.Errorf("helm template has it, too, or fails: %v", err)
	}
}

// tests expects the release to have what `helm test` runs, with an account that can read one Lease and nothing else, and
// `helm template` not to.
func tests(c *cluster) {
	c.Helper()
	pod, role, kinds := &corev1.Pod{}, &rbacv1.Role{}, map[string]int{}
	for _, doc := range documents(c.T, c.helm("get", "hooks", chart)) {
		o := parse(c.T, doc)
		if o.GetAnnotations()["helm.sh/hook"] != "test" {
			continue
		}
		kinds[o.GetKind()]++
		switch o.GetKind() {
		case "Pod":
			*pod = as[corev1.Pod](c.T, o)
		case "Role":
			*role = as[rbacv1.Role](c.T, o)
		}
		mustAccept(c.T, "the API server takes "+o.GetKind(), c.client.Create(c.Context(), o, client.DryRunAll))
	}
	want := []rbacv1.PolicyRule{{
		APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"},
		ResourceNames: []string{"coordinator-controller"}, Verbs: []string{"get"},
	}}
	if len(kinds) != 4 || kinds["Pod"] != 1 || kinds["RoleBinding"] != 1 || kinds["ServiceAccount"] != 1 ||
		!reflect.DeepEqual(role.Rules, want) || pod.Spec.ServiceAccountName != "coordinator-controller-test" ||
		len(pod.Spec.Containers) != 1 || !slices.Contains(pod.Spec.Containers[0].Args, "--check") {
		c.Errorf("it tests with %v, rights %+v, %+v", kinds, role.Rules, pod.Spec)
	}
	out, err := template(c.T, required...)
	if err != nil || strings.Contains(out, "coordinator-controller-test") {
		c.Errorf("helm template has it, too, or fails: %v", err)
	}
}

// Helm itself installs, upgrades and uninstalls the chart, as docs/install.md says.
func TestHelm(t *testing.T) {
	c := newCluster(t)
	c.settled()
	before := c.objects()
	const registry = "image.registry=registry.example.org/edge"
	c.helm("install", chart, chart, "--set", registry)
	d := &appsv1.Deployment{}
	d.Namespace, d.Name = "kube-system", "coordinator-controller"
	get := func(o client.Object) {
		t.Helper()
		if err := c.client.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
			t.Fatal(err)
		}
	}
	get(d)
	if image := d.Spec.Template.Spec.Containers[0].Image; !strings.HasPrefix(image, "registry.example.org/edge/") {
		t.Errorf("it runs %s", image)
	}
	explained(c)
	pool := &v1beta2.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "hangzhou"}}
	create(t, c.client, pool)
	installed := c.objects()

	c.helm("upgrade", chart, chart, "--set", registry, "--set", "controller.replicas=1,policies.nodePoolDeletion=false")
	get(d)
	if *d.Spec.Replicas != 1 {
		t.Errorf("upgraded, it has %d replicas", *d.Spec.Replicas)
	}
	upgraded := c.objects()
	for name, uid := range installed {
		gone := upgraded[name] != uid
		if expected := strings.Contains(name, "nodepool-deletion"); gone != expected {
			t.Errorf("upgraded: %s is gone or another one: %v", name, gone)
		}
	}
	cleansUp(c)
	tests(c)
	c.helm("uninstall", chart, "--no-hooks") // nobody runs Jobs here
	c.left("uninstalled", before, installed)

	c.helm("install", chart, chart, "--set", registry+",controller.cleanUp=false") // over what was left
	get(d)
	c.helm("uninstall", chart)
	c.left("installed again and uninstalled", before, installed)

	_, err := c.kubectl("delete", "crd", "poolsettings.apps.openyurt.io",
		"yurtcoordinators.apps.openyurt.io", "yurtappsets.apps.openyurt.io",
		"nodepools.apps.openyurt.io")
	mustAccept(t, "the CRDs' deletion", err)
	_, err = c.kubectl("delete", "namespace", "yurt-coordinator-system", "--wait=false")
	mustAccept(t, "the namespace's deletion", err)
	_, err = c.kubectl("replace", "--raw", "/api/v1/namespaces/yurt-coordinator-system/finalize", "-f", finalized(t))
	mustAccept(t, "its end, as its controller brings it about", err)
	cloudtest.Eventually(t, "nothing is left", func() error {
		if left := c.new(before); len(left) > 0 {
			return fmt.Errorf("left: %q", left)
		}
		return nil
	})
}

// explained expects that kubectl explain has something to say of each kind of ours and of each field of it. It asks for the kinds
// by kubectl, and looks for the fields in the server's document that kubectl reads.
func explained(c *cluster) {
	c.Helper()
	openAPI := discovery.NewDiscoveryClientForConfigOrDie(c.access).OpenAPIV3()
	fields := 0
	for _, s := range verbatim(c.T) {
		if s.object.GetKind() != "CustomResourceDefinition" {
			continue
		}
		crd := as[apiextensionsv1.CustomResourceDefinition](c.T, s.object)
		for _, v := range crd.Spec.Versions {
			of := schema.GroupVersionKind{Group: crd.Spec.Group, Version: v.Name, Kind: crd.Spec.Names.Kind}
			var out string
			cloudtest.Eventually(c.T, "the server describes "+of.String(), func() (err error) {
				out, err = c.kubectl("explain", crd.Spec.Names.Singular, "--api-version", of.GroupVersion().String())
				return err
			})
			silent := strings.Contains(out, "<empty>") || strings.Contains(out, "<no description>")
			if silent || !strings.Contains(out, "FIELDS:") {
				c.Errorf("kubectl explain %s:\n%s", of, out)
			}
			fields += described(c.T, published(c.T, openAPI, of), of.Kind)
		}
	}
	if fields < 50 {
		c.Errorf("the server tells of %d fields", fields)
	}
}

// published is the schema of a kind in the server's OpenAPI document.
func published(t *testing.T, openAPI openapi.Client, of schema.GroupVersionKind) map[string]any {
	t.Helper()
	all, err := openAPI.Paths()
	mustAccept(t, "the list of documents", err)
	at := all["apis/"+of.GroupVersion().String()]
	if at == nil {
		t.Fatalf("there is no document of %s", of.GroupVersion())
	}
	content, err := at.Schema(runtime.ContentTypeJSON)
	mustAccept(t, "the document of "+of.GroupVersion().String(), err)
	var document struct {
		Components struct{ Schemas map[string]map[string]any }
	}
	mustAccept(t, "its content", json.Unmarshal(content, &document))
	want := []any{map[string]any{"group": of.Group, "version": of.Version, "kind": of.Kind}}
	for _, s := range document.Components.Schemas {
		if reflect.DeepEqual(s["x-kubernetes-group-version-kind"], want) {
			return s
		}
	}
	t.Fatalf("%s is not in its document", of)
	return nil
}

// described returns how many fields an object's schema has, with those of the objects in it, and fails for one without a
// description.
func described(t *testing.T, s map[string]any, path string) (fields int) {
	t.Helper()
	if items, ok := s["items"].(map[string]any); ok {
		return described(t, items, path)
	}
	properties, _ := s["properties"].(map[string]any)
	for name, p := range properties {
		field := p.(map[string]any)
		if text, _ := field["description"].(string); text == "" {
			t.Errorf("%s.%s has no description", path, name)
		}
		fields += 1 + described(t, field, path+"."+name)
	}
	return fields
}

// finalized is a file with the namespace of keys as the controller of namespaces writes it at its end.
func finalized(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "namespace.json")
	content := []byte(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"yurt-coordinator-system"},"spec":{}}`)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
