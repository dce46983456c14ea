package coordinator

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yurtcoordinator/internal/cloud/keys"
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

// handedOut returns what handOut last wrote of a Secret. A missing Secret is returned empty.
func (r *Reconciler) handedOut(ctx context.Context, name string) (*corev1.Secret, error) {
	return keys.Get(ctx, r.cfg.Reader, name)
}

// handOut writes a Secret into kube-system, where Pods mount it or operators fetch it. This program may not read Secrets there,
// so it keeps a copy of the same name in edge.NamespaceKeys. have is that copy; handOut fails if the copy must change and
// somebody has changed it since it was read.
func (r *Reconciler) handOut(ctx context.Context, have, want *corev1.Secret) error {
	kept := want.DeepCopy()
	kept.Namespace = edge.NamespaceKeys
	if err := r.keep(ctx, have, kept); err != nil {
		return err
	}
	return objects.Put(ctx, r.cfg.Client, want, FieldOwner)
}

// keep writes a Secret unless it is already as wanted. have is what was read; keep fails if it has changed since.
func (r *Reconciler) keep(ctx context.Context, have, want *corev1.Secret) error {
	if have.UID != "" && holds(have, want) {
		return nil
	}
	want.ResourceVersion = have.ResourceVersion
	return r.apply(ctx, want)
}
