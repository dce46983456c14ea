package approve

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

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
		ObjectMeta: metav1.ObjectMeta{Name: "yurthub-serving-1", CreationTimestamp: metav1.NewTime(made)},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			SignerName: edge.SignerHubs, Username: "system:node:n1",
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

// node is one of a pool, unpooled one of none.
func node(name string, ips ...net.IP) *corev1.Node {
	n := unpooled(name, ips...)
	n.Labels = map[string]string{edge.LabelNodePool: "p1"}
	return n
}

func unpooled(name string, ips ...net.IP) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: name}}
	for _, ip := range ips {
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: ip.String()})
	}
	return n
}

// kubelets is what a node's kubelet asks for, with names.
func kubelets(names ...string) func(*certificatesv1.CertificateSigningRequest, *asked) {
	return func(r *certificatesv1.CertificateSigningRequest, a *asked) {
		r.Name, r.Spec.SignerName, a.DNSNames = "csr-x7k2p", certificatesv1.KubeletServingSignerName, names
		if slices.Contains(names, "kubernetes") {
			r.Spec.Username, a.Subject.CommonName = "system:node:kubernetes", "system:node:kubernetes"
		}
	}
}

// here is a Situation in which kubelets may serve within 10.0.0.0/24 and fd00::/64 and have names of one part.
func here(t *testing.T) Situation {
	t.Helper()
	allowed, err := ParseAllowed([]string{"10.0.0.0/24", "fd00::/64", "10.96.0.0/16"}, []string{"*", "*.site-7.example.com"})
	if err != nil {
		t.Fatal(err)
	}
	reserved := newReserved()
	reserved.addAddress("10.0.0.100", apiServer)
	reserved.addHost("api.site-7.example.com", apiServer)
	reserved.addService(master())
	reserved.addService(&corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"},
		Spec:       corev1.ServiceSpec{ClusterIPs: []string{"10.96.0.7"}, ExternalIPs: []string{"10.0.0.50"}},
		Status: corev1.ServiceStatus{LoadBalancer: corev1.LoadBalancerStatus{Ingress: []corev1.LoadBalancerIngress{
			{IP: "10.0.0.51"}, {Hostname: "lb"},
		}}},
	})
	return Situation{Allowed: allowed, Reserved: reserved, Others: func(netip.Addr) (string, error) { return "", nil }}
}

// asks is what a node's kubelet asks for: names and addresses.
func asks(name string, names []string, ips ...string) func(*certificatesv1.CertificateSigningRequest, *asked) {
	return func(r *certificatesv1.CertificateSigningRequest, a *asked) {
		kubelets(names...)(r, a)
		r.Spec.Username, a.Subject.CommonName, a.IPAddresses = "system:node:"+name, "system:node:"+name, nil
		for _, ip := range ips {
			a.IPAddresses = append(a.IPAddresses, net.ParseIP(ip))
		}
	}
}

