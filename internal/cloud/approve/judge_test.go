package approve

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"net"
	"net/url"
	"slices"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yurtcoordinator/internal/edge"
)

var address, masterIP = net.IPv4(10, 0, 0, 7), net.IPv4(10, 96, 0, 1)

type asked = x509.CertificateRequest

// request is what a hub asks for, but for a change.
func request(
	t *testing.T, change func(*certificatesv1.CertificateSigningRequest, *x509.CertificateRequest),
) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	request := &x509.CertificateRequest{
		Subject:     pkix.Name{CommonName: "system:node:n1", Organization: []string{"system:nodes"}},
		IPAddresses: []net.IP{address},
	}
	r := &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: requestPrefix + "1", CreationTimestamp: metav1.NewTime(made)},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			SignerName: certificatesv1.KubeletServingSignerName, Username: "system:node:n1",
			Groups: []string{"system:authenticated", "system:nodes"},
			Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageServerAuth},
		},
	}
	if change != nil {
		change(r, request)
	}
	if r.Spec.Request == nil {
		der, err := x509.CreateCertificateRequest(rand.Reader, request, key)
		if err != nil {
			t.Fatal(err)
		}
		r.Spec.Request = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
	}
	return r
}

func node(name string, ips ...net.IP) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: name}}
	for _, ip := range ips {
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: ip.String()})
	}
	return n
}

// named is a node of any name, kubelets what its kubelet asks for, with names.
func named(name string, ips ...net.IP) *corev1.Node {
	n := node(name, ips...)
	n.Labels = map[string]string{edge.LabelNodePool: "p1"}
	return n
}

func kubelets(names ...string) func(*certificatesv1.CertificateSigningRequest, *asked) {
	return func(r *certificatesv1.CertificateSigningRequest, a *asked) {
		r.Name, a.DNSNames = "csr-x7k2p", names
		if slices.Contains(names, "kubernetes") {
			r.Spec.Username, a.Subject.CommonName = "system:node:kubernetes", "system:node:kubernetes"
		}
	}
}

func TestJudge(t *testing.T) {
	type csr = *certificatesv1.CertificateSigningRequest
	free := func(net.IP) string { return "" }
	for _, tt := range []struct {
		name   string
		change func(csr, *asked)
		node   *corev1.Node
		taken  func(net.IP) string
		want   string // part of the reason; empty: it is granted
	}{
		{"a hub's", nil, nil, nil, ""},
		{"IPv6", func(_ csr, a *asked) { a.IPAddresses = []net.IP{net.ParseIP("fd00::7")} },
			node("n1", net.ParseIP("fd00::7")), nil, ""},
		{"another node's", func(r csr, _ *asked) { r.Spec.Username = "system:node:n2" }, nil, nil, "system:node:n2 made it"},
		{"nobody's", func(r csr, _ *asked) { r.Spec.Username = "mallory" }, nil, nil, "mallory made it"},
		{"a node's by name only", func(r csr, _ *asked) { r.Spec.Groups = []string{"system:authenticated"} },
			nil, nil, "made it"},
		{"in another name", func(_ csr, a *asked) { a.Subject.CommonName = "system:node:n2" }, nil, nil, "not for the node that"},
		{"of more groups", func(_ csr, a *asked) { a.Subject.Organization = []string{"system:nodes", "system:masters"} },
			nil, nil, "not for the node that"},
		{"a client's", func(r csr, _ *asked) { r.Spec.Usages = append(r.Spec.Usages, certificatesv1.UsageClientAuth) },
			nil, nil, `use "client auth"`},
		{"a name", func(_ csr, a *asked) { a.DNSNames = []string{"kubernetes.default.svc"} }, nil, nil, "nothing else"},
		{"a mail address", func(_ csr, a *asked) { a.EmailAddresses = []string{"a@b"} }, nil, nil, "nothing else"},
		{"a URI", func(_ csr, a *asked) { a.URIs = []*url.URL{{Scheme: "spiffe", Host: "x"}} }, nil, nil, "nothing else"},
		{"nothing", func(_ csr, a *asked) { a.IPAddresses = nil }, nil, nil, "must be for IP addresses"},
		{"another address", func(_ csr, a *asked) { a.IPAddresses = append(a.IPAddresses, net.IPv4(10, 96, 0, 1)) },
			nil, nil, "10.96.0.1 is not among the addresses of node n1"},
		{"a node without addresses", nil, node("n1"), nil, "10.0.0.7 is not among"},
		{"an address that is claimed", nil, nil, func(net.IP) string { return "node n2" },
			"10.0.0.7 is also an address of node n2"},
		{"rubbish", func(r csr, _ *asked) { r.Spec.Request = []byte("rubbish") }, nil, nil, "not one PEM certificate request"},
		{"rubbish in PEM form", func(r csr, _ *asked) {
			r.Spec.Request = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: []byte("rubbish")})
		}, nil, nil, "can't be read"},
		{"a kubelet's", kubelets(), nil, nil, ""},
		{"a kubelet's, with its name", kubelets("n1"), nil, nil, ""},
		{"a kubelet's, with another's name", kubelets("n1", "n2"), nil, nil, "n2 is not the node's own name"},
		{"a kubelet's, with the API server's", kubelets("kubernetes.default.svc"), nil, nil, "not the node's own name"},
		{"a kubelet's, of a node that is called so", kubelets("kubernetes"), named("kubernetes", address), nil, "own name"},
		{"a kubelet's, for a name alone", func(r csr, a *asked) {
			kubelets("n1")(r, a)
			a.IPAddresses = nil
		}, nil, nil, "must be for IP addresses"},
		{"two", func(r csr, _ *asked) {
			one := request(t, nil).Spec.Request
			r.Spec.Request = slices.Concat(one, one)
		}, nil, nil, "not one PEM certificate request"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			of, taken := tt.node, tt.taken
			if of == nil {
				of = node("n1", address)
			}
			if taken == nil {
				taken = free
			}
			r := request(t, tt.change)
			if !waits(r) {
				t.Error("it does not concern us")
			}
			err := Judge(r, of, taken)
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %q", err, tt.want)
			}
		})
	}
}

func TestAForgedSignatureIsRefused(t *testing.T) {
	r := request(t, nil)
	block, _ := pem.Decode(r.Spec.Request)
	block.Bytes[len(block.Bytes)-1] ^= 1
	r.Spec.Request = pem.EncodeToMemory(block)
	if err := Judge(r, node("n1", address), func(net.IP) string { return "" }); err == nil {
		t.Error("it is granted")
	}
}

func TestWhatConcernsUs(t *testing.T) {
	for name, change := range map[string]func(*certificatesv1.CertificateSigningRequest){
		"another signer's": func(r *certificatesv1.CertificateSigningRequest) {
			r.Spec.SignerName = certificatesv1.KubeAPIServerClientSignerName
		},
		"denied": func(r *certificatesv1.CertificateSigningRequest) {
			r.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateDenied}}
		},
		"issued": func(r *certificatesv1.CertificateSigningRequest) { r.Status.Certificate = []byte("c") },
	} {
		r := request(t, nil)
		change(r)
		if waits(r) {
			t.Errorf("one that is %s concerns us", name)
		}
	}
}
