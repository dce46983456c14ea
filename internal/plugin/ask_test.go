package plugin

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/clientcmd"

	"yurtcoordinator/apis/apps/v1alpha1"
	"yurtcoordinator/internal/edge"
)

// aSigner is a pool's authority.
type aSigner struct {
	cert *x509.Certificate
	key  crypto.Signer
}

func newSigner(t *testing.T) aSigner {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "pool"}, NotBefore: time.Now(),
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return aSigner{cert, key}
}

func asPEM(der []byte) []byte { return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}) }

// sign returns the certificate for a key, and the authority behind it.
func (s aSigner) sign(t *testing.T, subject pkix.Name, public any) []byte {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: subject, NotBefore: time.Now(), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, s.cert, public, s.key)
	if err != nil {
		t.Fatal(err)
	}
	return append(asPEM(der), asPEM(s.cert.Raw)...)
}

// seated is a pool p1 whose coordinator runs on n1, whose LAN address is not its InternalIP.
func seated() []runtime.Object {
	node := func(name, internal, lan string) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{edge.LabelNodePool: "p1"}}}
		n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: internal}}
		if lan != "" {
			n.Annotations = map[string]string{edge.AnnotationLANAddress: lan}
		}
		return n
	}
	c := &v1alpha1.YurtCoordinator{ObjectMeta: metav1.ObjectMeta{Name: "p1"}, Spec: v1alpha1.YurtCoordinatorSpec{NodePool: "p1"}}
	c.Status.Coordinators = []v1alpha1.CoordinatorInSlot{{Slot: 0, NodeName: "n1"}, {Slot: 1, NodeName: "n2"}}
	return []runtime.Object{aPool("p1", 2, 0), c, node("n1", "10.0.0.1", "192.168.7.1"), node("n2", "fd00::2", "")}
}

// TestAViewerAsksForACertificate in the caller's own name, and gets a kubeconfig that leads to the coordinators.
func TestAViewerAsksForACertificate(t *testing.T) {
	pools, s := newSigner(t), aServer(t, seated()...)
	s.kube.PrependReactor("create", "selfsubjectreviews", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, &authenticationv1.SelfSubjectReview{Status: authenticationv1.SelfSubjectReviewStatus{
			UserInfo: authenticationv1.UserInfo{Username: "ana"},
		}}, nil
	})
	var answer func(*certificatesv1.CertificateSigningRequest, *x509.CertificateRequest)
	var request *certificatesv1.CertificateSigningRequest
	s.kube.PrependReactor("create", "certificatesigningrequests", func(a clienttesting.Action) (bool, runtime.Object, error) {
		request = a.(clienttesting.CreateAction).GetObject().(*certificatesv1.CertificateSigningRequest).DeepCopy()
		request.Name = request.GenerateName + "x7"
		block, _ := pem.Decode(request.Spec.Request)
		asked, err := x509.ParseCertificateRequest(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		answer(request, asked)
		return true, request, nil
	})
	s.kube.PrependReactor("get", "certificatesigningrequests", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, request, nil
	})
	asks := func() (kubeconfig []byte, told string, err error) {
		var out bytes.Buffer
		kubeconfig, err = s.viewersKubeconfig(t.Context(), "p1", 9*time.Hour, &out)
		return kubeconfig, out.String(), err
	}

	answer = func(r *certificatesv1.CertificateSigningRequest, x *x509.CertificateRequest) {
		if x.Subject.CommonName != "ana" || !slices.Equal(x.Subject.Organization, []string{edge.GroupViewers}) ||
			r.Spec.SignerName != "coordinator.openyurt.io/p1" || *r.Spec.ExpirationSeconds != 9*3600 {
			t.Errorf("it asks for %s by %s for %d s", x.Subject, r.Spec.SignerName, *r.Spec.ExpirationSeconds)
		}
		r.Status.Certificate = pools.sign(t, x.Subject, x.PublicKey)
	}
	text, told, err := asks()
	if err != nil || !strings.Contains(told, "kubectl certificate approve view-p1-x7\n") {
		t.Fatalf("%v, told %q", err, told)
	}
	config, err := clientcmd.Load(text)
	if err != nil {
		t.Fatal(err)
	}
	for name, server := range map[string]string{
		"yurt-coordinator-p1": "https://192.168.7.1:10270", "yurt-coordinator-p1/1": "https://[fd00::2]:10270",
		"yurt-coordinator-p1/any": "https://10.0.0.1:10269", "yurt-coordinator-p1/any-2": "https://[fd00::2]:10269",
	} {
		c := config.Clusters[name]
		if c == nil || c.Server != server || c.TLSServerName != "p1.yurt-coordinator-apiserver.kube-system.svc" ||
			!bytes.Equal(c.CertificateAuthorityData, asPEM(pools.cert.Raw)) || config.Contexts[name].Cluster != name {
			t.Errorf("%s: %+v", name, c)
		}
	}
	if len(config.Clusters) != 4 || config.CurrentContext != "yurt-coordinator-p1" {
		t.Errorf("%d clusters, current is %s", len(config.Clusters), config.CurrentContext)
	}
	user := config.AuthInfos[config.Contexts[config.CurrentContext].AuthInfo]
	if _, err := tls.X509KeyPair(user.ClientCertificateData, user.ClientKeyData); err != nil {
		t.Error(err)
	}
	access, err := clientcmd.RESTConfigFromKubeConfig(text)
	if err != nil || poolOfAccess(access) != unnamed {
		t.Errorf("it is not known as a pool's own: %v", err)
	}

	for says, a := range map[string]func(*certificatesv1.CertificateSigningRequest, *x509.CertificateRequest){
		"view-p1-x7 Denied: not you": func(r *certificatesv1.CertificateSigningRequest, _ *x509.CertificateRequest) {
			r.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{
				Type: certificatesv1.CertificateDenied, Message: "not you",
			}}
		},
		"has signed another certificate": func(r *certificatesv1.CertificateSigningRequest, x *x509.CertificateRequest) {
			r.Status.Certificate = pools.sign(t, x.Subject, newSigner(t).key.Public())
		},
		"is coordinator-controller older": func(r *certificatesv1.CertificateSigningRequest, x *x509.CertificateRequest) {
			whole := pools.sign(t, x.Subject, x.PublicKey)
			r.Status.Certificate = whole[:bytes.LastIndex(whole, []byte("-----BEGIN"))]
		},
		"not the pool's authority": func(r *certificatesv1.CertificateSigningRequest, x *x509.CertificateRequest) {
			alone := pools.sign(t, x.Subject, x.PublicKey)
			own := alone[:bytes.LastIndex(alone, []byte("-----BEGIN"))]
			r.Status.Certificate = slices.Concat(own, asPEM(newSigner(t).cert.Raw))
		},
	} {
		answer = a
		if text, _, err := asks(); err == nil || len(text) > 0 || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %q", err, says)
		}
	}
}

