package coordinator

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yurtcoordinator/apis/apps/v1alpha1"
	"yurtcoordinator/internal/cloud/cloudtest"
	"yurtcoordinator/internal/edge"
)

// TestAssign: which of the Pods with a coordinator's labels is the coordinator.
func TestAssign(t *testing.T) {
	owned := func(version, kind, uid string, controls bool) []metav1.OwnerReference {
		return []metav1.OwnerReference{{
			APIVersion: version, Kind: kind, Name: "o", UID: types.UID(uid), Controller: ptr.To(controls),
		}}
	}
	pod := func(name string, by []metav1.OwnerReference) corev1.Pod {
		return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: by}}
	}
	mirror := func(name string, by []metav1.OwnerReference) corev1.Pod {
		p := pod(name, by)
		p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: ""}
		return p
	}
	ours := owned("apps/v1", "ReplicaSet", "ours", true)
	for _, c := range []struct {
		name             string
		pods             []corev1.Pod
		current, foreign string
		made             int
	}{
		{"ours", []corev1.Pod{pod("p", ours)}, "p", "", 1},
		{"a node's mirror Pod, newer by name", []corev1.Pod{
			pod("p", ours), mirror("z", owned("v1", "Node", "n", true)),
		}, "p", "z", 1},
		{"a mirror Pod that names our ReplicaSet", []corev1.Pod{mirror("m", ours)}, "", "m", 0},
		{"nobody's", []corev1.Pod{pod("p", nil)}, "", "p", 0},
		{"owned, not controlled", []corev1.Pod{pod("p", owned("apps/v1", "ReplicaSet", "ours", false))}, "", "p", 0},
		{"another kind, called so, too", []corev1.Pod{pod("p", owned("example.com/v1", "ReplicaSet", "ours", true))}, "", "p", 0},
		{"a StatefulSet's", []corev1.Pod{pod("p", owned("apps/v1", "StatefulSet", "ours", true))}, "", "p", 0},
	} {
		got := assign(c.pods)
		name := ""
		if got.current[0] != nil {
			name = got.current[0].Name
		}
		if name != c.current || strings.Join(got.foreign, " ") != c.foreign || len(got.made) != c.made {
			t.Errorf("%s: the coordinator is %q, foreign %q, made %d; want %q, %q, %d",
				c.name, name, got.foreign, len(got.made), c.current, c.foreign, c.made)
		}
	}
}

// TestForgedCoordinator: a Pod that bears the labels moves nothing, holds nothing up, and is told of.
func TestForgedCoordinator(t *testing.T) {
	w := newWorld(t)
	w.pool("p", 3)
	w.coordinator("c", "p")
	w.turns(6)
	w.complete("c", "p", "p-n1", "192.0.2.1")
	w.clock.SetTime(w.clock.Now().Add(time.Hour)) // so that it is the newest
	w.create(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: edge.NamespaceSystem, Name: "forged-p-n3",
			Labels:      map[string]string{edge.LabelApp: edge.AppCoordinator, edge.LabelNodePool: "p"},
			Annotations: map[string]string{corev1.MirrorPodAnnotationKey: "x"},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "v1", Kind: "Node", Name: "p-n3", UID: "n", Controller: ptr.To(true),
			}},
		},
		Spec: corev1.PodSpec{NodeName: "p-n3"},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, HostIP: "192.0.2.3", Conditions: []corev1.PodCondition{
			{Type: corev1.PodReady, Status: corev1.ConditionTrue},
		}},
	})
	w.events = nil
	w.turns(3)
	if got := w.status("c"); got != allReady+"p-n1" {
		t.Errorf("status: %s", got)
	}
	var hint corev1.ConfigMap
	w.get(edge.NamespaceSystem, edge.PoolName("p").DiscoveryConfigMap(), &hint)
	if hint.Data["server"] != "https://192.0.2.1:10270" {
		t.Errorf("hubs are told %s", hint.Data["server"])
	}
	told := slices.DeleteFunc(slices.Clone(w.events), func(e string) bool { return !strings.Contains(e, ReasonForeignPod) })
	if len(told) != 1 || !strings.HasPrefix(told[0], "Warning ForeignPod") || !strings.Contains(told[0], "forged-p-n3") {
		t.Errorf("told %q", told)
	}
	w.measure("foreign_pods", `{pool="p"} 1`)

	// It may stay for ever: the node that runs it never confirms a deletion. The YurtCoordinator goes nevertheless.
	w.delete(&v1alpha1.YurtCoordinator{ObjectMeta: metav1.ObjectMeta{Name: "c"}})
	w.turns(6)
	if got := w.status("c"); got != "gone" {
		t.Errorf("status: %s", got)
	}
}

