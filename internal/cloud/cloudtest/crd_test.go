package cloudtest_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"yurtcoordinator/apis/apps/v1alpha1"
	"yurtcoordinator/apis/apps/v1beta1"
	"yurtcoordinator/apis/apps/v1beta2"
	"yurtcoordinator/internal/cloud/cloudtest"
)

func nodePool() *v1beta2.NodePool {
	return &v1beta2.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "full"}, Spec: v1beta2.NodePoolSpec{
		Type: v1beta2.Cloud, HostNetwork: true, Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"c": "d"},
		Taints: []corev1.Taint{{Key: "k", Value: "v", Effect: "NoSchedule"}, {Key: "k", Effect: "NoExecute"}},
	}}
}

func yurtAppSet() *v1beta1.YurtAppSet {
	pods := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web:1"}}},
	}
	s := &v1beta1.YurtAppSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "full"}}
	s.Spec = v1beta1.YurtAppSetSpec{
		NodePoolSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"x": "y"}}, Pools: []string{"a", "b"},
		RevisionHistoryLimit: ptr.To[int32](3),
	}
	s.Spec.Workload.WorkloadTemplate.DeploymentTemplate = &v1beta1.DeploymentTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"l": "m"}},
		Spec: appsv1.DeploymentSpec{Template: pods,
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}},
	}
	s.Spec.Workload.WorkloadTweaks = []v1beta1.WorkloadTweak{{Pools: []string{"a"}, Tweaks: v1beta1.Tweaks{
		Replicas: ptr.To[int32](0), ContainerImages: []v1beta1.ContainerImage{{Name: "web", TargetImage: "web:2"}},
		Patches: []v1beta1.Patch{
			{Path: "/spec/paused", Operation: "add", Value: &apiextensionsv1.JSON{Raw: []byte("true")}},
			{Path: "/spec/template/spec/volumes", Operation: "add",
				Value: &apiextensionsv1.JSON{Raw: []byte(`[{"name":"v"}]`)}},
			{Path: "/spec/paused", Operation: "remove"},
		},
	}}}
	return s
}

func yurtCoordinator() *v1alpha1.YurtCoordinator {
	return &v1alpha1.YurtCoordinator{ObjectMeta: metav1.ObjectMeta{Name: "full"},
		Spec: v1alpha1.YurtCoordinatorSpec{Version: "v1.36.3", NodePool: "full"}}
}

// TestRoundTrip: what is written is read, spec and status.
func TestRoundTrip(t *testing.T) {
	c := cloudtest.Client(t, cloudtest.Start(t))
	p, s, y := nodePool(), yurtAppSet(), yurtCoordinator()
	for _, o := range []client.Object{p, s, y} {
		if err := c.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	now := metav1.Now().Rfc3339Copy()
	p.Status = v1beta2.NodePoolStatus{ObservedGeneration: 1, ReadyNodeNum: 2, UnreadyNodeNum: 1, Nodes: []string{"a", "b", "c"}}
	s.Status = v1beta1.YurtAppSetStatus{
		ObservedGeneration: 1, CollisionCount: ptr.To[int32](1), CurrentRevision: "r", ReadyWorkloads: 1, UpdatedWorkloads: 1,
		TotalWorkloads: 2, Workloads: []v1beta1.WorkloadStatus{{Pool: "a", Name: "n", Replicas: 1,
			Message: "m"}, {Pool: "b", Name: "o"}},
		Conditions: []v1beta1.YurtAppSetCondition{{
			Type: v1beta1.AppSetAppReady, Status: "True", ObservedGeneration: 1, LastTransitionTime: now,
			Reason: "R", Message: "m",
		}},
	}
	y.Status = v1alpha1.YurtCoordinatorStatus{
		ObservedGeneration: 1, NodeName: "n", DelegatedNodes: []string{"a"}, OutsidePoolNodes: []string{"b"},
		Conditions: []v1alpha1.YurtCoordinatorCondition{{
			Type: v1alpha1.YurtCoordinatorReady, Status: "False", LastProbeTime: now, LastTransitionTime: now,
			Reason: "R", Message: "m",
		}},
	}
	for _, o := range []client.Object{p, s, y} {
		want, ok := o.DeepCopyObject().(client.Object)
		if !ok {
			t.Fatal("no object")
		}
		if err := c.Status().Update(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
			t.Fatal(err)
		}
		want.SetResourceVersion(o.GetResourceVersion())
		want.SetManagedFields(o.GetManagedFields())
		if !equality.Semantic.DeepEqual(o, want) {
			t.Errorf("%T is read as\n%+v\nwant\n%+v", o, o, want)
		}
	}
	for _, o := range []client.Object{p, s, y} {
		if err := c.Delete(t.Context(), o); err != nil {
			t.Error(err)
		}
	}
}

func TestDefaults(t *testing.T) {
	c := cloudtest.Client(t, cloudtest.Start(t))
	p := &v1beta2.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "defaults"}}
	s := yurtAppSet()
	s.Name, s.Spec.RevisionHistoryLimit = "defaults", nil
	for _, o := range []client.Object{plain(t, p), s} {
		if err := c.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(p), p); err != nil {
		t.Fatal(err)
	}
	if p.Spec.Type != v1beta2.Edge || s.Spec.RevisionHistoryLimit == nil || *s.Spec.RevisionHistoryLimit != 10 {
		t.Errorf("type %q, limit %v", p.Spec.Type, s.Spec.RevisionHistoryLimit)
	}
}

