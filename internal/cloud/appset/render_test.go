package appset

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"yurtcoordinator/apis/apps/v1beta1"
	"yurtcoordinator/apis/apps/v1beta2"
	"yurtcoordinator/internal/edge"
)

type tweaks = []v1beta1.WorkloadTweak

func podTemplate() corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}},
		Spec: corev1.PodSpec{
			InitContainers: []corev1.Container{{Name: "init", Image: "init:1"}},
			Containers:     []corev1.Container{{Name: "web", Image: "web:1"}, {Name: "side", Image: "side:1"}},
		},
	}
}

// deployments is a YurtAppSet of a Deployment, in these pools.
func deployments(name string, t tweaks, pools ...string) *v1beta1.YurtAppSet {
	s := &v1beta1.YurtAppSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: "u", Generation: 3}}
	s.Spec.Pools, s.Spec.Workload.WorkloadTweaks = pools, t
	s.Spec.Workload.WorkloadTemplate.DeploymentTemplate = &v1beta1.DeploymentTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"team": "a"}, Annotations: map[string]string{"note": "n"}},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To[int32](2), Template: podTemplate(),
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
		},
	}
	return s
}

func statefulSets(name string, t tweaks, pools ...string) *v1beta1.YurtAppSet {
	s := deployments(name, t, pools...)
	s.Spec.Workload.WorkloadTemplate = v1beta1.WorkloadTemplate{StatefulSetTemplate: &v1beta1.StatefulSetTemplateSpec{
		Spec: appsv1.StatefulSetSpec{
			ServiceName: "web", Template: podTemplate(),
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
		},
	}}
	return s
}

func nodePool(name string, pairs ...string) *v1beta2.NodePool {
	p := &v1beta2.NodePool{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}}}
	for _, pair := range pairs {
		k, v, _ := strings.Cut(pair, "=")
		p.Labels[k] = v
	}
	return p
}

func add(path, value string) v1beta1.Patch { return operation(v1beta1.OperationAdd, path, value) }

func operation(op v1beta1.Operation, path, value string) v1beta1.Patch {
	p := v1beta1.Patch{Operation: op, Path: path}
	if value != "" {
		p.Value = &apiextensionsv1.JSON{Raw: []byte(value)}
	}
	return p
}

func patches(p ...v1beta1.Patch) tweaks {
	return tweaks{{Pools: []string{"p1"}, Tweaks: v1beta1.Tweaks{Patches: p}}}
}

// at is what is in an object at a path like spec.replicas or spec.containers.0.name, as JSON.
func at(object any, path string) string {
	for _, step := range strings.Split(path, "/") {
		switch o := object.(type) {
		case map[string]any:
			object = o[step]
		case []any:
			var i int
			if _, err := fmt.Sscan(step, &i); err != nil || i >= len(o) {
				return "no " + path
			}
			object = o[i]
		}
	}
	content, err := json.Marshal(object)
	if err != nil {
		return err.Error()
	}
	return string(content)
}

// rendering is a case of TestRender.
type rendering struct {
	name   string
	tweaks tweaks
	want   values // what is at a path, in pool p1
	err    string
}

type values = map[string]string

const containers = "spec/template/spec/containers"

func image(name, image string) v1beta1.Tweaks {
	return v1beta1.Tweaks{ContainerImages: []v1beta1.ContainerImage{{Name: name, TargetImage: image}}}
}

