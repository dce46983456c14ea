package operators

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"yurtcoordinator/apis/apps/v1beta2"
	"yurtcoordinator/internal/cloud/certs"
	"yurtcoordinator/internal/cloud/keys"
	"yurtcoordinator/internal/edge"
)

var now = time.Date(2026, 11, 24, 9, 0, 0, 0, time.UTC)

// said are Events.
type said []string

func (s *said) Eventf(_, _ runtime.Object, kind, _, _, note string, args ...any) {
	*s = append(*s, kind+" "+fmt.Sprintf(note, args...))
}

func authority(t *testing.T, pool edge.PoolName) (certs.Authority, *corev1.Secret) {
	t.Helper()
	a, err := certs.Authority{}.Take(certs.StepReplace, "authority of "+string(pool), 2*MaxMetricsLife, now)
	if err != nil {
		t.Fatal(err)
	}
	return a, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: edge.NamespaceKeys, Name: pool.AuthoritySecret(), UID: "authority"},
		Data:       keys.AuthorityData(a),
	}
}

func pkcs10(t *testing.T, template x509.CertificateRequest) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &template, key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
}

type csr = certificatesv1.CertificateSigningRequest

// request is alice's, approved, for pool p1. change may alter it and what is in it.
func request(t *testing.T, change func(*csr, *x509.CertificateRequest)) *csr {
	t.Helper()
	inner := x509.CertificateRequest{Subject: pkix.Name{CommonName: "alice", Organization: []string{edge.GroupOperators}}}
	r := &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: "alice-1"},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			SignerName: SignerPrefix + "p1", Username: "alice",
			Usages: []certificatesv1.KeyUsage{certificatesv1.UsageClientAuth},
		},
		Status: certificatesv1.CertificateSigningRequestStatus{
			Conditions: []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateApproved}},
		},
	}
	if change != nil {
		change(r, &inner)
	}
	if r.Spec.Request == nil {
		r.Spec.Request = pkcs10(t, inner)
	}
	return r
}

type bench struct {
	signer *Signer
	client client.Client
	events said
	fails  error // of the next write
	// refusesApply fails writes of Secrets.
	refusesApply bool
}

func newBench(t *testing.T, objects ...client.Object) *bench {
	t.Helper()
	scheme := runtime.NewScheme()
	err := errors.Join(corev1.AddToScheme(scheme), certificatesv1.AddToScheme(scheme), v1beta2.AddToScheme(scheme))
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{}
	b.client = fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
		WithStatusSubresource(&certificatesv1.CertificateSigningRequest{}).
		WithInterceptorFuncs(interceptor.Funcs{Apply: b.apply,
			SubResourceUpdate: func(ctx context.Context,
				c client.Client, sub string, obj client.Object, o ...client.SubResourceUpdateOption) error {
				if b.fails != nil {
					return b.fails
				}
				return c.SubResource(sub).Update(ctx, obj, o...)
			}}).Build()
	b.signer = New(Config{
		Client: b.client, Reader: b.client, Events: &b.events,
		Clock: clocktesting.NewFakePassiveClock(now),
	})
	return b
}

func (b *bench) apply(
	ctx context.Context, c client.WithWatch, obj runtime.ApplyConfiguration, o ...client.ApplyOption,
) error {
	if b.refusesApply {
		return errors.New("no")
	}
	return c.Apply(ctx, obj, o...)
}

func (b *bench) answer(t *testing.T, name string) (*certificatesv1.CertificateSigningRequest, error) {
	t.Helper()
	_, err := b.signer.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: name}})
	var r certificatesv1.CertificateSigningRequest
	if err := b.client.Get(t.Context(), client.ObjectKey{Name: name}, &r); err != nil {
		t.Fatal(err)
	}
	return &r, err
}

func (b *bench) counts(t *testing.T, signed, refused float64) {
	t.Helper()
	gotSigned := testutil.ToFloat64(b.signer.requests.WithLabelValues(resultSigned))
	gotRefused := testutil.ToFloat64(b.signer.requests.WithLabelValues(resultRefused))
	if gotSigned != signed || gotRefused != refused {
		t.Errorf("counted %v signed and %v refused, want %v and %v", gotSigned, gotRefused, signed, refused)
	}
}