// plain is a NodePool as kubectl sends it, with a spec of nothing.
func plain(t *testing.T, p *v1beta2.NodePool) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{}}}
	u.SetGroupVersionKind(v1beta2.GroupVersion.WithKind("NodePool"))
	u.SetName(p.Name)
	return u
}

const (
	bare   = "kind: NodePool\napiVersion: apps.openyurt.io/v1beta2\nmetadata: {name: %s}\n"
	pools  = "kind: NodePool\napiVersion: apps.openyurt.io/v1beta2\nmetadata: {name: %s}\nspec: "
	coords = "kind: YurtCoordinator\napiVersion: apps.openyurt.io/v1alpha1\nmetadata: {name: %s}\nspec: "
	sets   = "kind: YurtAppSet\napiVersion: apps.openyurt.io/v1beta1\nmetadata: {name: %s, namespace: default}\nspec: "
	// kind of a workload, and what else its spec has
	deployment = "workloadTemplate: {deploymentTemplate: {spec: {}}}"
	stateful   = "workloadTemplate: {statefulSetTemplate: {spec: {}}}"
)

// upgrade is a PoolSettings with these fields of spec.upgrade.
func upgrade(fields string) string {
	return "apiVersion: apps.openyurt.io/v1alpha1\nkind: PoolSettings\nmetadata: {name: %s}\nspec: {pools: [p], upgrade: {" +
		fields + "}}"
}

func tweak(fields string) string {
	return sets + "{workload: {" + deployment + ", workloadTweaks: [{pools: [a], tweaks: {" + fields + "}}]}}"
}

func object(t *testing.T, text, name string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.UnmarshalStrict([]byte(fmt.Sprintf(text, name)), &u.Object); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return u
}