func withoutPatches() []rendering {
	selected := &metav1.LabelSelector{MatchLabels: map[string]string{"site": "north"}}
	return []rendering{
		{"the template", nil, values{
			"apiVersion": `"apps/v1"`, "kind": `"Deployment"`, "metadata/name": `"web-p1"`, "metadata/namespace": `"ns"`,
			"metadata/annotations": `{"note":"n"}`, "spec/replicas": "2", "status": "null",
			"metadata/labels": `{"apps.openyurt.io/pool-name":"p1","apps.openyurt.io/ref-yurtappset":"web",` +
				`"apps.openyurt.io/yurtappset":"web","team":"a"}`,
			"spec/selector/matchLabels":       `{"app":"web","apps.openyurt.io/pool-name":"p1"}`,
			"spec/template/metadata/labels":   `{"app":"web","apps.openyurt.io/pool-name":"p1"}`,
			"spec/template/spec/nodeSelector": `{"apps.openyurt.io/nodepool":"p1"}`,
			"metadata/ownerReferences": `[{"apiVersion":"apps.openyurt.io/v1beta1","blockOwnerDeletion":true,"controller":true,` +
				`"kind":"YurtAppSet","name":"web","uid":"u"}]`,
		}, ""},
		{"a tweak of another pool", tweaks{{Pools: []string{"p2"}, Tweaks: v1beta1.Tweaks{Replicas: ptr.To[int32](9)}}},
			values{"spec/replicas": "2"}, ""},
		{"no replicas", tweaks{{Pools: []string{"p1"}, Tweaks: v1beta1.Tweaks{Replicas: ptr.To[int32](0)}}},
			values{"spec/replicas": "0"}, ""},
		{"by label", tweaks{{NodePoolSelector: selected, Tweaks: image("web", "web:2")}},
			values{containers + "/0/image": `"web:2"`, containers + "/1/image": `"side:1"`}, ""},
		{"an init container's image", tweaks{{Pools: []string{"p1"}, Tweaks: image("init", "init:2")}},
			values{"spec/template/spec/initContainers/0/image": `"init:2"`}, ""},
		{"the later comes on top", tweaks{
			{Pools: []string{"p1"}, Tweaks: v1beta1.Tweaks{
				Replicas: ptr.To[int32](5), Patches: []v1beta1.Patch{operation("replace", "/spec/replicas", "6")},
			}},
			{Pools: []string{"p1"}, Tweaks: image("web", "web:3")},
		}, values{"spec/replicas": "6", containers + "/0/image": `"web:3"`}, ""},
	}
}

func withPatches() []rendering {
	return []rendering{
		{"patches come after images", tweaks{{Pools: []string{"p1"}, Tweaks: v1beta1.Tweaks{
			ContainerImages: image("web", "web:2").ContainerImages,
			Patches:         []v1beta1.Patch{operation("replace", "/spec/template/spec/containers/0/image", `"web:4"`)},
		}}}, values{containers + "/0/image": `"web:4"`}, ""},
		{"the pool's name", patches(add("/spec/template/spec/volumes",
			`[{"name":"{{nodepool}}-v","secret":{"secretName":"x-{{nodepool}}-{{nodepool}}","defaultMode":256}}]`)),
			values{"spec/template/spec/volumes": `[{"name":"p1-v","secret":{"defaultMode":256,"secretName":"x-p1-p1"}}]`}, ""},
		{"the pool's name, as OpenYurt has it", patches(add("/spec/template/spec/nodeSelector",
			`{"site-{{nodepool-name}}":"a-{{nodepool-name}}-{{nodepool}}"}`)),
			values{"spec/template/spec/nodeSelector": `{"apps.openyurt.io/nodepool":"p1","site-p1":"a-p1-p1"}`}, ""},
		{"remove", patches(operation("remove", "/spec/template/spec/containers/1", "")), values{containers + "/1": `"no ` +
			containers + `/1"`}, ""},
		{"a large number", patches(add("/spec/template/spec/activeDeadlineSeconds", "9007199254740993")),
			values{"spec/template/spec/activeDeadlineSeconds": "9007199254740993"}, ""},
		{"it can't leave its pool", patches(
			operation("replace", "/spec/template/spec/nodeSelector", `{"apps.openyurt.io/nodepool":"p2","disk":"ssd"}`),
			operation("remove", "/spec/selector", ""), operation("replace", "/metadata/name", `"mine"`),
			operation("replace", "/metadata/namespace", `"kube-system"`), operation("remove", "/metadata/ownerReferences", ""),
			operation("remove", "/metadata/labels", ""), operation("remove", "/spec/template/metadata/labels", "")),
			values{
				"spec/template/spec/nodeSelector": `{"apps.openyurt.io/nodepool":"p1","disk":"ssd"}`,
				"metadata/name":                   `"web-p1"`, "metadata/namespace": `"ns"`,
				"metadata/ownerReferences/0/uid": `"u"`,
				"metadata/labels": `{"apps.openyurt.io/pool-name":"p1","apps.openyurt.io/ref-yurtappset":"web",` +
					`"apps.openyurt.io/yurtappset":"web"}`,
			}, ""},
	}
}