// Whatever a node says of itself, it gets no certificate for the API server or a Service, nor beyond what a person has allowed.
func TestWhatNobodyServesAt(t *testing.T) {
	for _, tt := range []struct {
		name  string // of the node, for which the certificate is
		names []string
		ips   []string
		why   string // part of the reason; empty: it is granted
	}{
		{"n1", []string{"n1"}, []string{"10.0.0.7", "fd00::7"}, ""},
		{"n1", []string{"n1"}, []string{"10.0.1.7"}, "10.0.1.7 is not within"},
		{"n1", []string{"n1"}, []string{"10.0.0.7", "192.168.0.7"}, "192.168.0.7 is not within"},
		{"n1", []string{"n1"}, []string{"10.0.0.100"}, "10.0.0.100 is an address of the API server"},
		{"n1", []string{"n1"}, []string{"::ffff:10.0.0.100"}, "10.0.0.100 is an address of the API server"},
		{"n1", []string{"n1"}, []string{"10.96.0.1"}, "an address of the API server"},
		{"n1", []string{"n1"}, []string{"10.96.0.7"}, "an address of Service shop/web"},
		{"n1", []string{"n1"}, []string{"10.0.0.50"}, "an address of Service shop/web"},
		{"n1", []string{"n1"}, []string{"10.0.0.51"}, "an address of Service shop/web"},
		{"n1", []string{"n1"}, []string{"127.0.0.1"}, "127.0.0.1 is not within"},
		{"n1.site-7.example.com", []string{"n1.site-7.example.com"}, []string{"10.0.0.7"}, ""},
		{"api.site-7.example.com", []string{"api.site-7.example.com"}, []string{"10.0.0.7"}, "a name of the API server"},
		{"api.site-7", []string{"api.site-7"}, []string{"10.0.0.7"}, "a name of the API server"},
		{"api", []string{"api"}, []string{"10.0.0.7"}, "a name of the API server"},
		{"n1.elsewhere.com", []string{"n1.elsewhere.com"}, []string{"10.0.0.7"}, "n1.elsewhere.com is not within"},
		{"a.b.site-7.example.com", []string{"a.b.site-7.example.com"}, []string{"10.0.0.7"}, "is not within"},
		{"kubernetes", []string{"kubernetes"}, []string{"10.0.0.7"}, "a name of the API server"},
		{"kubernetes.default.svc.cluster.local", []string{"kubernetes.default.svc.cluster.local"}, []string{"10.0.0.7"},
			"a name of the API server"},
		{"web", []string{"web"}, []string{"10.0.0.7"}, "a name of Service shop/web"},
		{"web.shop", []string{"web.shop"}, []string{"10.0.0.7"}, "a name of Service shop/web"},
		{"new.shop.svc", []string{"new.shop.svc"}, []string{"10.0.0.7"}, "a name of Services"},
		{"lb", []string{"lb"}, []string{"10.0.0.7"}, "a name of Service shop/web"},
		{"localhost", []string{"localhost"}, []string{"10.0.0.7"}, "a name of every machine"},
		{"api", nil, []string{"10.0.0.7"}, ""}, // for its address alone
		{"n1", []string{"n1"}, slices.Repeat([]string{"10.0.0.7"}, maxAddresses+1), "9 addresses, more than 8"},
	} {
		its := node(tt.name)
		for _, ip := range tt.ips {
			its.Status.Addresses = append(its.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: ip})
		}
		r := request(t, asks(tt.name, tt.names, tt.ips...))
		why, err := Judge(r, its, here(t))
		if err != nil || (why == nil) != (tt.why == "") || why != nil && !strings.Contains(why.Error(), tt.why) {
			t.Errorf("%v at %v: %v, %v, want %q", tt.names, tt.ips, why, err, tt.why)
		}
		nothing := here(t)
		nothing.Allowed = Allowed{}
		if why, err := Judge(r, its, nothing); why == nil || err != nil {
			t.Errorf("where nothing is allowed, %v at %v: %v, %v", tt.names, tt.ips, why, err)
		}
	}
	// A hub's are not within what is allowed for kubelets, and not at the API server either.
	r := request(t, func(_ *certificatesv1.CertificateSigningRequest, a *asked) {
		a.IPAddresses = []net.IP{net.IPv4(10, 0, 0, 100)}
	})
	if why, err := Judge(r, node("n1", net.IPv4(10, 0, 0, 100)), here(t)); err != nil || why == nil ||
		!strings.Contains(why.Error(), "the API server") {
		t.Errorf("a hub's: %v, %v", why, err)
	}
}

func TestWhatIsAllowed(t *testing.T) {
	for _, tt := range []struct {
		cidrs, names []string
		err          string
	}{
		{nil, nil, ""},
		{[]string{"10.0.0.0/8", "fd00::/48", "10.1.2.3/32"}, []string{"*", "edge-*", "*.a.example.com", "n*.b"}, ""},
		{[]string{"10.0.0.0"}, nil, "want a CIDR"},
		{[]string{"0.0.0.0/0"}, nil, "allows any address"},
		{[]string{"::/0"}, nil, "allows any address"},
		{[]string{"10.0.0.1/8"}, nil, "want 10.0.0.0/8"},
		{[]string{"10.0.0.0/8"}, []string{""}, "want a DNS name"},
		{[]string{"10.0.0.0/8"}, []string{"N1"}, "want a DNS name"},
		{[]string{"10.0.0.0/8"}, []string{"a["}, "want a DNS name"},
		{[]string{"10.0.0.0/8"}, []string{"a..b"}, "want a DNS name"},
		{[]string{"10.0.0.0/8"}, []string{"a/b"}, "want a DNS name"},
	} {
		_, err := ParseAllowed(tt.cidrs, tt.names)
		if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%q, %q: %v, want %q", tt.cidrs, tt.names, err, tt.err)
		}
	}
	a, err := ParseAllowed([]string{"10.0.0.0/24"}, []string{"edge-*", "*.a.example.com"})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{
		"edge-7": true, "edge": false, "xedge-7": false, "n.a.example.com": true, "n.b.example.com": false,
		"a.example.com":     false,
		"m.n.a.example.com": false, "edge-7.a": false, "": false,
	} {
		if a.name(name) != want {
			t.Errorf("%q is allowed: %t", name, !want)
		}
	}
}

