// Package objects writes whole objects, and says on which node a Pod is to be.
package objects

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yurtcoordinator/internal/edge"
)

// Apply makes the API server's object as obj says, by server-side apply. It removes fields that this owner applied before and
// no longer applies. If obj has a resourceVersion, Apply fails with a conflict when the object has changed since.
func Apply(ctx context.Context, c client.Client, obj client.Object, owner string) error {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return fmt.Errorf("encode %s: %w", Describe(obj), err)
	}
	u := &unstructured.Unstructured{Object: content}
	unstructured.RemoveNestedField(u.Object, "status")
	unstructured.RemoveNestedField(u.Object, "metadata", "creationTimestamp")
	as := client.ApplyConfigurationFromUnstructured(u)
	if err := c.Apply(ctx, as, client.ForceOwnership, client.FieldOwner(owner)); err != nil {
		return fmt.Errorf("apply %s: %w", Describe(obj), err)
	}
	return nil
}

// Remove deletes an object. An object that is already gone is no error.
func Remove(ctx context.Context, c client.Client, obj client.Object, opts ...client.DeleteOption) error {
	if err := client.IgnoreNotFound(c.Delete(ctx, obj, opts...)); err != nil {
		return fmt.Errorf("delete %s: %w", Describe(obj), err)
	}
	return nil
}

// Put makes the API server's object as obj says, whatever it is now. The API server writes nothing if it is so already. Put needs
// the rights to create and to update. It needs no right to read or to patch. A patch can copy what is in an object into another
// field, and the API server prints the content of invalid fields before it asks admission policies. An update says nothing of
// what was there.
func Put(ctx context.Context, c client.Client, obj client.Object, owner string) error {
	err := c.Update(ctx, obj, client.FieldOwner(owner))
	if apierrors.IsNotFound(err) {
		err = c.Create(ctx, obj, client.FieldOwner(owner))
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", Describe(obj), err)
	}
	return nil
}

// Pin has the scheduler put a Pod on a node of a pool, and on no other. An admission policy can hold whoever makes the Pod to the
// pools' nodes by its nodeSelector. It can't do so by a nodeName.
func Pin(spec *corev1.PodSpec, pool edge.PoolName, node edge.NodeName) {
	spec.NodeSelector = map[string]string{edge.LabelNodePool: string(pool)}
	spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchFields: []corev1.NodeSelectorRequirement{{
				Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{string(node)},
			}},
		}}},
	}}
}

// PinnedTo returns the node for which Pin has made a Pod; empty if it has not.
func PinnedTo(p *corev1.Pod) edge.NodeName {
	if p.Spec.Affinity == nil || p.Spec.Affinity.NodeAffinity == nil {
		return ""
	}
	required := p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	if required == nil || len(required.NodeSelectorTerms) != 1 || len(required.NodeSelectorTerms[0].MatchFields) != 1 {
		return ""
	}
	if values := required.NodeSelectorTerms[0].MatchFields[0].Values; len(values) == 1 {
		return edge.NodeName(values[0])
	}
	return ""
}

// Describe returns an object's kind and name.
func Describe(obj client.Object) string {
	kind := obj.GetObjectKind().GroupVersionKind().Kind
	if kind == "" {
		kind = fmt.Sprintf("%T", obj)
	}
	if obj.GetNamespace() == "" {
		return kind + " " + obj.GetName()
	}
	return kind + " " + obj.GetNamespace() + "/" + obj.GetName()
}
