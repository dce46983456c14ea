package coordinator

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yurtcoordinator/internal/cloud/objects"
	"yurtcoordinator/internal/edge"
)

// apply makes the API server's object as obj says; see objects.Apply.
func (r *Reconciler) apply(ctx context.Context, obj client.Object) error {
	return objects.Apply(ctx, r.cfg.Client, obj, FieldOwner)
}

// remove deletes an object. An object that is already gone is no error.
func (r *Reconciler) remove(ctx context.Context, obj client.Object) error {
	return objects.Remove(ctx, r.cfg.Client, obj)
}

// shared reads from the API server a Secret that Pods mount or operators fetch. Secrets are not cached, because a cache needs
// the right to list them. A missing Secret is returned empty. Package keys reads the Secrets that only this program reads.
func (r *Reconciler) shared(ctx context.Context, name string) (*corev1.Secret, error) {
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: edge.NamespaceSystem, Name: name}}
	if found, err := objects.Peek(ctx, r.cfg.Client, s); err != nil || !found {
		return &corev1.Secret{}, err
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