// TestWhatIsRefused: each rule refuses its opposite, with a message that helps, and what is right passes.
func TestWhatIsRefused(t *testing.T) {
	c := client.NewDryRunClient(cloudtest.Client(t, cloudtest.Start(t)))
	long := strings.Repeat("a", 64)
	for _, tt := range []struct{ name, text, object, want string }{
		{"a pool", pools + "{type: Cloud}", "x", ""},
		{"a type that does not exist", pools + "{type: Moon}", "x", `supported values: "Edge", "Cloud"`},
		{"a name that is no label", pools + "{}", long, "at most 63 characters"},
		{"a name that just fits", pools + "{}", long[1:], ""},
		{"the pool's own label", pools + "{labels: {apps.openyurt.io/nodepool: x}}", "x", "set it on the node"},
		{"a taint twice", pools + "{taints: [{key: a, effect: NoSchedule}, {key: a, effect: NoSchedule}]}", "x",
			"Duplicate value"},
		{"a taint with another effect", pools + "{taints: [{key: a, effect: Never}]}", "x",
			"effect is NoSchedule, PreferNoSchedule or"},
		{"a taint without effect", pools + "{taints: [{key: a}]}", "x", "effect: Required value"},
		{"a field that does not exist", pools + "{labells: {}}", "x", `unknown field "spec.labells"`},

		{"a coordinator", coords + "{nodePool: p, version: v1.36.3-rc.1}", "x", ""},
		{"of no pool", coords + "{}", "x", "nodePool: Required value"},
		{"of a pool without a name", coords + "{nodePool: ''}", "x", "at least 1 chars"},
		{"of a pool with too long a name", coords + "{nodePool: " + long + "}", "x", "may not be more than 63"},
		{"of no such version", coords + "{nodePool: p, version: latest}", "x", "should match"},
		{"three coordinators", coords + "{nodePool: p, replicas: 3}", "x", ""},
		{"four coordinators", coords + "{nodePool: p, replicas: 4}", "x", "less than or equal to 3"},
		{"no coordinator", coords + "{nodePool: p, replicas: 0}", "x", "greater than or equal to 1"},
		{"a field of a coordinator that does not exist", coords + "{nodePool: p, pool: q}", "x", `unknown field "spec.pool"`},

		{"an upgrade", upgrade("version: v0.3.0-rc.1, maxUnavailable: 2, paused: true"), "x", ""},
		{"to no release", upgrade("version: latest"), "x", "should match"},
		{"of no node", upgrade("maxUnavailable: 0"), "x", "greater than or equal to 1"},
		{"in a window", upgrade("window: {days: [Monday], start: '02:30', duration: 3h, timeZone: Europe/Berlin}"), "x", ""},
		{"in a window of no time", upgrade("window: {start: '24:00', duration: 3h}"), "x", "should match"},
		{"in a window of no day", upgrade("window: {days: [Mon], start: '02:30', duration: 3h}"), "x", "Unsupported value"},
		{"in a window of a moment", upgrade("window: {start: '02:30', duration: 14m}"), "x", "use 15m to 24h"},
		{"in a window of two days", upgrade("window: {start: '02:30', duration: 25h}"), "x", "use 15m to 24h"},
		{"in a window of no length", upgrade("window: {start: '02:30'}"), "x", "duration: Required value"},
		{"in a window that nobody knows", upgrade("window: {start: '02:30', duration: 3h, timeZone: Local}"), "x", "name a zone"},
		{"a field of an upgrade that does not exist", upgrade("release: v0.3.0"), "x", `unknown field "spec.upgrade.release"`},

		{"a set", sets + "{workload: {" + deployment + "}}", "x", ""},
		{"another set", sets + "{workload: {" + stateful + "}, pools: [a, b]}", "x", ""},
		{"of no kind", sets + "{workload: {workloadTemplate: {}}}", "x",
			"exactly one of deploymentTemplate and statefulSetTemplate"},
		{"of both kinds",
			sets + "{workload: {workloadTemplate: {deploymentTemplate: {spec: {}}, statefulSetTemplate: {spec: {}}}}}",
			"x", "exactly one of deploymentTemplate and statefulSetTemplate"},
		{"a pool twice", sets + "{workload: {" + deployment + "}, pools: [a, a]}", "x", "Duplicate value"},
		{"less than no history", sets + "{workload: {" + deployment + "}, revisionHistoryLimit: -1}", "x",
			"greater than or equal to 0"},
		{"too much history", sets + "{workload: {" + deployment + "}, revisionHistoryLimit: 101}", "x",
			"less than or equal to 100"},
		{"a field of a set that does not exist", sets + "{workload: {" + deployment + "}, pool: a}", "x",
			`unknown field "spec.pool"`},
		{"a tweak", tweak("replicas: 0, containerImages: [{name: a, targetImage: b}]"), "x", ""},
		{"fewer than no replicas", tweak("replicas: -1"), "x", "greater than or equal to 0"},
		{"an image of no container", tweak("containerImages: [{name: '', targetImage: b}]"), "x", "at least 1 chars"},
		{"no image", tweak("containerImages: [{name: a, targetImage: ''}]"), "x", "at least 1 chars"},
		{"a container twice", tweak("containerImages: [{name: a, targetImage: b}, {name: a, targetImage: c}]"),
			"x", "Duplicate value"},
		{"a patch", tweak("patches: [{path: /a/b, operation: replace, value: {any: [1, x]}}]"), "x", ""},
		{"an operation that does not exist", tweak("patches: [{path: /a, operation: move}]"), "x",
			`supported values: "add", "remove", "replace"`},
		{"no path", tweak("patches: [{path: a, operation: remove}]"), "x", "should match"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := c.Create(t.Context(), object(t, tt.text, tt.object), client.FieldValidation(metav1.FieldValidationStrict))
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %q", err, tt.want)
			}
		})
	}
}

