// Package approve approves two kinds of serving certificates: those that hubs serve Pods with, and those of kubelets in
// pools, by which a coordinator verifies them. No stock controller approves requests for kubernetes.io/kubelet-serving,
// because Kubernetes does not know which addresses belong to a node. This controller leaves all other requests alone.
//
// Invariants: a request is approved only if a node made it for itself, for addresses of its Node object that neither
// another Node nor the cluster's API server has, and for no name but, in a kubelet's, the node's own. Any other request
// stays as it is, with an Event that says why: a person may approve it, or a later look, because a node may get its
// addresses after it asks.
//
// A kubelet itself says which addresses its Node has. So whoever has a node's identity can get a certificate for an
// address that nobody else has; Pods of other nodes have no reason to go there. Names other than the node's own, which
// it might claim as well, are refused: the same authority signs for the API server.
package approve

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"

	"yurtcoordinator/internal/cloud/certs"
	"yurtcoordinator/internal/edge"
)

// requestPrefix begins the names of hubs' requests; see package identity of the hub.
const requestPrefix = "yurthub-serving-"

// waits reports whether a request is for a node's server and still unanswered.
func waits(r *certificatesv1.CertificateSigningRequest) bool {
	return r.Spec.SignerName == certificatesv1.KubeletServingSignerName &&
		len(r.Status.Conditions) == 0 && len(r.Status.Certificate) == 0
}

// isHubs reports whether a hub made the request; otherwise a kubelet did.
func isHubs(r *certificatesv1.CertificateSigningRequest) bool {
	return strings.HasPrefix(r.Name, requestPrefix)
}

// nodeOf returns the node that made a request; empty means none.
func nodeOf(r *certificatesv1.CertificateSigningRequest) edge.NodeName {
	name, ok := strings.CutPrefix(r.Spec.Username, edge.NodeName("").User())
	if !ok || !slices.Contains(r.Spec.Groups, edge.GroupNodes) {
		return ""
	}
	return edge.NodeName(name)
}

// Judge returns nil if a node's request may be approved, else the reason why not. taken returns who else has an
// address; empty means nobody.
func Judge(r *certificatesv1.CertificateSigningRequest, node *corev1.Node, taken func(net.IP) string) error {
	if nodeOf(r) != edge.NodeName(node.Name) || node.Name == "" {
		return fmt.Errorf("%s made it, not node %s", r.Spec.Username, node.Name)
	}
	asked, err := certs.ParseRequest(r.Spec.Request)
	if err != nil {
		return err
	}
	if asked.Subject.CommonName != r.Spec.Username || !slices.Equal(asked.Subject.Organization, []string{edge.GroupNodes}) {
		return fmt.Errorf("it is for %s, not for the node that made it", asked.Subject)
	}
	for _, u := range r.Spec.Usages {
		if !slices.Contains([]certificatesv1.KeyUsage{
			certificatesv1.UsageDigitalSignature, certificatesv1.UsageKeyEncipherment, certificatesv1.UsageServerAuth,
		}, u) {
			return fmt.Errorf("it is for the use %q", u)
		}
	}
	if err := names(asked, node, isHubs(r)); err != nil {
		return err
	}
	for _, ip := range asked.IPAddresses {
		if !has(node, ip) {
			return fmt.Errorf("%s is not among the addresses of node %s", ip, node.Name)
		}
		if whose := taken(ip); whose != "" {
			return fmt.Errorf("%s is also an address of %s", ip, whose)
		}
	}
	return nil
}

// names fails unless a request is for IP addresses only. A kubelet may also ask for its node's name.
func names(asked *x509.CertificateRequest, node *corev1.Node, hubs bool) error {
	if len(asked.EmailAddresses)+len(asked.URIs) > 0 || len(asked.IPAddresses) == 0 || hubs && len(asked.DNSNames) > 0 {
		return errors.New("it must be for IP addresses, and nothing else")
	}
	for _, name := range asked.DNSNames {
		if name != node.Name || name == "kubernetes" || strings.HasPrefix(name, "kubernetes.") {
			return fmt.Errorf("%s is not the node's own name", name)
		}
	}
	return nil
}

func has(node *corev1.Node, ip net.IP) bool {
	return slices.ContainsFunc(node.Status.Addresses, func(a corev1.NodeAddress) bool {
		return ip.Equal(net.ParseIP(a.Address))
	})
}
