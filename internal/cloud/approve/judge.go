// Package approve grants the certificates that hubs serve Pods with, and those that kubelets of pools' nodes serve with, by
// which a coordinator knows them. No stock controller approves requests for kubernetes.io/kubelet-serving, since Kubernetes
// does not know which addresses are a node's. This one leaves all others to whom they concern.
//
// Invariants: a request is approved only if a node made it for itself, for addresses that its Node object has, none of which
// another Node has or the cluster's API server, and, a kubelet's, for the node's name; what is not approved is left as it is,
// with an Event that says why, for a person to approve or for a later look, since a node may get its addresses after it asks.
//
// A Node's addresses are what its kubelet says they are. Who has a node's identity can thus have a certificate for an address
// that nobody else has; Pods of other nodes have no reason to go there. Other names than its own, which it may claim as well,
// it gets none for: the same authority signs for the API server.
package approve

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"

	"yurtcoordinator/internal/edge"
)

// requestPrefix begins the names of hubs' requests; see package identity of the hub.
const requestPrefix = "yurthub-serving-"

// waits reports whether a request is for a node's server, and not answered yet.
func waits(r *certificatesv1.CertificateSigningRequest) bool {
	return r.Spec.SignerName == certificatesv1.KubeletServingSignerName &&
		len(r.Status.Conditions) == 0 && len(r.Status.Certificate) == 0
}

// isHubs reports whether a request is a hub's; else it is a kubelet's.
func isHubs(r *certificatesv1.CertificateSigningRequest) bool {
	return strings.HasPrefix(r.Name, requestPrefix)
}

// nodeOf is the node that made a request; empty if none did.
func nodeOf(r *certificatesv1.CertificateSigningRequest) edge.NodeName {
	name, ok := strings.CutPrefix(r.Spec.Username, edge.NodeName("").User())
	if !ok || !slices.Contains(r.Spec.Groups, edge.GroupNodes) {
		return ""
	}
	return edge.NodeName(name)
}

// Judge returns nil if a request of a node may be granted, else why not. taken says whose else an address is; empty:
// nobody's.
func Judge(r *certificatesv1.CertificateSigningRequest, node *corev1.Node, taken func(net.IP) string) error {
	if nodeOf(r) != edge.NodeName(node.Name) || node.Name == "" {
		return fmt.Errorf("%s asked for it, not node %s", r.Spec.Username, node.Name)
	}
	asked, err := decode(r.Spec.Request)
	if err != nil {
		return err
	}
	if asked.Subject.CommonName != r.Spec.Username || !slices.Equal(asked.Subject.Organization, []string{edge.GroupNodes}) {
		return fmt.Errorf("it is for %s, not for the node that asked for it", asked.Subject)
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
			return fmt.Errorf("%s is an address of %s, too", ip, whose)
		}
	}
	return nil
}

// names returns an error unless a request is for IP addresses, and for no name but, a kubelet's, its node's.
func names(asked *x509.CertificateRequest, node *corev1.Node, hubs bool) error {
	if len(asked.EmailAddresses)+len(asked.URIs) > 0 || len(asked.IPAddresses) == 0 || hubs && len(asked.DNSNames) > 0 {
		return errors.New("want IP addresses in it, and nothing else")
	}
	for _, name := range asked.DNSNames {
		if name != node.Name || name == "kubernetes" || strings.HasPrefix(name, "kubernetes.") {
			return fmt.Errorf("%s is not the node's own name", name)
		}
	}
	return nil
}

func decode(encoded []byte) (*x509.CertificateRequest, error) {
	block, rest := pem.Decode(encoded)
	if block == nil || block.Type != "CERTIFICATE REQUEST" || len(rest) > 0 {
		return nil, errors.New("it is not one certificate request in PEM form")
	}
	asked, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, errors.New("it cannot be read")
	}
	if err := asked.CheckSignature(); err != nil {
		return nil, errors.New("it is not signed with its own key")
	}
	return asked, nil
}

func has(node *corev1.Node, ip net.IP) bool {
	return slices.ContainsFunc(node.Status.Addresses, func(a corev1.NodeAddress) bool {
		return ip.Equal(net.ParseIP(a.Address))
	})
}
