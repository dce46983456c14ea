package operators

import (
	"bytes"
	"crypto/x509"
	"crypto/x509/pkix"
	"net"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yurtcoordinator/apis/apps/v1beta2"
	"yurtcoordinator/internal/cloud/certs"
	"yurtcoordinator/internal/edge"
)

var hubsAddress = net.IPv4(10, 0, 0, 7)

// hubs is what the hub of node n1 asks for, approved.
func hubs(t *testing.T, change func(*csr, *x509.CertificateRequest)) *csr {
	t.Helper()
	return request(t, func(r *csr, inner *x509.CertificateRequest) {
		r.Name, r.Spec.SignerName = "yurthub-serving-1", edge.SignerHubs
		r.Spec.Username, r.Spec.Groups = "system:node:n1", []string{edge.GroupNodes, "system:authenticated"}
		r.Spec.Usages = []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageServerAuth}
		*inner = x509.CertificateRequest{
			Subject:     pkix.Name{CommonName: "system:node:n1", Organization: []string{edge.GroupNodes}},
			IPAddresses: []net.IP{hubsAddress},
		}
		if change != nil {
			change(r, inner)
		}
	})
}

// site is pool p1 with node n1, and n2, which is in no pool.
func site() []client.Object {
	n1 := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{edge.LabelNodePool: "p1"}}}
	n1.Status.Addresses = []corev1.NodeAddress{
		{Type: corev1.NodeHostName, Address: "n1"}, {Type: corev1.NodeInternalIP, Address: hubsAddress.String()},
	}
	n2 := n1.DeepCopy()
	n2.Name, n2.Labels = "n2", nil
	lost := n1.DeepCopy()
	lost.Name, lost.Labels = "n3", map[string]string{edge.LabelNodePool: "gone"}
	return []client.Object{n1, n2, lost, &v1beta2.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "p1", UID: "pool"}}}
}

func hubsBench(t *testing.T, asked ...client.Object) *bench {
	return newBench(t, append(site(), asked...)...)
}

// keptAuthority returns the Secret with pool p1's authority for hubs.
func (b *bench) keptAuthority(t *testing.T) *corev1.Secret {
	t.Helper()
	kept := &corev1.Secret{}
	at := client.ObjectKey{Namespace: edge.NamespaceKeys, Name: edge.PoolName("p1").HubsAuthoritySecret()}
	if err := b.client.Get(t.Context(), at, kept); err != nil {
		t.Fatal(err)
	}
	return kept
}

// The subject is the signer's own, and the authority is the NodePool's, not its coordinator's.
func TestHubsSigned(t *testing.T) {
	coordinators, secret := authority(t, "p1")
	b := hubsBench(t, secret, hubs(t, nil))
	r, err := b.answer(t, "yurthub-serving-1")
	if err != nil {
		t.Fatal(err)
	}
	got := certs.Certificates(r.Status.Certificate)
	if len(got) != 2 {
		t.Fatalf("%d certificates: %+v", len(got), r.Status)
	}
	leaf := got[0]
	switch {
	case leaf.Subject.String() != "CN=openyurt:hub:n1":
		t.Errorf("it is for %s", leaf.Subject)
	case len(leaf.DNSNames) > 0, len(leaf.IPAddresses) != 1 || !leaf.IPAddresses[0].Equal(hubsAddress):
		t.Errorf("it is for %q, %v", leaf.DNSNames, leaf.IPAddresses)
	case !slices.Equal(leaf.ExtKeyUsage, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}), leaf.IsCA:
		t.Errorf("it is for %v, authority %t", leaf.ExtKeyUsage, leaf.IsCA)
	case !leaf.NotAfter.Equal(now.Add(HubLife)):
		t.Errorf("it ends at %s", leaf.NotAfter)
	}
	roots := x509.NewCertPool()
	roots.AddCert(got[1])
	if _, err := leaf.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: now}); err != nil {
		t.Error(err)
	}
	kept := b.keptAuthority(t)
	if o := kept.OwnerReferences; len(o) != 1 || o[0].Kind != "NodePool" || o[0].UID != "pool" {
		t.Errorf("the authority belongs to %+v", o)
	}
	if bytes.Equal(kept.Data[corev1.TLSCertKey], coordinators.Cert) || leaf.CheckSignatureFrom(got[1]) != nil {
		t.Error("the coordinator's authority has signed it")
	}
	if len(b.events) > 0 {
		t.Errorf("Events: %q", b.events)
	}
}