func TestSigned(t *testing.T) {
	a, secret := authority(t, "p1")
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(a.Trusted)
	for what, c := range map[string]struct {
		seconds *int32
		groups  []string
		want    time.Duration
	}{
		"a day's":         {nil, []string{edge.GroupOperators}, DefaultLife},
		"an hour's":       {ptr.To[int32](3600), []string{edge.GroupDebuggers}, time.Hour},
		"a year's":        {ptr.To[int32](365 * 24 * 3600), []string{edge.GroupOperators, edge.GroupDebuggers}, MaxLife},
		"the most":        {ptr.To[int32](7 * 24 * 3600), []string{edge.GroupOperators}, MaxLife},
		"a viewer's":      {ptr.To[int32](365 * 24 * 3600), []string{edge.GroupViewers}, MaxLife},
		"a program's":     {ptr.To[int32](365 * 24 * 3600), []string{edge.GroupMetrics}, MaxMetricsLife},
		"a program's day": {nil, []string{edge.GroupMetrics}, DefaultLife},
		"an operator's who reads metrics": {
			ptr.To[int32](365 * 24 * 3600), []string{edge.GroupOperators, edge.GroupMetrics}, MaxLife,
		},
	} {
		b := newBench(t, secret.DeepCopy(), request(t, func(r *csr, x *x509.CertificateRequest) {
			r.Spec.ExpirationSeconds, x.Subject.Organization = c.seconds, c.groups
		}))
		r, err := b.answer(t, "alice-1")
		if err != nil || len(r.Status.Certificate) == 0 {
			t.Fatalf("%s: %v, %+v", what, err, r.Status)
		}
		chain := certs.Certificates(r.Status.Certificate)
		cert := chain[0]
		if len(chain) != 2 || !chain[1].Equal(certs.Certificates(a.Trusted)[0]) {
			t.Errorf("%s: behind it are %d certificates, want the authority alone", what, len(chain)-1)
		}
		if _, err := cert.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: now.Add(c.want - time.Second),
			KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		asked, err := certs.ParseRequest(r.Spec.Request)
		if err != nil {
			t.Fatal(err)
		}
		if !cert.NotAfter.Equal(now.Add(c.want)) || cert.Subject.CommonName != "alice" || cert.IsCA ||
			strings.Join(cert.Subject.Organization, " ") != strings.Join(c.groups, " ") ||
			len(cert.ExtKeyUsage) != 1 || !asked.PublicKey.(*ecdsa.PublicKey).Equal(cert.PublicKey) {
			t.Errorf("%s: %s until %v, %v", what, cert.Subject, cert.NotAfter, cert.ExtKeyUsage)
		}
		if len(b.events) != 1 || !strings.HasPrefix(b.events[0], "Normal Signed for alice, of "+strings.Join(c.groups, ",")) {
			t.Errorf("%s: %q", what, b.events)
		}
		b.counts(t, 1, 0)
		if _, err := b.answer(t, "alice-1"); err != nil || len(b.events) != 1 {
			t.Errorf("%s: answered twice: %v, %q", what, err, b.events)
		}
	}
}

func TestRefused(t *testing.T) {
	_, secret := authority(t, "p1")
	named := func(name string) func(*csr, *x509.CertificateRequest) {
		return func(r *csr, x *x509.CertificateRequest) { r.Spec.Username, x.Subject.CommonName = name, name }
	}
	groups := func(groups ...string) func(*csr, *x509.CertificateRequest) {
		return func(_ *csr, x *x509.CertificateRequest) { x.Subject.Organization = groups }
	}
	for says, change := range map[string]func(*csr, *x509.CertificateRequest){
		`its common name is "bob", but "alice" asked`:  func(_ *csr, x *x509.CertificateRequest) { x.Subject.CommonName = "bob" },
		`"system:node:n1" is not the name of a person`: named("system:node:n1"),
		`"openyurt:operator:p1" is not the name of`:    named("openyurt:operator:p1"),
		"its organizations are : give":                 groups(),
		"its organizations are system:masters: give":   groups("system:masters"),
		"system:nodes, openyurt:coordinators: give":    groups(edge.GroupOperators, edge.GroupNodes),
		"names besides its subject":                    func(_ *csr, x *x509.CertificateRequest) { x.DNSNames = []string{"a.b"} },
		`it is for the use "server auth"`: func(r *csr, _ *x509.CertificateRequest) {
			r.Spec.Usages = append(r.Spec.Usages, certificatesv1.UsageServerAuth)
		},
		`it is not for the use "client auth"`: func(r *csr, _ *x509.CertificateRequest) {
			r.Spec.Usages = []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature}
		},
		"it is not one PEM":          func(r *csr, _ *x509.CertificateRequest) { r.Spec.Request = []byte("x") },
		"pool p2 has no coordinator": func(r *csr, _ *x509.CertificateRequest) { r.Spec.SignerName = SignerPrefix + "p2" },
		`"" can't be the name of`:    func(r *csr, _ *x509.CertificateRequest) { r.Spec.SignerName = SignerPrefix },
		`"p1/../p2" can't be the name of`: func(r *csr, _ *x509.CertificateRequest) {
			r.Spec.SignerName = SignerPrefix + "p1/../p2"
		},
		`"` + strings.Repeat("a", 100) + `" asked for it`: func(r *csr, _ *x509.CertificateRequest) {
			r.Spec.Username = strings.Repeat("a", 5000)
		},
	} {
		b := newBench(t, secret.DeepCopy(), request(t, change))
		r, err := b.answer(t, "alice-1")
		if err != nil || len(r.Status.Certificate) > 0 || len(r.Status.Conditions) != 2 {
			t.Errorf("%s: %v, %+v", says, err, r.Status)
			continue
		}
		failed := r.Status.Conditions[1]
		if failed.Type != certificatesv1.CertificateFailed || failed.Status != corev1.ConditionTrue ||
			!strings.Contains(failed.Message, says) || len(failed.Message) > 900 {
			t.Errorf("%s: %+v", says, failed)
		}
		if len(b.events) != 1 || !strings.HasPrefix(b.events[0], "Warning Not signed: ") {
			t.Errorf("%s: %q", says, b.events)
		}
		b.counts(t, 0, 1)
		if _, err := b.answer(t, "alice-1"); err != nil || len(b.events) != 1 {
			t.Errorf("%s: refused twice: %v, %q", says, err, b.events)
		}
	}
}

