package appset

import (
	"fmt"
	"maps"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yurtcoordinator/apis/apps/v1beta1"
	"yurtcoordinator/apis/apps/v1beta2"
	"yurtcoordinator/internal/cloud/cloudtest"
	"yurtcoordinator/internal/edge"
)

// TestWhatAWorkloadHadStays: its name, and what selects its Pods.
func TestWhatAWorkloadHadStays(t *testing.T) {
	for name, tt := range map[string]struct {
		had  Had
		want values
	}{
		"new": {Had{}, values{
			"metadata/name": `"web-p1"`, "spec/selector/matchLabels": `{"app":"web","apps.openyurt.io/pool-name":"p1"}`,
		}},
		"of OpenYurt's": {Had{Name: "web-p1-x7k2p", Revision: "web-1", PodRevision: "web-2"}, values{
			"metadata/name": `"web-p1-x7k2p"`, "spec/selector/matchLabels": `{"app":"web","apps.openyurt.io/pool-name":"p1"}`,
			"metadata/labels": `{"apps.openyurt.io/controller-revision-hash":"web-1","apps.openyurt.io/pool-name":"p1",` +
				`"apps.openyurt.io/ref-yurtappset":"web","apps.openyurt.io/yurtappset":"web","team":"a"}`,
			"spec/template/metadata/labels": `{"app":"web","apps.openyurt.io/controller-revision-hash":"web-2",` +
				`"apps.openyurt.io/pool-name":"p1"}`,
		}},
	} {
		had := map[string]Had{"p1": tt.had, "p2": {Name: "other"}}
		got := Render(deployments("web", nil), []*v1beta2.NodePool{nodePool("p1")}, had)[0]
		if got.Err != nil {
			t.Fatal(got.Err)
		}
		for path, want := range tt.want {
			if found := at(got.Object.Object, path); found != want && want != `"`+found+`"` {
				t.Errorf("%s: %s is %s, want %s", name, path, found, want)
			}
		}
	}
}

func TestTheOldestWorkloadOfAPoolGoesOn(t *testing.T) {
	of := func(name, pool string, age int, deleting bool) *Live {
		d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: map[string]string{LabelPoolName: pool},
			CreationTimestamp: metav1.NewTime(now.Add(-time.Duration(age) * time.Hour)),
		}}
		if deleting {
			d.DeletionTimestamp = ptr.To(now)
		}
		return liveOf(d)
	}
	set := deployments("web", nil)
	set.Status.Workloads = []v1beta1.WorkloadStatus{{Pool: "a", Name: "before"}, {Pool: "lost", Name: "web-lost-x"}}
	live := make(map[ref]*Live)
	for _, l := range []*Live{
		of("old", "a", 3, false), of("new", "a", 1, false), of("leaves", "a", 9, true), of("y", "b", 1, false),
		of("x", "b", 1, false), of("last", "c", 1, true), of("nowhere", "", 1, false),
	} {
		live[ref{l.Kind, l.Name}] = l
	}
	live[ref{"StatefulSet", "s"}] = &Live{Kind: "StatefulSet", Name: "s", Pool: "d"}
	got := make(map[string]string)
	for pool, had := range hadBy(set, live) {
		got[pool] = had.Name
	}
	want := map[string]string{"a": "old", "b": "x", "c": "last", "lost": "web-lost-x"}
	if !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// asOpenYurt makes a Deployment as OpenYurt's controller does.