// What an administrator says is an address of the Node is one for both who approve and who sign (docs/adr/0038).
func TestHubsSignedForTheLANAddress(t *testing.T) {
	annotated := site()
	annotated[0].SetAnnotations(map[string]string{edge.AnnotationLANAddress: "192.168.7.11"})
	lan := net.IPv4(192, 168, 7, 11)
	b := newBench(t, append(annotated, hubs(t, func(_ *csr, inner *x509.CertificateRequest) {
		inner.IPAddresses = []net.IP{lan}
	}))...)
	r, err := b.answer(t, "yurthub-serving-1")
	if err != nil {
		t.Fatal(err)
	}
	if got := certs.Certificates(r.Status.Certificate); len(got) != 2 || len(got[0].IPAddresses) != 1 ||
		!got[0].IPAddresses[0].Equal(lan) {
		t.Errorf("%d certificates: %+v", len(got), r.Status)
	}
}

func TestHubsShareAnAuthority(t *testing.T) {
	second := hubs(t, nil)
	second.Name = "yurthub-serving-2"
	b := hubsBench(t, hubs(t, nil), second)
	first, err := b.answer(t, "yurthub-serving-1")
	if err != nil {
		t.Fatal(err)
	}
	before := b.keptAuthority(t)
	next, err := b.answer(t, "yurthub-serving-2")
	if err != nil {
		t.Fatal(err)
	}
	a, c := certs.Certificates(first.Status.Certificate), certs.Certificates(next.Status.Certificate)
	if !a[1].Equal(c[1]) || c[0].CheckSignatureFrom(a[1]) != nil {
		t.Error("each has an authority of its own")
	}
	if b.keptAuthority(t).ResourceVersion != before.ResourceVersion {
		t.Error("an authority that has not changed is written")
	}
}

// Every hub knows a new authority, which comes with its own certificate, for all the time until that signs.
func TestHubsAuthorityTurns(t *testing.T) {
	lives := certs.Lives{}.Completed()
	if lives.Settle < 2*HubLife {
		t.Fatalf("hubs may not have heard of an authority that has settled for %v", lives.Settle)
	}
	all := []client.Object{hubs(t, nil)}
	for _, name := range []string{"yurthub-serving-2", "yurthub-serving-3"} {
		r := hubs(t, nil)
		r.Name = name
		all = append(all, r)
	}
	b := hubsBench(t, all...)
	var answers [][]*x509.Certificate
	late := now.Add(lives.Authority * 3 / 4)
	for i, at := range []time.Time{now, late, late.Add(lives.Settle + time.Hour)} {
		b.signer.cfg.Clock = clocktesting.NewFakePassiveClock(at)
		r, err := b.answer(t, all[i].GetName())
		if err != nil {
			t.Fatal(err)
		}
		answers = append(answers, certs.Certificates(r.Status.Certificate))
	}
	first, due, turned := answers[0], answers[1], answers[2]
	if len(due) != 3 || due[0].CheckSignatureFrom(first[1]) != nil {
		t.Fatalf("when the authority is due, %d certificates come, the first not signed by the old one", len(due))
	}
	successor := due[slices.IndexFunc(due, func(c *x509.Certificate) bool { return c.IsCA && !c.Equal(first[1]) })]
	if turned[0].CheckSignatureFrom(successor) != nil || len(turned) != 3 {
		t.Errorf("after it has settled, the successor does not sign, or the old one is forgotten: %d", len(turned))
	}
}