// TestLeftAlone: what is not ours, not approved, or answered.
func TestLeftAlone(t *testing.T) {
	_, secret := authority(t, "p1")
	condition := func(types ...certificatesv1.RequestConditionType) func(*csr, *x509.CertificateRequest) {
		return func(r *csr, _ *x509.CertificateRequest) {
			r.Status.Conditions = nil
			for _, c := range types {
				r.Status.Conditions = append(r.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{Type: c})
			}
		}
	}
	for what, change := range map[string]func(*csr, *x509.CertificateRequest){
		"not approved":     condition(),
		"denied":           condition(certificatesv1.CertificateDenied),
		"approved, failed": condition(certificatesv1.CertificateApproved, certificatesv1.CertificateFailed),
		"another signer's": func(r *csr, _ *x509.CertificateRequest) {
			r.Spec.SignerName = certificatesv1.KubeAPIServerClientSignerName
		},
		"signed": func(r *csr, _ *x509.CertificateRequest) {
			r.Status.Certificate = []byte("as it is")
		},
	} {
		asked := request(t, change)
		b := newBench(t, secret.DeepCopy(), asked)
		b.fails = errors.New("it wrote")
		r, err := b.answer(t, "alice-1")
		if err != nil || string(r.Status.Certificate) != string(asked.Status.Certificate) || len(b.events) > 0 {
			t.Errorf("%s: %v, %+v, %q", what, err, r.Status, b.events)
		}
	}
	b := newBench(t)
	if _, err := b.signer.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: "gone"}}); err != nil {
		t.Error(err)
	}
}

func TestTriedAgain(t *testing.T) {
	_, secret := authority(t, "p1")
	b := newBench(t, secret, request(t, nil))
	conflict := apierrors.NewConflict(schema.GroupResource{}, "alice-1", errors.New("changed"))
	for _, c := range []struct {
		fails error
		retry bool
	}{{errors.New("no answer"), true}, {conflict, false}} {
		b.fails = c.fails
		if _, err := b.answer(t, "alice-1"); (err != nil) != c.retry || len(b.events) > 0 {
			t.Errorf("%v: %v, %q", c.fails, err, b.events)
		}
	}
	b.counts(t, 0, 0)
	b.fails = nil
	if r, err := b.answer(t, "alice-1"); err != nil || len(r.Status.Certificate) == 0 {
		t.Errorf("%v, %+v", err, r.Status)
	}
	// An authority that can't sign now is made anew by another controller.
	secret = secret.DeepCopy()
	secret.ResourceVersion, secret.Data[corev1.TLSPrivateKeyKey] = "", []byte("x")
	b = newBench(t, secret, request(t, nil))
	r, err := b.answer(t, "alice-1")
	if err == nil || len(r.Status.Certificate)+len(b.events) > 0 || len(r.Status.Conditions) != 1 {
		t.Errorf("%v, %+v", err, r.Status)
	}
}