func TestWhatCannotBeChanged(t *testing.T) {
	c := cloudtest.Client(t, cloudtest.Start(t))
	for _, tt := range []struct{ name, before, after, want string }{
		{"type", pools + "{type: Edge}", pools + "{type: Cloud}", "type can't be changed"},
		{"type-by-default", pools + "{}", pools + "{type: Cloud}", "type can't be changed"},
		{"host-network", pools + "{hostNetwork: true}", pools + "{hostNetwork: false}", "hostNetwork can't be changed"},
		{"host-network-from-now-on", pools + "{}", pools + "{hostNetwork: true}", "hostNetwork can't be changed"},
		{"host-network-no-longer", pools + "{hostNetwork: true}", pools + "{}", "hostNetwork can't be changed"},
		{"host-network-said-and-not", pools + "{hostNetwork: false}", pools + "{}", ""},
		{"type-without-a-spec", bare, pools + "{type: Cloud}", "type can't be changed"},
		{"host-network-without-a-spec", bare, pools + "{hostNetwork: true}", "hostNetwork can't be changed"},
		{"labels", pools + "{labels: {a: b}}", pools + "{labels: {a: c}}", ""},
		{"pool-of-a-coordinator", coords + "{nodePool: a}", coords + "{nodePool: b}",
			"delete the YurtCoordinator and make another"},
		{"version", coords + "{nodePool: a, version: v1.0.0}", coords + "{nodePool: a, version: v1.0.1}", ""},
		{"kind", sets + "{workload: {" + deployment + "}}", sets + "{workload: {" + stateful + "}}", "make another YurtAppSet"},
		{"pools", sets + "{workload: {" + deployment + "}}", sets + "{workload: {" + deployment + "}, pools: [a]}", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before, after := object(t, tt.before, tt.name), object(t, tt.after, tt.name)
			if err := c.Create(t.Context(), before); err != nil {
				t.Fatal(err)
			}
			after.SetResourceVersion(before.GetResourceVersion())
			err := c.Update(t.Context(), after)
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %q", err, tt.want)
			}
		})
	}
}

func definitions(t *testing.T) map[string]*apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	files, err := filepath.Glob("../../../deploy/charts/yurt-coordinator/files/crds/*.yaml")
	if err != nil || len(files) < 3 {
		t.Fatalf("CRDs are %v, %v", files, err)
	}
	all := make(map[string]*apiextensionsv1.CustomResourceDefinition)
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.UnmarshalStrict(content, crd); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		all[crd.Spec.Names.Kind] = crd
	}
	return all
}

// TestExplain: `kubectl explain` has a word on each field.
func TestExplain(t *testing.T) {
	seen := 0
	var walk func(string, *apiextensionsv1.JSONSchemaProps)
	walk = func(path string, s *apiextensionsv1.JSONSchemaProps) {
		if seen++; s.Description == "" && !strings.HasSuffix(path, "metadata") {
			t.Errorf("%s has no description", path)
		}
		for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
			p := s.Properties[name]
			walk(path+"."+name, &p)
		}
		if s.Items != nil && s.Items.Schema != nil {
			for _, name := range slices.Sorted(maps.Keys(s.Items.Schema.Properties)) {
				p := s.Items.Schema.Properties[name]
				walk(path+"[]."+name, &p)
			}
		}
	}
	for kind, crd := range definitions(t) {
		for i := range crd.Spec.Versions {
			walk(kind, crd.Spec.Versions[i].Schema.OpenAPIV3Schema)
		}
	}
	if seen < 60 {
		t.Errorf("walked over %d fields only", seen)
	}
}

func TestNamesAndColumns(t *testing.T) {
	all := definitions(t)
	for kind, want := range map[string]struct {
		short, columns string
		scope          apiextensionsv1.ResourceScope
		versions       string // the last is stored
	}{
		"NodePool":   {"np", "Type ReadyNodes NotReadyNodes Age", apiextensionsv1.ClusterScoped, "v1beta1 v1beta2"},
		"YurtAppSet": {"yas", "Total Ready Updated Age", apiextensionsv1.NamespaceScoped, "v1beta1"},
		"YurtCoordinator": {
			"yc", "NodePool Node Ready Reason Standbys Delegated Version Age", apiextensionsv1.ClusterScoped, "v1alpha1",
		},
	} {
		crd := all[kind]
		if crd == nil {
			t.Fatalf("there is no CRD of %s", kind)
		}
		names := strings.Fields(want.versions)
		if len(crd.Spec.Versions) != len(names) {
			t.Fatalf("%s has %d versions, want %v", kind, len(crd.Spec.Versions), names)
		}
		for i, v := range crd.Spec.Versions {
			columns := []string{}
			for _, c := range v.AdditionalPrinterColumns {
				columns = append(columns, c.Name)
			}
			if strings.Join(crd.Spec.Names.ShortNames, " ") != want.short || strings.Join(columns, " ") != want.columns ||
				crd.Spec.Scope != want.scope || !slices.Contains(crd.Spec.Names.Categories, "yurt") ||
				v.Subresources == nil || v.Subresources.Status == nil || v.Name != names[i] || !v.Served ||
				v.Storage != (i == len(names)-1) {
				t.Errorf("%s: %v, %s, columns %v, scope %s", kind, crd.Spec.Names, v.Name, columns, crd.Spec.Scope)
			}
		}
	}
}
