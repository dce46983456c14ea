package keys

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"yurtcoordinator/internal/cloud/certs"
	"yurtcoordinator/internal/cloud/cloudtest"
	"yurtcoordinator/internal/edge"
)

const name = "yurt-coordinator-p1-ca"

var start = time.Date(2026, 11, 24, 9, 0, 0, 0, time.UTC)

// authority makes one that was made at a time.
func authority(t *testing.T, at time.Time) certs.Authority {
	t.Helper()
	a, err := certs.Authority{}.Take(certs.StepReplace, "authority of p1", 1000*time.Hour, at)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func stored(namespace string, a certs.Authority) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, UID: types.UID("in-" + namespace),
			Labels: map[string]string{edge.LabelNodePool: "p1"}, Annotations: map[string]string{"note": "n"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "YurtCoordinator", Name: "p1", UID: "yc"}},
		},
		Data: map[string][]byte{corev1.TLSCertKey: a.Cert, corev1.TLSPrivateKeyKey: a.Key, KeyBundle: a.Trusted},
	}
}

var errKilled = errors.New("killed")

// world is a cluster whose client dies at a write: it is carried out, and nobody hears of it. 0 means that it does not die.
type world struct {
	*testing.T
	api           client.WithWatch
	writes, fatal int
}

func newWorld(t *testing.T, objects ...client.Object) *world {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	return &world{T: t, api: fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()}
}

