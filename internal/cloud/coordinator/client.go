package coordinator

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yurtcoordinator/internal/edge"
)

// apply makes the API server's object as obj says, and removes fields that were applied before and no longer are. If
// obj has a resourceVersion, apply fails when the object has changed since.
func (r *Reconciler) apply(ctx context.Context, obj client.Object) error {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return fmt.Errorf("encode %s: %w", describe(obj), err)
	}
	u := &unstructured.Unstructured{Object: content}
	unstructured.RemoveNestedField(u.Object, "status")
	unstructured.RemoveNestedField(u.Object, "metadata", "creationTimestamp")
	as := client.ApplyConfigurationFromUnstructured(u)
	if err := r.cfg.Client.Apply(ctx, as, client.ForceOwnership, client.FieldOwner(FieldOwner)); err != nil {
		return fmt.Errorf("apply %s: %w", describe(obj), err)
	}
	return nil
}

// remove deletes an object. An object that is already gone is no error.
func (r *Reconciler) remove(ctx context.Context, obj client.Object) error {
	if err := client.IgnoreNotFound(r.cfg.Client.Delete(ctx, obj)); err != nil {
		return fmt.Errorf("delete %s: %w", describe(obj), err)
	}
	return nil
}

// secret reads one of our Secrets from the API server. Secrets are not cached, so that none need be listed. A missing
// Secret is returned empty.
func (r *Reconciler) secret(ctx context.Context, name string) (*corev1.Secret, error) {
	s := &corev1.Secret{}
	err := r.cfg.Reader.Get(ctx, client.ObjectKey{Namespace: edge.NamespaceSystem, Name: name}, s)
	if apierrors.IsNotFound(err) {
		return &corev1.Secret{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read Secret %s: %w", name, err)
	}
	return s, nil
}

// keep writes a Secret unless it is already as wanted. have is what was read; keep fails if it has changed since.
func (r *Reconciler) keep(ctx context.Context, have, want *corev1.Secret) error {
	if have.UID != "" && holds(have, want) {
		return nil
	}
	want.ResourceVersion = have.ResourceVersion
	return r.apply(ctx, want)
}

func describe(obj client.Object) string {
	kind := obj.GetObjectKind().GroupVersionKind().Kind
	if kind == "" {
		kind = fmt.Sprintf("%T", obj)
	}
	if obj.GetNamespace() == "" {
		return kind + " " + obj.GetName()
	}
	return kind + " " + obj.GetNamespace() + "/" + obj.GetName()
}