func withFaults() []rendering {
	return []rendering{
		{"no such container", tweaks{{Pools: []string{"p1"}, Tweaks: image("nginx", "x")}}, nil,
			`workloadTweaks[0]: containerImages: there is no container "nginx"`},
		{"no such path", patches(add("/spec/replicas", "1"), operation("remove", "/spec/paused", "")), nil,
			"workloadTweaks[0]: patches[1] (remove /spec/paused): "},
		{"no value", patches(add("/spec/replicas", "")), nil, "patches[0] (add /spec/replicas): value is missing"},
		{"another type", patches(add("/spec/replicas", `"many"`)), nil, "not a valid Deployment: json: cannot unmarshal string"},
		{"a field that does not exist", patches(add("/spec/replica", "1")), nil, `unknown field "replica"`},
		{"a selector that can't be used", tweaks{{NodePoolSelector: &metav1.LabelSelector{
			MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Like"}},
		}}}, nil, "workloadTweaks[0]: nodepoolSelector: "},
	}
}

func TestRender(t *testing.T) {
	for _, tt := range slices.Concat(withoutPatches(), withPatches(), withFaults()) {
		t.Run(tt.name, func(t *testing.T) {
			set := deployments("web", tt.tweaks)
			before := set.DeepCopy()
			got := Render(set, []*v1beta2.NodePool{nodePool("p1", "site=north")}, nil)[0]
			if tt.err != "" {
				if got.Err == nil || !strings.Contains(got.Err.Error(), tt.err) || got.Object != nil || got.Hash != "" {
					t.Errorf("error %v, want %q", got.Err, tt.err)
				}
				return
			}
			if got.Err != nil {
				t.Fatal(got.Err)
			}
			notes := got.Object.GetAnnotations()
			if notes[AnnotationPods] != got.PodsHash || got.PodsHash == "" {
				t.Errorf("the hash of its Pods is %q, noted is %q", got.PodsHash, notes[AnnotationPods])
			}
			delete(notes, AnnotationPods)
			got.Object.SetAnnotations(notes)
			for path, want := range tt.want {
				if found := at(got.Object.Object, path); found != want && want != `"`+found+`"` {
					t.Errorf("%s is %s, want %s", path, found, want)
				}
			}
			if at(map[string]any{"a": set}, "a") != at(map[string]any{"a": before}, "a") {
				t.Error("it changes what it is given")
			}
		})
	}
}

func TestABadPatchIsItsPoolsOnly(t *testing.T) {
	set := deployments("web", patches(operation("remove", "/nothing", "")), "p1", "p2")
	got := Render(set, []*v1beta2.NodePool{nodePool("p1"), nodePool("p2")}, nil)
	if got[0].Err == nil || got[1].Err != nil || got[1].Object == nil {
		t.Errorf("%v, %v", got[0].Err, got[1].Err)
	}
}

func TestRenderStatefulSet(t *testing.T) {
	set := statefulSets("db", patches(add("/spec/podManagementPolicy", `"Parallel"`)))
	got := Render(set, []*v1beta2.NodePool{nodePool("p1")}, nil)[0]
	if got.Err != nil || got.Kind != "StatefulSet" || at(got.Object.Object, "kind") != `"StatefulSet"` ||
		at(got.Object.Object, "spec/podManagementPolicy") != `"Parallel"` ||
		at(got.Object.Object, "spec/replicas") != "null" {
		t.Errorf("%v, %v", got.Object, got.Err)
	}
	set.Spec.Workload.WorkloadTemplate = v1beta1.WorkloadTemplate{}
	if got := Render(set, []*v1beta2.NodePool{nodePool("p1")}, nil)[0]; got.Err == nil {
		t.Error("it makes something of no template")
	}
}

