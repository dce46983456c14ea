// Package objects writes whole objects, and says on which node a Pod is to be.
package objects

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
)

// Apply makes the API server's object as obj says, by server-side apply, and obj as the API server has it then. It removes fields
// that this owner applied before and no longer applies. If obj has a resourceVersion, Apply fails with a conflict when the
// object has changed since.
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
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, obj); err != nil {
		return fmt.Errorf("read the answer about %s: %w", Describe(obj), err)
	}
	return nil
}

// Subset reports whether a map has all entries of another one. Others may add labels and annotations to our objects.
func Subset(of, all map[string]string) bool {
	for k, v := range of {
		if found, ok := all[k]; !ok || found != v {
			return false
		}
	}
	return true
}

// Remove deletes an object. An object that is already gone is no error.
func Remove(ctx context.Context, c client.Client, obj client.Object, opts ...client.DeleteOption) error {
	if err := client.IgnoreNotFound(c.Delete(ctx, obj, opts...)); err != nil {
		return fmt.Errorf("delete %s: %w", Describe(obj), err)
	}
	return nil
}

// Put makes the API server's object as obj says, whatever it is now. The API server writes nothing if it is so already. Put needs
// the rights to create and to update, but none to read or to patch. The right to patch would let its holder read: a patch can
// copy an object's content into a field where it is invalid, and the API server prints that before it asks admission policies.
// An update reveals nothing of the former content.
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

// Finalize changes an object's finalizers with one of controllerutil's functions. It writes the whole list, and fails with a
// conflict if the object has changed since it was read.
func Finalize(
	ctx context.Context, c client.Client, obj client.Object, change func(client.Object, string) bool, finalizer, owner string,
) error {
	base, ok := obj.DeepCopyObject().(client.Object)
	if !ok {
		return fmt.Errorf("%T has no metadata", obj)
	}
	change(obj, finalizer)
	patch := client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{})
	if err := c.Patch(ctx, obj, patch, client.FieldOwner(owner)); err != nil {
		return fmt.Errorf("finalizers of %s: %w", Describe(base), err)
	}
	return nil
}

// Release takes a finalizer from all objects of a kind. Once a controller is gone, nothing else would, and none could be deleted.
func Release(ctx context.Context, c client.Client, all client.ObjectList, finalizer, owner string) error {
	if err := c.List(ctx, all); err != nil {
		return fmt.Errorf("list %T: %w", all, err)
	}
	var failed []error
	err := meta.EachListItem(all, func(item runtime.Object) error {
		if obj, ok := item.(client.Object); ok && controllerutil.ContainsFinalizer(obj, finalizer) {
			err := Finalize(ctx, c, obj, controllerutil.RemoveFinalizer, finalizer, owner)
			failed = append(failed, client.IgnoreNotFound(err))
		}
		return nil
	})
	return errors.Join(append(failed, err)...)
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