// of makes a request another node's.
func of(node edge.NodeName) func(*csr, *x509.CertificateRequest) {
	return func(r *csr, inner *x509.CertificateRequest) {
		r.Spec.Username, inner.Subject.CommonName = node.User(), node.User()
	}
}

func TestHubsRefused(t *testing.T) {
	for what, tt := range map[string]struct {
		change func(*csr, *x509.CertificateRequest)
		why    string
	}{
		"a person's": {func(r *csr, _ *x509.CertificateRequest) { r.Spec.Username = "alice" }, "is not a node"},
		"a node's by name alone": {func(r *csr, _ *x509.CertificateRequest) {
			r.Spec.Groups = []string{"system:authenticated"}
		}, "is not a node"},
		"of a node that is not there": {of("n9"), "no node n9"},
		"of a node in no pool":        {of("n2"), "in no pool"},
		"of a pool that is gone":      {of("n3"), "no NodePool gone"},
		"for another user": {func(_ *csr, inner *x509.CertificateRequest) {
			inner.Subject = pkix.Name{CommonName: "kubernetes", Organization: []string{"system:masters", edge.GroupDebuggers}}
		}, "not for the node that made it"},
		"for another's address": {func(_ *csr, inner *x509.CertificateRequest) {
			inner.IPAddresses = append(inner.IPAddresses, net.IPv4(10, 0, 0, 8))
		}, "10.0.0.8 is not among the addresses of node n1"},
		"for no address": {func(_ *csr, inner *x509.CertificateRequest) { inner.IPAddresses = nil }, "nothing else"},
		"for the API server's name": {func(_ *csr, inner *x509.CertificateRequest) {
			inner.DNSNames = []string{"kubernetes.default.svc"}
		}, "nothing else"},
		"for its own name": {func(_ *csr, inner *x509.CertificateRequest) { inner.DNSNames = []string{"n1"} }, "nothing else"},
		"for a URI": {func(_ *csr, inner *x509.CertificateRequest) {
			inner.URIs = []*url.URL{{Scheme: "spiffe", Host: "x"}}
		}, "nothing else"},
		"a client's": {func(r *csr, _ *x509.CertificateRequest) {
			r.Spec.Usages = append(r.Spec.Usages, certificatesv1.UsageClientAuth)
		}, `use "client auth"`},
		"rubbish": {func(r *csr, _ *x509.CertificateRequest) { r.Spec.Request = []byte("rubbish") }, "not one PEM"},
	} {
		t.Run(what, func(t *testing.T) {
			b := hubsBench(t, hubs(t, tt.change))
			r, err := b.answer(t, "yurthub-serving-1")
			if err != nil {
				t.Fatal(err)
			}
			failed := slices.IndexFunc(r.Status.Conditions, func(c certificatesv1.CertificateSigningRequestCondition) bool {
				return c.Type == certificatesv1.CertificateFailed && strings.Contains(c.Message, tt.why)
			})
			if len(r.Status.Certificate) > 0 || failed < 0 {
				t.Errorf("%+v, want refused for %q", r.Status, tt.why)
			}
			if len(b.events) != 1 || !strings.Contains(b.events[0], tt.why) {
				t.Errorf("Events: %q", b.events)
			}
		})
	}
}

// A hub's request that nobody has approved is not looked at, and an authority that can't be kept signs nothing.
func TestHubsLeft(t *testing.T) {
	b := hubsBench(t, hubs(t, func(r *csr, _ *x509.CertificateRequest) { r.Status.Conditions = nil }))
	if r, err := b.answer(t, "yurthub-serving-1"); err != nil || len(r.Status.Certificate)+len(r.Status.Conditions) > 0 {
		t.Errorf("%v, %+v", err, r.Status)
	}
	b = hubsBench(t, hubs(t, nil))
	b.refusesApply = true
	if r, err := b.answer(t, "yurthub-serving-1"); err == nil || len(r.Status.Certificate) > 0 {
		t.Errorf("%v, %+v", err, r.Status)
	}
}