func asOpenYurt(w *world, set *v1beta1.YurtAppSet, pool string, change func(*appsv1.Deployment)) *appsv1.Deployment {
	w.t.Helper()
	template := set.Spec.Workload.WorkloadTemplate.DeploymentTemplate.DeepCopy()
	labels := map[string]string{LabelPoolName: pool, LabelRevision: "web-6f", LabelOpenYurt: set.Name}
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: w.namespace, GenerateName: set.Name + "-" + pool + "-", Labels: with(labels, template.Labels),
			Annotations: with(map[string]string{"apps.openyurt.io/ref-nodepool": pool}, template.Annotations),
			OwnerReferences: []metav1.OwnerReference{
				*metav1.NewControllerRef(set, v1beta1.GroupVersion.WithKind("YurtAppSet")),
			},
		},
		Spec: template.Spec,
	}
	d.Spec.Selector.MatchLabels[LabelPoolName] = pool
	pods := &d.Spec.Template
	pods.Labels = with(pods.Labels, map[string]string{LabelPoolName: pool, LabelRevision: "web-6f"})
	pods.Spec.NodeSelector = with(pods.Spec.NodeSelector, map[string]string{edge.LabelNodePool: pool})
	if change != nil {
		change(d)
	}
	w.must(w.Create(w.t.Context(), d, client.FieldOwner("yurt-manager")))
	return d
}

// TestWorkloadsOfOpenYurtAreTakenOver: none is doubled, none rolled, and what leaves the template later leaves them.
func TestWorkloadsOfOpenYurtAreTakenOver(t *testing.T) {
	w := newWorld(t, "openyurt")
	w.stop()
	a, b := w.pool("a"), w.pool("b")
	set := w.create(deployments("web", nil, a, b))
	theirs := asOpenYurt(w, set, a, nil)
	double := asOpenYurt(w, set, b, nil)
	cloudtest.Eventually(t, "a second later", func() error { // creation times are in seconds
		if now := metav1.Now().Rfc3339Copy(); !double.CreationTimestamp.Before(&now) {
			return fmt.Errorf("it is still %v", now)
		}
		return nil
	})
	asOpenYurt(w, set, b, func(d *appsv1.Deployment) { d.GenerateName, d.Name = "", "web-"+b })
	w.start()
	w.runs(theirs.Name+" 2 web:1", double.Name+" 2 web:1")
	w.says(set, poolFound, dispatched, updated, deleted)
	is := &appsv1.Deployment{}
	cloudtest.Eventually(t, "it is ours", func() error {
		w.must(w.Get(t.Context(), client.ObjectKeyFromObject(theirs), is))
		if is.Labels[LabelYurtAppSet] != set.Name {
			return fmt.Errorf("labels are %v", is.Labels)
		}
		return nil
	})
	if !equality.Semantic.DeepEqual(is.Spec, theirs.Spec) || is.UID != theirs.UID || is.Labels[LabelRevision] != "web-6f" {
		t.Errorf("it is %+v now, was %+v, and its labels are %v", is.Spec, theirs.Spec, is.Labels)
	}
	if found := openYurts(is.ManagedFields); len(found) > 0 {
		t.Errorf("%v still own fields", found)
	}
	w.quiet()
	change(w, set, func(s *v1beta1.YurtAppSet) {
		template := s.Spec.Workload.WorkloadTemplate.DeploymentTemplate
		template.Annotations, template.Spec.Template.Spec.InitContainers = nil, nil
		template.Spec.Template.Spec.Containers[0].Image = "web:2"
	})
	w.runs(theirs.Name+" 2 web:2", double.Name+" 2 web:2")
	w.must(w.Get(t.Context(), client.ObjectKeyFromObject(theirs), is))
	if n := len(is.Spec.Template.Spec.InitContainers); n != 0 || is.Annotations["note"] != "" {
		t.Errorf("it has %d init containers, and annotations %v", n, is.Annotations)
	}
	// Its label says that it is a pool's. Without, it is still the one that the status has.
	change(w, is, func(d *appsv1.Deployment) { delete(d.Labels, LabelPoolName) })
	cloudtest.Eventually(t, "the label comes back", func() error {
		w.must(w.Get(t.Context(), client.ObjectKeyFromObject(theirs), is))
		if is.Labels[LabelPoolName] != a {
			return fmt.Errorf("labels are %v", is.Labels)
		}
		return nil
	})
	w.runs(theirs.Name+" 2 web:2", double.Name+" 2 web:2")
}