// TestForgedByANode: what Kubernetes lets a kubelet create, of Pods with a coordinator's labels, deceives nobody.
func TestForgedByANode(t *testing.T) {
	k := newCluster(t, cloudtest.Flag("authorization-mode", "Node", "RBAC"),
		cloudtest.Flag("enable-admission-plugins", "NodeRestriction"))
	k.makePool("forged", 3)
	genuine := k.runPod("forged", "one", 1)
	k.sign("forged")
	k.eventually("forged", allReady+"forged-n1")

	thief := cloudtest.Client(t, cloudtest.As(k.cfg, "system:node:forged-n3", "system:nodes", "system:authenticated"))
	var self corev1.Node
	k.is("", "forged-n3", &self)
	mirror := func(name string, by metav1.OwnerReference) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: edge.NamespaceSystem, Name: name, Labels: genuine.Labels,
				Annotations:     map[string]string{corev1.MirrorPodAnnotationKey: "x"},
				OwnerReferences: []metav1.OwnerReference{by},
			},
			Spec: corev1.PodSpec{NodeName: self.Name, Containers: []corev1.Container{{Name: "c", Image: "c"}}},
		}
	}
	asSet := mirror("as-a-set", genuine.OwnerReferences[0])
	if err := thief.Create(t.Context(), asSet); !apierrors.IsForbidden(err) {
		t.Errorf("a node makes a Pod of a ReplicaSet: %v", err)
	}
	asNode := mirror("z-forged", metav1.OwnerReference{
		APIVersion: "v1", Kind: "Node", Name: self.Name, UID: self.UID, Controller: ptr.To(true),
	})
	k.must(thief.Create(t.Context(), asNode)) // so far Kubernetes lets it
	asNode.Status.Phase, asNode.Status.HostIP = corev1.PodRunning, "192.0.2.3"
	asNode.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	k.must(thief.Status().Update(t.Context(), asNode))
	cloudtest.Eventually(t, "Event about the Pod", func() error {
		var all eventsv1.EventList
		k.must(k.c.List(t.Context(), &all, client.InNamespace(metav1.NamespaceDefault)))
		for _, e := range all.Items {
			if e.Reason == ReasonForeignPod && strings.Contains(e.Note, "z-forged") {
				return nil
			}
		}
		return fmt.Errorf("%d Events, none of them", len(all.Items))
	})
	k.eventually("forged", allReady+"forged-n1")
	var hint corev1.ConfigMap
	k.is(edge.NamespaceSystem, edge.PoolName("forged").DiscoveryConfigMap(), &hint)
	if hint.Data["server"] != "https://192.0.2.1:10270" {
		t.Errorf("hubs are told %s", hint.Data["server"])
	}

	k.must(k.c.Delete(t.Context(), &v1alpha1.YurtCoordinator{ObjectMeta: metav1.ObjectMeta{Name: "forged"}}))
	k.must(k.c.Delete(t.Context(), genuine, client.GracePeriodSeconds(0)))
	cloudtest.Eventually(t, "YurtCoordinator gone", func() error {
		if k.is("", "forged", &v1alpha1.YurtCoordinator{}) {
			return errors.New("it is there")
		}
		return nil
	})
}

// TestCachedPods: the cache has coordinators' Pods and those that upgrade hubs, which package upgrades waits for.
func TestCachedPods(t *testing.T) {
	for o, by := range Cached() {
		if _, ok := o.(*corev1.Pod); !ok {
			continue
		}
		selects := by.Namespaces[edge.NamespaceSystem].LabelSelector
		for app, want := range map[string]bool{edge.AppCoordinator: true, edge.AppUpgrader: true, "web": false} {
			if selects.Matches(labels.Set{edge.LabelApp: app}) != want {
				t.Errorf("%s: want %t", app, want)
			}
		}
	}
}
