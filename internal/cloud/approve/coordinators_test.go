package approve

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yurtcoordinator/internal/cloud/certs"
	"yurtcoordinator/internal/edge"
)

// coordinators is the request that coordinator-controller makes for pool p1.
func coordinators(t *testing.T) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	key, err := certs.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	content, err := certs.SigningRequest(key, edge.PoolName("p1").CoordinatorUser())
	if err != nil {
		t.Fatal(err)
	}
	public, err := certs.PublicKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{
			Name: edge.PoolName("p1").KubeletClientRequest(public), CreationTimestamp: metav1.NewTime(made),
		},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request: content, SignerName: certificatesv1.KubeAPIServerClientSignerName, Username: controllerUser,
			ExpirationSeconds: ptr.To(longestClient),
			Usages:            []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth},
		},
	}
}

// asksFor puts another content into a request, and gives it the name that goes with its key.
func asksFor(t *testing.T, r *certificatesv1.CertificateSigningRequest, content x509.CertificateRequest) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &content, key)
	if err != nil {
		t.Fatal(err)
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	r.Spec.Request = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
	r.Name = edge.PoolName("p1").KubeletClientRequest(public)
}

func TestCoordinatorsRequests(t *testing.T) {
	p1, admins := edge.PoolName("p1").CoordinatorUser(), []string{"kubeadm:cluster-admins"}
	for what, test := range map[string]struct {
		edit func(*certificatesv1.CertificateSigningRequest)
		why  string // empty: it is approved
	}{
		"as it is": {func(*certificatesv1.CertificateSigningRequest) {}, ""},
		"a shorter life": {func(r *certificatesv1.CertificateSigningRequest) {
			r.Spec.ExpirationSeconds = ptr.To[int32](600)
		}, ""},
		"administrators": {func(r *certificatesv1.CertificateSigningRequest) {
			asksFor(t, r, x509.CertificateRequest{Subject: pkix.Name{CommonName: "x", Organization: admins}})
		}, "not for a pool's coordinator"},
		"administrators, by its own name": {func(r *certificatesv1.CertificateSigningRequest) {
			asksFor(t, r, x509.CertificateRequest{Subject: pkix.Name{CommonName: p1, Organization: admins}})
		}, "not for a pool's coordinator"},
		"a second name": {func(r *certificatesv1.CertificateSigningRequest) {
			asksFor(t, r, x509.CertificateRequest{Subject: pkix.Name{CommonName: p1, ExtraNames: []pkix.AttributeTypeAndValue{
				{Type: []int{2, 5, 4, 10}, Value: "kubeadm:cluster-admins"},
			}}})
		}, "not for a pool's coordinator"},
		"another user": {func(r *certificatesv1.CertificateSigningRequest) {
			asksFor(t, r, x509.CertificateRequest{Subject: pkix.Name{CommonName: "kubernetes-admin"}})
		}, "not for a pool's coordinator"},
		"a node": {func(r *certificatesv1.CertificateSigningRequest) {
			asksFor(t, r, x509.CertificateRequest{Subject: pkix.Name{CommonName: "system:node:n1"}})
		}, "not for a pool's coordinator"},
		"no pool": {func(r *certificatesv1.CertificateSigningRequest) {
			asksFor(t, r, x509.CertificateRequest{Subject: pkix.Name{CommonName: edge.PoolName("").CoordinatorUser()}})
		}, "not for a pool's coordinator"},
		"names, too": {func(r *certificatesv1.CertificateSigningRequest) {
			asksFor(t, r, x509.CertificateRequest{Subject: pkix.Name{CommonName: p1}, DNSNames: []string{"kubernetes"}})
		}, "more than its subject"},
		"a server": {func(r *certificatesv1.CertificateSigningRequest) {
			r.Spec.Usages = append(r.Spec.Usages, certificatesv1.UsageServerAuth)
		}, "for the uses"},
		"any life":    {func(r *certificatesv1.CertificateSigningRequest) { r.Spec.ExpirationSeconds = nil }, "for more than"},
		"a long life": {func(r *certificatesv1.CertificateSigningRequest) { *r.Spec.ExpirationSeconds++ }, "for more than"},
		"another name": {func(r *certificatesv1.CertificateSigningRequest) {
			r.Name = strings.Replace(r.Name, "-p1-", "-p2-", 1)
		}, "not called"},
		"another's key": {func(r *certificatesv1.CertificateSigningRequest) {
			r.Spec.Request = coordinators(t).Spec.Request
		}, "not called"},
		"not a request": {func(r *certificatesv1.CertificateSigningRequest) { r.Spec.Request = []byte("x") }, "not one PEM"},
	} {
		t.Run(what, func(t *testing.T) {
			r := coordinators(t)
			test.edit(r)
			got, events, result, err := judged(t, nil, r)
			if err != nil {
				t.Fatal(err)
			}
			said := strings.Join(events, "\n")
			switch {
			case test.why == "" && (!approved(got) || len(events) > 0):
				t.Errorf("approved: %t, said %s", approved(got), said)
			case test.why != "" && (len(got.Status.Conditions) > 0 || !strings.Contains(said, test.why)):
				t.Errorf("conditions %+v, said %q, want %q", got.Status.Conditions, said, test.why)
			case test.why != "" && (result.RequeueAfter != 0 || !strings.HasPrefix(said, corev1.EventTypeWarning)):
				t.Errorf("again in %v, said %q: what it asks for does not change", result.RequeueAfter, said)
			}
		})
	}
}

// TestOthersClients: requests for clients that somebody else makes are not looked at.
func TestOthersClients(t *testing.T) {
	r := coordinators(t)
	r.Spec.Username = "system:serviceaccount:kube-system:other"
	got, events, _, err := judged(t, nil, r)
	if err != nil || len(got.Status.Conditions) > 0 || len(events) > 0 {
		t.Errorf("%+v, %v, %v", got.Status.Conditions, events, err)
	}
	if err := JudgeCoordinators(r); err == nil {
		t.Error("somebody else's is good")
	}
}

// TestThousandPools: their requests are all of one user, and none is in another's way.
func TestThousandPools(t *testing.T) {
	objects := []client.Object{coordinators(t)}
	for range 2 * maxOpen {
		newer := coordinators(t)
		newer.CreationTimestamp = metav1.NewTime(made.Add(time.Second))
		objects = append(objects, newer)
	}
	got, _, _, err := judged(t, nil, objects...)
	if err != nil || !approved(got) {
		t.Errorf("%+v, %v", got.Status.Conditions, err)
	}
}
