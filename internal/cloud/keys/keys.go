// Package keys has the Secrets that only coordinator-controller reads: pools' authorities, and coordinators' keys for kubelets.
// They have their own namespace, so that programs that may read Secrets in kube-system can't read these. Secrets that Pods mount
// or people fetch are in kube-system; this namespace has a copy of each as last written.
package keys

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yurtcoordinator/internal/cloud/certs"
	"yurtcoordinator/internal/edge"
)

// FieldOwner is the field manager of all writes, the same as that of whoever changes these Secrets later.
const FieldOwner = "coordinator-controller"

const (
	// KeyBundle is where an authority's Secret has all that are trusted.
	KeyBundle = "ca.crt"
	// KeyNextCert and KeyNextKey are where a Secret has the successor of what is in use.
	KeyNextCert, KeyNextKey = "next.crt", "next.key"
)

// AuthorityIn returns the authority in a Secret.
func AuthorityIn(s *corev1.Secret) certs.Authority {
	return certs.Authority{
		Pair:    certs.Pair{Cert: s.Data[corev1.TLSCertKey], Key: s.Data[corev1.TLSPrivateKeyKey]},
		Next:    certs.Pair{Cert: s.Data[KeyNextCert], Key: s.Data[KeyNextKey]},
		Trusted: s.Data[KeyBundle],
	}
}

// AuthorityData returns the content of an authority's Secret.
func AuthorityData(a certs.Authority) map[string][]byte {
	data := map[string][]byte{
		corev1.TLSCertKey: a.Cert, corev1.TLSPrivateKeyKey: a.Key, KeyBundle: a.Trusted,
	}
	if !a.Next.IsZero() {
		data[KeyNextCert], data[KeyNextKey] = a.Next.Cert, a.Next.Key
	}
	return data
}

// Get returns a Secret, read from the API server itself. A missing one is returned empty.
func Get(ctx context.Context, reader client.Reader, name string) (*corev1.Secret, error) {
	found := &corev1.Secret{}
	err := reader.Get(ctx, client.ObjectKey{Namespace: edge.NamespaceKeys, Name: name}, found)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("read Secret %s/%s: %w", edge.NamespaceKeys, name, err)
	}
	return found, nil
}
