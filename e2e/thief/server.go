package thief

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"yurtcoordinator/e2e/kit"
	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/lab"
)

var serverScenarios = []kit.Scenario{{
	Name: "forged-server", Lab: kit.OnePool, Run: forgedServer,
	Doc: "Whoever has a node's certificate claims the API server's address, a Service's and others, and asks for serving " +
		"certificates for them a hundred times, at its pool's authority too. None is approved, except for an address that " +
		"a person has allowed and nobody else has, and for its own hub's name.",
}}

// serverTries is how long the controller has to approve what it must not: it judges again after 2, 4 and 8 s.
const serverTries = 12 * time.Second

// crowd is how many requests the thief makes.
const crowd = 100

func forgedServer(t *kit.T) {
	t.Pool.Settled(30 * time.Second)
	thief := t.Pool.Follower()
	other := t.Pool.Follower(thief)
	client := nodeClient(t, thief)
	server := cloudAddress(t)
	service, err := t.Cloud.CoreV1().Services(metav1.NamespaceDefault).Get(t.Ctx, "kubernetes", metav1.GetOptions{})
	t.Must(err)
	own := t.Node(thief).Address()
	free := own[:strings.LastIndex(own, ".")] + ".199" // in the site's network, and nobody's
	t.Must(t.Lab.Node(t.Ctx, lab.Kill, thief, lab.KubeletC))
	claim(t, client, thief, own, server, service.Spec.ClusterIP, free, "192.0.2.7")

	refused := map[string]string{
		ask(t, client, thief, "yurthub-serving-forged", server): "as a hub's, for the API server's address",
		ask(t, client, thief, "", server):                       "for the API server's address",
		ask(t, client, thief, "", own, server):                  "for its own address and the API server's",
		ask(t, client, thief, "", service.Spec.ClusterIP):       "for the address of a Service",
		ask(t, client, thief, "", "192.0.2.7"):                  "for an address that no person has allowed",
	}
	t.Hold(time.Second, "the newest requests of a node are looked at, by whole seconds")
	allowed := ask(t, client, thief, "", free)
	t.Eventually(30*time.Second, "a request for an address that a person has allowed is approved", func() error {
		return approvedNow(t, allowed)
	})
	t.Hold(serverTries, "the others are judged several times")
	for name, what := range refused {
		if approvedNow(t, name) == nil {
			t.Fail("%s has a certificate %s", thief, what)
		}
	}
	hubs := askAt(t, client, thief, edge.SignerHubs, "", own)
	t.Eventually(30*time.Second, "its pool's authority signs for a hub at the node's own address", func() error {
		return signedForHub(t, hubs, thief)
	})
	refused = askHubs(t, client, thief, server, service.Spec.ClusterIP, t.Node(other).Address())
	t.Hold(serverTries, "other requests for hubs are judged several times")
	for name, what := range refused {
		if approvedNow(t, name) == nil {
			t.Fail("%s has a certificate %s", thief, what)
		}
	}
	events, err := t.Cloud.CoreV1().Events(metav1.NamespaceDefault).List(t.Ctx, metav1.ListOptions{
		FieldSelector: "reason=KubeletServing",
	})
	t.Must(err)
	if len(events.Items) == 0 {
		t.Fail("no Event says why a request is not approved")
	}
	for _, e := range events.Items {
		t.Say("Event of %s: %s", e.InvolvedObject.Name, e.Message)
	}

	t.Say("%s asks %d times more", thief, crowd)
	for range crowd {
		ask(t, client, thief, "", "192.0.2.7")
	}
	honest := ask(t, nodeClient(t, other), other, "", t.Node(other).Address())
	took := t.Eventually(30*time.Second, "another node's request is approved all the same", func() error {
		return approvedNow(t, honest)
	})
	t.Figure("honest_among_crowd_s", took.Seconds())
}

