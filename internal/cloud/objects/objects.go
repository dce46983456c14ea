// Package objects writes whole objects, and reads those that RBAC can't let be read by name.
package objects

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
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

// Peek reads the object with the namespace and name of obj into obj, and reports whether it exists. It needs the right to
// patch, not the right to read. The reason is that RBAC can't limit the right to read to a prefix of names. An admission policy
// can limit writes in that way, but sees no reads. So Peek sends an empty patch as a dry run, which the API server answers with
// the object as it is.
func Peek(ctx context.Context, c client.Client, obj client.Object) (bool, error) {
	err := c.Patch(ctx, obj, client.RawPatch(types.MergePatchType, []byte(`{}`)), client.DryRunAll)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read %s by a patch of nothing: %w", Describe(obj), err)
	}
	return true, nil
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