func TestHash(t *testing.T) {
	one := func(set *v1beta1.YurtAppSet) string {
		return Render(set, []*v1beta2.NodePool{nodePool("p1")}, nil)[0].Hash
	}
	a := one(deployments("web", nil))
	if a == "" || a != one(deployments("web", nil)) {
		t.Error("it is not stable")
	}
	if a == one(deployments("web", patches(add("/spec/paused", "true")))) {
		t.Error("what differs has the same")
	}
	if a != one(deployments("web", tweaks{{Pools: []string{"p2"}, Tweaks: v1beta1.Tweaks{Replicas: ptr.To[int32](7)}}})) {
		t.Error("another pool's tweak changes it")
	}
}

func TestSelect(t *testing.T) {
	pools := []v1beta2.NodePool{*nodePool("c", "site=north"), *nodePool("a", "site=south"), *nodePool("b")}
	north := &metav1.LabelSelector{MatchLabels: map[string]string{"site": "north"}}
	for _, tt := range []struct {
		name          string
		selector      *metav1.LabelSelector
		pools         []string
		want, missing string
	}{
		{"none", nil, nil, "", ""},
		{"every pool", &metav1.LabelSelector{}, nil, "a b c", ""},
		{"by label", north, nil, "c", ""},
		{"by name", nil, []string{"b", "a"}, "a b", ""},
		{"by both", north, []string{"b", "c"}, "b c", ""},
		{"one that does not exist", nil, []string{"z", "b", "x"}, "b", "x z"},
	} {
		got, err := Select(&v1beta1.YurtAppSetSpec{NodePoolSelector: tt.selector, Pools: tt.pools}, pools)
		names := []string{}
		for _, p := range got.Pools {
			names = append(names, p.Name)
		}
		if err != nil || strings.Join(names, " ") != tt.want || strings.Join(got.Missing, " ") != tt.missing {
			t.Errorf("%s: %v, missing %v, %v", tt.name, names, got.Missing, err)
		}
	}
	bad := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Like"}}}
	if _, err := Select(&v1beta1.YurtAppSetSpec{NodePoolSelector: bad}, pools); err == nil {
		t.Error("a selector that can't be used is used")
	}
}

func TestNamesFit(t *testing.T) {
	long := strings.Repeat("a", 40)
	seen := map[string]string{}
	for _, name := range []string{"web-p1", "web-p.1", "web-p-1", long + "-" + long, long + "-" + long + "b",
		strings.Repeat("a.", 60)} {
		got := fit(name, nameMax)
		if len(got) > nameMax || strings.Contains(got, ".") || strings.HasSuffix(got, "-") {
			t.Errorf("%s becomes %s", name, got)
		}
		if got == name != (len(name) <= nameMax && !strings.Contains(name, ".")) {
			t.Errorf("%s becomes %s: want it kept where it fits", name, got)
		}
		if other, ok := seen[got]; ok {
			t.Errorf("%s and %s both become %s", name, other, got)
		}
		seen[got] = name
	}
	if got := labelValue("a.b"); got != "a.b" {
		t.Errorf("the label is %s", got)
	}
	if got := labelValue(long + long); len(got) > 63 {
		t.Errorf("the label is %s", got)
	}
	if len(slices.Collect(maps.Keys(seen))) != 6 {
		t.Error("names fall together")
	}
}

// BenchmarkRender is what a thousand pools cost, each with a tweak of its own as the coordinators have.
func BenchmarkRender(b *testing.B) {
	const n = 1000
	set := deployments(edge.AppCoordinator, nil)
	set.Spec.NodePoolSelector = &metav1.LabelSelector{}
	var pools []*v1beta2.NodePool
	for i := range n {
		name := fmt.Sprintf("pool-%04d", i)
		pools = append(pools, nodePool(name))
		set.Spec.Workload.WorkloadTweaks = append(set.Spec.Workload.WorkloadTweaks, v1beta1.WorkloadTweak{
			Pools: []string{name}, Tweaks: v1beta1.Tweaks{
				ContainerImages: []v1beta1.ContainerImage{{Name: "web", TargetImage: "web:2"}},
				Patches: []v1beta1.Patch{add("/spec/template/spec/volumes",
					`[{"name":"v","secret":{"secretName":"{{nodepool}}"}}]`)},
			},
		})
	}
	b.ReportAllocs()
	for b.Loop() {
		for _, w := range Render(set, pools, nil) {
			if w.Err != nil {
				b.Fatal(w.Err)
			}
		}
	}
}