func TestWhatIsSaidIsBounded(t *testing.T) {
	long := strings.Repeat("ü", 10_000)
	r := request(t, func(_ *certificatesv1.CertificateSigningRequest, a *asked) { a.Subject.CommonName = long })
	why, err := Judge(r, node("n1", address), here(t))
	if err != nil || why == nil {
		t.Fatal(why, err)
	}
	if said := bounded(why.Error()); len(said) > maxReason+len("…") || !utf8.ValidString(said) || !strings.HasSuffix(said, "…") {
		t.Errorf("%d bytes: %q", len(said), said)
	}
	if bounded("short") != "short" {
		t.Error("what is short is cut")
	}
}

func TestJudge(t *testing.T) {
	type csr = *certificatesv1.CertificateSigningRequest
	for _, tt := range []struct {
		name   string
		change func(csr, *asked)
		node   *corev1.Node
		others func(netip.Addr) (string, error)
		want   string // part of the reason; empty: it is granted
	}{
		{"a hub's", nil, nil, nil, ""},
		{"a hub's in no pool", nil, unpooled("n1", address), nil, "in no pool"},
		{"a hub's for the API server's address", func(_ csr, a *asked) { a.IPAddresses = []net.IP{masterIP} },
			node("n1", masterIP), nil, "an address of the API server"},
		{"a hub's with its name", func(_ csr, a *asked) { a.DNSNames = []string{"n1"} }, nil, nil, "nothing else"},
		{"a hub's of before, judged as a kubelet's", func(r csr, a *asked) {
			r.Spec.SignerName, a.IPAddresses = certificatesv1.KubeletServingSignerName, []net.IP{net.IPv4(192, 0, 2, 7)}
		}, node("n1", net.IPv4(192, 0, 2, 7)), nil, "not within controller.kubeletServing.cidrs"},
		{"IPv6", func(_ csr, a *asked) { a.IPAddresses = []net.IP{net.ParseIP("fd00::7")} },
			node("n1", net.ParseIP("fd00::7")), nil, ""},
		{"another node's", func(r csr, _ *asked) { r.Spec.Username = "system:node:n2" }, nil, nil, `"system:node:n2" made it`},
		{"nobody's", func(r csr, _ *asked) { r.Spec.Username = "mallory" }, nil, nil, `"mallory" made it`},
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
		{"an address that is claimed", nil, nil, func(netip.Addr) (string, error) { return "n2", nil },
			"10.0.0.7 is also an address of node n2"},
		{"rubbish", func(r csr, _ *asked) { r.Spec.Request = []byte("rubbish") }, nil, nil, "not one PEM certificate request"},
		{"rubbish in PEM form", func(r csr, _ *asked) {
			r.Spec.Request = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: []byte("rubbish")})
		}, nil, nil, "can't be read"},
		{"a kubelet's", kubelets(), nil, nil, ""},
		{"a kubelet's, with its name", kubelets("n1"), nil, nil, ""},
		{"a kubelet's, with another's name", kubelets("n1", "n2"), nil, nil, `"n2" is not the node's own name`},
		{"a kubelet's, with the API server's", kubelets("kubernetes.default.svc"), nil, nil, "not the node's own name"},
		{"a kubelet's, of a node that is called so", kubelets("kubernetes"), node("kubernetes", address), nil,
			"a name of the API server"},
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
			of, s := tt.node, here(t)
			if of == nil {
				of = node("n1", address)
			}
			if tt.others != nil {
				s.Others = tt.others
			}
			r := request(t, tt.change)
			if !waits(r) {
				t.Error("it does not concern us")
			}
			why, err := Judge(r, of, s)
			if err != nil || (why == nil) != (tt.want == "") || why != nil && !strings.Contains(why.Error(), tt.want) {
				t.Errorf("%v, %v, want %q", why, err, tt.want)
			}
		})
	}
}

func TestAForgedSignatureIsRefused(t *testing.T) {
	r := request(t, nil)
	block, _ := pem.Decode(r.Spec.Request)
	block.Bytes[len(block.Bytes)-1] ^= 1
	r.Spec.Request = pem.EncodeToMemory(block)
	if why, err := Judge(r, node("n1", address), here(t)); why == nil || err != nil {
		t.Error("it is granted", err)
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
