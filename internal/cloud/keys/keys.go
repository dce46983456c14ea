// Package keys has the Secrets that only coordinator-controller reads: pools' authorities, and coordinators' keys for kubelets.
// They are in a namespace of their own, so that the right to read them is no right to read kube-system, and the other way
// round. What others mount or fetch stays in kube-system.
//
// They once were in kube-system, too. One that is found there is moved: it is copied, the copy is compared, and then the
// former one is deleted, if it is still what was copied. A crash in between leaves both, and the next look goes on.
//
// Invariant: no authority is lost or replaced by a move. While it is not known that nothing is at the former place, nobody gets
// an answer; and where both places have one, because an older controller has run in between, the one that was made last signs,
// and both are trusted.
package keys

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yurtcoordinator/internal/cloud/certs"
	"yurtcoordinator/internal/cloud/objects"
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

// Store reads the Secrets. Make one with New; all who read them share it.
type Store struct {
	client client.Client
	reader client.Reader

	mu sync.Mutex
	// settled are the names that the former place is known not to have.
	settled map[string]bool
}

// New returns a Store that knows nothing yet. client writes, and reader reads from the API server itself.
func New(c client.Client, reader client.Reader) *Store {
	return &Store{client: c, reader: reader, settled: make(map[string]bool)}
}

// Get returns a Secret, after it was moved if it was at its former place. A missing one is returned empty.
func (s *Store) Get(ctx context.Context, name string) (*corev1.Secret, error) {
	here, err := s.read(ctx, name)
	if err != nil || s.isSettled(name) {
		return here, err
	}
	there := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: edge.NamespaceSystem, Name: name}}
	found, err := objects.Peek(ctx, s.client, there)
	if err != nil {
		return nil, err
	}
	if found {
		if here, err = s.move(ctx, here, there); err != nil {
			return nil, fmt.Errorf("move Secret %s from %s to %s: %w", name, edge.NamespaceSystem, edge.NamespaceKeys, err)
		}
	}
	s.settle(name)
	return here, nil
}

// Former returns the Secret of a name at the place where it once was, for deletion.
func Former(name string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: edge.NamespaceSystem, Name: name}}
}

// Forget forgets what is known of a name: the Secret is deleted.
func (s *Store) Forget(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.settled, name)
}

func (s *Store) isSettled(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.settled[name]
}

func (s *Store) settle(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settled[name] = true
}

func (s *Store) read(ctx context.Context, name string) (*corev1.Secret, error) {
	found := &corev1.Secret{}
	err := s.reader.Get(ctx, client.ObjectKey{Namespace: edge.NamespaceKeys, Name: name}, found)
	if apierrors.IsNotFound(err) {
		return &corev1.Secret{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read Secret %s/%s: %w", edge.NamespaceKeys, name, err)
	}
	return found, nil
}

// move brings what is there to here, and returns what is here then.
func (s *Store) move(ctx context.Context, here, there *corev1.Secret) (*corev1.Secret, error) {
	want := joined(here, there)
	if here.UID == "" || !has(here, want) {
		if err := objects.Apply(ctx, s.client, want, FieldOwner); err != nil {
			return nil, err
		}
		var err error
		if here, err = s.read(ctx, there.Name); err != nil {
			return nil, err
		}
		if !has(here, want) {
			return nil, errors.New("the copy is not what was copied; it is tried again")
		}
	}
	err := objects.Remove(ctx, s.client, there, client.Preconditions{UID: &there.UID, ResourceVersion: &there.ResourceVersion})
	if err != nil {
		return nil, err
	}
	klog.FromContext(ctx).Info("Moved a Secret with keys", "name", there.Name, "from", there.Namespace, "to", here.Namespace)
	return here, nil
}

// joined returns what must be here: what is there, or where both places have one the one that was made last. Of authorities all
// are trusted that either place knows.
func joined(here, there *corev1.Secret) *corev1.Secret {
	from := there
	if here.UID != "" && !made(there).After(made(here)) {
		from = here
	}
	want := &corev1.Secret{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: edge.NamespaceKeys, Name: there.Name, Labels: from.Labels, Annotations: from.Annotations,
			OwnerReferences: from.OwnerReferences, ResourceVersion: here.ResourceVersion,
		},
		Type: from.Type, Data: maps.Clone(from.Data),
	}
	if here.UID == "" || len(from.Data[KeyBundle]) == 0 {
		return want
	}
	other := here
	if from == here {
		other = there
	}
	// An authority that only one place knows may have signed what is in use.
	want.Data[KeyBundle] = certs.Bundle(from.Data[KeyBundle], other.Data[corev1.TLSCertKey], other.Data[KeyBundle])
	return want
}

// made returns when the certificate of a Secret was made; zero if there is none.
func made(s *corev1.Secret) time.Time {
	found := certs.Certificates(s.Data[corev1.TLSCertKey])
	if len(found) == 0 {
		return time.Time{}
	}
	return found[0].NotBefore
}

// has reports whether all that is wanted is in a Secret.
func has(have, want *corev1.Secret) bool {
	for key, value := range want.Data {
		if !bytes.Equal(have.Data[key], value) {
			return false
		}
	}
	for key, value := range want.Annotations {
		if have.Annotations[key] != value {
			return false
		}
	}
	return slices.EqualFunc(have.OwnerReferences, want.OwnerReferences, func(a, b metav1.OwnerReference) bool {
		return a.UID == b.UID
	})
}