// cloudAddress returns an address of the API server.
func cloudAddress(t *kit.T) string {
	slices, err := t.Cloud.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault).Get(t.Ctx, "kubernetes", metav1.GetOptions{})
	t.Must(err)
	if len(slices.Endpoints) == 0 || len(slices.Endpoints[0].Addresses) == 0 {
		t.Fail("nothing is behind default/kubernetes")
	}
	return slices.Endpoints[0].Addresses[0]
}

// claim has a node say that it has addresses.
func claim(t *kit.T, client kubernetes.Interface, node string, ips ...string) {
	all := []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: node}}
	for _, ip := range ips {
		all = append(all, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: ip})
	}
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"addresses": all}})
	t.Must(err)
	_, err = client.CoreV1().Nodes().Patch(t.Ctx, node, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	t.Must(err)
}

// ask has a node ask for a serving certificate for addresses, and returns the request's name.
func ask(t *kit.T, client kubernetes.Interface, node, name string, ips ...string) string {
	return askAt(t, client, node, certificatesv1.KubeletServingSignerName, name, ips...)
}

// askHubs has a node ask its pool's authority for what no hub is to have, and returns the requests' names with what they are
// for. Of the newest requests of a node four are looked at, so these are as many.
func askHubs(t *kit.T, client kubernetes.Interface, node, server, service, others string) map[string]string {
	at := func(host string) string { return askAt(t, client, node, edge.SignerHubs, "", host) }
	return map[string]string{
		at(server):                   "of its pool's authority, for the API server's address",
		at(service):                  "of its pool's authority, for the address of a Service",
		at(others):                   "of its pool's authority, for another node's address",
		at("kubernetes.default.svc"): "of its pool's authority, for the API server's name",
	}
}

// signedForHub fails unless a request has a certificate for the hub of a node, in no group, and nothing else.
func signedForHub(t *kit.T, name, node string) error {
	r, err := t.Cloud.CertificatesV1().CertificateSigningRequests().Get(t.Ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	block, rest := pem.Decode(r.Status.Certificate)
	if block == nil {
		return fmt.Errorf("%s has none: %v", name, r.Status.Conditions)
	}
	leaf, err := x509.ParseCertificate(block.Bytes)
	t.Must(err)
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(rest) {
		t.Fail("no authority comes with the certificate of %s", name)
	}
	if _, err := leaf.Verify(x509.VerifyOptions{Roots: roots}); err != nil {
		t.Fail("the authority that comes with it does not verify the certificate of %s: %v", name, err)
	}
	if want := "CN=" + edge.NodeName(node).HubUser(); leaf.Subject.String() != want || len(leaf.DNSNames) > 0 {
		t.Fail("%s is for %s and %q, want %s", name, leaf.Subject, leaf.DNSNames, want)
	}
	return nil
}

// askAt is ask, at a signer. What is no address is a name.
func askAt(t *kit.T, client kubernetes.Interface, node, signer, name string, hosts ...string) string {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	t.Must(err)
	request := &x509.CertificateRequest{Subject: pkix.Name{
		CommonName: edge.NodeName(node).User(), Organization: []string{edge.GroupNodes},
	}}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			request.IPAddresses = append(request.IPAddresses, ip)
		} else {
			request.DNSNames = append(request.DNSNames, host)
		}
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, request, key)
	t.Must(err)
	r := &certificatesv1.CertificateSigningRequest{Spec: certificatesv1.CertificateSigningRequestSpec{
		Request:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
		SignerName: signer,
		Usages:     []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageServerAuth},
	}}
	r.Name, r.GenerateName = name, "csr-forged-"
	made, err := client.CertificatesV1().CertificateSigningRequests().Create(t.Ctx, r, metav1.CreateOptions{})
	t.Must(err)
	return made.Name
}

// approvedNow fails unless a request is approved.
func approvedNow(t *kit.T, name string) error {
	r, err := t.Cloud.CertificatesV1().CertificateSigningRequests().Get(t.Ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	for _, c := range r.Status.Conditions {
		if c.Type == certificatesv1.CertificateApproved {
			return nil
		}
	}
	return fmt.Errorf("%s is not: %v", name, r.Status.Conditions)
}