// process is a new one of the controller.
func (w *world) process(fatal int) *Store {
	w.writes, w.fatal = 0, fatal
	write := func(do func() error) error {
		w.writes++
		if w.fatal == 0 || w.writes < w.fatal {
			return do()
		}
		if w.writes == w.fatal {
			_ = do()
		}
		return errKilled
	}
	c := interceptor.NewClient(w.api, interceptor.Funcs{
		Patch: cloudtest.Patch,
		Apply: func(ctx context.Context, c client.WithWatch, o runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			return write(func() error { return c.Apply(ctx, o, opts...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			return write(func() error { return c.Delete(ctx, o, opts...) })
		},
	})
	return New(c, c)
}

func (w *world) at(namespace string) *corev1.Secret {
	w.Helper()
	s := &corev1.Secret{}
	err := w.api.Get(w.Context(), client.ObjectKey{Namespace: namespace, Name: name}, s)
	if client.IgnoreNotFound(err) != nil {
		w.Fatal(err)
	}
	if err != nil {
		return nil
	}
	return s
}

func trusts(s *corev1.Secret, a certs.Authority) bool {
	want := certs.Certificates(a.Cert)[0]
	for _, c := range certs.Certificates(s.Data[KeyBundle]) {
		if c.Equal(want) {
			return true
		}
	}
	return false
}

// TestAMove: whatever is where, and wherever the controller dies, in the end one Secret is here, none there, what was made last
// signs, and what either place trusted is trusted. Until then no process gets an answer that is less.
func TestAMove(t *testing.T) {
	older, newer := authority(t, start), authority(t, start.Add(time.Hour))
	rotated := older
	rotated.Next, rotated.Trusted = newer.Pair, certs.Bundle(older.Trusted, newer.Trusted)
	both := func(a *corev1.Secret, b *corev1.Secret) []client.Object { return []client.Object{a, b} }
	const here, there = edge.NamespaceKeys, edge.NamespaceSystem
	for what, test := range map[string]struct {
		objects []client.Object
		signs   *certs.Authority // nil: there is none
		trusted []certs.Authority
	}{
		"nothing anywhere": {},
		"moved already":    {[]client.Object{stored(here, older)}, &older, []certs.Authority{older}},
		"to be moved":      {[]client.Object{stored(there, older)}, &older, []certs.Authority{older}},
		"half done":        {both(stored(here, older), stored(there, older)), &older, []certs.Authority{older}},
		"half done, and changed here since": {
			both(stored(here, rotated), stored(there, older)), &older, []certs.Authority{older, newer},
		},
		"half done, and replaced here since": {
			both(stored(here, newer), stored(there, older)), &newer, []certs.Authority{older, newer},
		},
		"made anew by an older controller": {
			both(stored(here, older), stored(there, newer)), &newer, []certs.Authority{older, newer},
		},
	} {
		t.Run(what, func(t *testing.T) {
			for fatal := range 4 { // 0 lives
				var objects []client.Object
				for _, o := range test.objects {
					objects = append(objects, o.DeepCopyObject().(client.Object))
				}
				w := newWorld(t, objects...)
				if got, err := w.process(fatal).Get(t.Context(), name); err == nil {
					check(t, got, fatal, test.signs, test.trusted)
				} else if !errors.Is(err, errKilled) {
					t.Fatalf("killed at %d: %v", fatal, err)
				}
				store := w.process(0)
				for range 2 { // the second looks at one place only
					got, err := store.Get(t.Context(), name)
					if err != nil {
						t.Fatalf("after a death at %d: %v", fatal, err)
					}
					check(t, got, fatal, test.signs, test.trusted)
				}
				if w.at(there) != nil || (w.at(here) == nil) != (test.signs == nil) {
					t.Errorf("after a death at %d, there: %v, here: %v", fatal, w.at(there), w.at(here))
				}
			}
		})
	}
}

func check(t *testing.T, got *corev1.Secret, fatal int, signs *certs.Authority, trusted []certs.Authority) {
	t.Helper()
	if signs == nil {
		if got.UID != "" || len(got.Data) > 0 {
			t.Errorf("got %v", got)
		}
		return
	}
	if !bytes.Equal(got.Data[corev1.TLSCertKey], signs.Cert) || !bytes.Equal(got.Data[corev1.TLSPrivateKeyKey], signs.Key) {
		t.Errorf("death at %d: another authority signs", fatal)
	}
	if !slices.ContainsFunc(got.OwnerReferences, func(o metav1.OwnerReference) bool { return o.UID == "yc" }) ||
		!maps.Equal(got.Annotations, map[string]string{"note": "n"}) || got.Labels[edge.LabelNodePool] != "p1" {
		t.Errorf("death at %d: it has %+v", fatal, got.ObjectMeta)
	}
	for _, a := range trusted {
		if !trusts(got, a) {
			t.Errorf("death at %d: %s is no longer trusted", fatal, a.CredentialID())
		}
	}
}

// TestACopyThatIsNotOne: nothing is deleted until what was copied is read back, nor if it has changed meanwhile.
func TestACopyThatIsNotOne(t *testing.T) {
	w := newWorld(t, stored(edge.NamespaceSystem, authority(t, start)))
	changed := authority(t, start.Add(time.Hour))
	for what, during := range map[string]func(client.WithWatch, runtime.ApplyConfiguration) error{
		"the copy is not stored": func(client.WithWatch, runtime.ApplyConfiguration) error { return nil },
		"the former one changes": func(c client.WithWatch, o runtime.ApplyConfiguration) error {
			there := w.at(edge.NamespaceSystem)
			there.Data[corev1.TLSCertKey], there.Data[corev1.TLSPrivateKeyKey] = changed.Cert, changed.Key
			return errors.Join(c.Update(t.Context(), there), c.Apply(t.Context(), o, client.ForceOwnership,
				client.FieldOwner(FieldOwner)))
		},
	} {
		c := interceptor.NewClient(w.api, interceptor.Funcs{
			Patch: cloudtest.Patch,
			Apply: func(_ context.Context, c client.WithWatch, o runtime.ApplyConfiguration, _ ...client.ApplyOption) error {
				return during(c, o)
			},
		})
		if got, err := New(c, c).Get(t.Context(), name); err == nil {
			t.Errorf("%s: got %v", what, got)
		}
		if w.at(edge.NamespaceSystem) == nil {
			t.Fatalf("%s: the former one is deleted", what)
		}
	}
	got, err := w.process(0).Get(t.Context(), name)
	if err != nil || !bytes.Equal(got.Data[corev1.TLSCertKey], changed.Cert) || w.at(edge.NamespaceSystem) != nil {
		t.Errorf("in the end: %v, %v", got, err)
	}
}

// TestWhoCanNotLookGetsNoAnswer: else an authority would be made beside the one at the former place.
func TestWhoCanNotLookGetsNoAnswer(t *testing.T) {
	w := newWorld(t)
	c := interceptor.NewClient(w.api, interceptor.Funcs{
		Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
			return errKilled
		},
	})
	if got, err := New(c, c).Get(t.Context(), name); !errors.Is(err, errKilled) {
		t.Errorf("got %v, %v", got, err)
	}
}