// TestAFailedReadLosesNoRequest: the API server may restart while somebody approves it. Only a request that is gone, or that its
// maker may not read, ends the wait.
func TestAFailedReadLosesNoRequest(t *testing.T) {
	of := certificatesv1.Resource("certificatesigningrequests")
	for name, tt := range map[string]struct {
		fails error
		wants string // empty means the certificate
	}{
		"not reached":   {errors.New("connection refused"), ""},
		"restarts":      {apierrors.NewServiceUnavailable("soon"), ""},
		"gone":          {apierrors.NewNotFound(of, "r"), "not found"},
		"not permitted": {apierrors.NewForbidden(of, "r", errors.New("no")), "forbidden"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, reads := aServer(t), 0
				s.kube.PrependReactor("get", of.Resource, func(clienttesting.Action) (bool, runtime.Object, error) {
					if reads++; reads < 4 {
						return true, nil, tt.fails
					}
					return true, &certificatesv1.CertificateSigningRequest{
						Status: certificatesv1.CertificateSigningRequestStatus{Certificate: []byte("signed")},
					}, nil
				})
				signed, err := s.signed(t.Context(), "r")
				switch {
				case tt.wants == "" && (err != nil || string(signed) != "signed"):
					t.Errorf("%q, %v", signed, err)
				case tt.wants != "" && (err == nil || !strings.Contains(err.Error(), tt.wants) || reads != 1):
					t.Errorf("%q, %v after %d reads, want %q", signed, err, reads, tt.wants)
				}
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		s := aServer(t)
		s.kube.PrependReactor("get", of.Resource, func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, errors.New("connection refused")
		})
		if _, err := s.signed(t.Context(), "r"); err == nil || !strings.Contains(err.Error(), "connection refused") {
			t.Errorf("in the end it says %v, and not what is wrong", err)
		}
	})
}

// TestARefusalSaysWhichRoleItTakes, in the cloud alone.
func TestARefusalSaysWhichRoleItTakes(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		kind := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
		if strings.Contains(r.URL.Path, "/secrets/") {
			kind = "secrets"
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"no","reason":"Forbidden","code":403,`+
			`"details":{"kind":%q}}`, kind)
	}))
	defer server.Close()
	for words, advice := range map[string]string{
		"status": "openyurt:pool-viewer", "status p1": "openyurt:pool-viewer", "status -w": "openyurt:pool-viewer",
		"why n1": "openyurt:pool-viewer", "check n1": "openyurt:pool-viewer", "leader p1": "openyurt:pool-viewer",
		"traffic p1": "openyurt:pool-viewer", "bundle p1": "openyurt:pool-viewer",
		"kubeconfig p1": "--view", "ui p1": "--view", "kubeconfig p1 --view": "openyurt:pool-viewer",
	} {
		cmd := New(io.Discard, io.Discard)
		cmd.SetArgs(append(strings.Fields(words), "--kubeconfig=/dev/null", "--server="+server.URL))
		if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), advice) {
			t.Errorf("%s: %v, want %q", words, err, advice)
		}
	}
}
