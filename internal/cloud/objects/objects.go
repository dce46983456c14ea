// Package objects writes whole objects, and says on which node a Pod is to be.
package objects

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
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

// Regarding names the object of an Event. It leaves out the resourceVersion, because the recorder merges equal Events, and with a
// resourceVersion no two would be equal.
func Regarding(obj client.Object, kind schema.GroupVersionKind) *corev1.ObjectReference {
	return &corev1.ObjectReference{
		APIVersion: kind.GroupVersion().String(), Kind: kind.Kind,
		Namespace: obj.GetNamespace(), Name: obj.GetName(), UID: obj.GetUID(),
	}
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
