// Package approve approves certificates of three kinds. The first are serving certificates of hubs, which their pool's authority
// signs (package operators). The second are serving certificates of pools' kubelets, which the cluster's authority signs, so that
// a coordinator can verify kubelets. The third are client certificates with which coordinators call kubelets. A program with the
// right to approve for a signer can get any certificate that the signer signs. So one program requests, and another approves: in
// the chart that is coordinator-approver (docs/adr/0029).
//
// No stock controller approves requests for kubernetes.io/kubelet-serving, because Kubernetes does not know which addresses
// belong to a node. This controller leaves all other requests alone.
//
// A kubelet itself decides which addresses and which name its Node has when it registers. The authority that signs for kubelets
// also signs for the API server. So a node with a certificate for the API server's address or name could impersonate the cloud.
// What a node says of itself is therefore not enough.
//
// Invariants: a request for a serving certificate is approved only if a node made it for itself, for addresses of its Node object
// that no other Node has. A kubelet's request is approved only for addresses that a person has allowed. It may name the node's
// own name if a person has allowed that, and no other. No such request is approved for an address or a name of the API server, or
// of any Service. If any of these facts can't be read, that is an error, and nothing is approved. For client certificates see
// JudgeCoordinators.
//
// Any other request stays as it is, with an Event that says why; a kubelet in no pool gets no Event. A person may still approve
// the request. This controller may approve it when it looks again, because a node can get its addresses after it asks. It looks
// only at the newest few requests of one node.
package approve

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"

	"yurtcoordinator/internal/cloud/certs"
	"yurtcoordinator/internal/edge"
)

const (
	// maxAddresses bounds the addresses that one certificate is for: a node has a few of each family.
	maxAddresses = 8
	// maxReason bounds what is said of a request, in bytes: a node writes what is in it, and an Event takes 1 KiB.
	maxReason = 400
)

// waits reports whether a request is for a node's server or a pool's coordinator, and still unanswered.
func waits(r *certificatesv1.CertificateSigningRequest) bool {
	return (r.Spec.SignerName == certificatesv1.KubeletServingSignerName || isHubs(r) || isCoordinators(r)) &&
		len(r.Status.Conditions) == 0 && len(r.Status.Certificate) == 0
}

// isHubs reports whether a hub asks its pool's authority, which signs for hubs alone; otherwise a kubelet asks the cluster's.
func isHubs(r *certificatesv1.CertificateSigningRequest) bool {
	return r.Spec.SignerName == edge.SignerHubs
}

// NodeOf returns the node that made a request; empty means none.
func NodeOf(r *certificatesv1.CertificateSigningRequest) edge.NodeName {
	name, ok := strings.CutPrefix(r.Spec.Username, edge.NodeName("").User())
	if !ok || !slices.Contains(r.Spec.Groups, edge.GroupNodes) {
		return ""
	}
	return edge.NodeName(name)
}

// Allowed is what a person has allowed kubelets to serve at. The zero value allows nothing.
type Allowed struct {
	addresses []netip.Prefix
	names     []string
}

// ParseAllowed reads addresses as CIDRs, such as 192.168.7.0/24 and fd00:7::/64, and patterns of names, such as
// *.site-7.example.com. In a pattern, * stands for any text without a dot.
func ParseAllowed(cidrs, names []string) (a Allowed, err error) {
	for _, text := range cidrs {
		p, err := netip.ParsePrefix(text)
		switch {
		case err != nil:
			return Allowed{}, fmt.Errorf("%q: want a CIDR, such as 192.168.7.0/24", text)
		case p.Bits() == 0:
			return Allowed{}, fmt.Errorf("%q allows any address, that of the API server included: name the nodes' own", text)
		case p.Masked() != p || p.Addr().Is4In6():
			return Allowed{}, fmt.Errorf("%q: want %s", text, p.Masked())
		}
		a.addresses = append(a.addresses, p)
	}
	for _, pattern := range names {
		const may = "abcdefghijklmnopqrstuvwxyz0123456789.-*"
		if slices.Contains(strings.Split(pattern, "."), "") || strings.Trim(pattern, may) != "" {
			return Allowed{}, fmt.Errorf("%q: want a DNS name in lower case, in which * stands for any part between two dots",
				pattern)
		}
		a.names = append(a.names, pattern)
	}
	return a, nil
}

// Any reports whether anything is allowed.
func (a Allowed) Any() bool { return len(a.addresses) > 0 }

func (a Allowed) address(ip netip.Addr) bool {
	return slices.ContainsFunc(a.addresses, func(p netip.Prefix) bool { return p.Contains(ip) })
}

func (a Allowed) name(name string) bool {
	parts := strings.Split(name, ".")
	return slices.ContainsFunc(a.names, func(pattern string) bool {
		patterns := strings.Split(pattern, ".")
		for i := range patterns {
			if len(patterns) != len(parts) {
				return false
			}
			if ok, err := path.Match(patterns[i], parts[i]); !ok || err != nil {
				return false
			}
		}
		return true
	})
}

// Situation is what a judgement needs to know besides the request and its Node.
type Situation struct {
	Allowed  Allowed
	Reserved *Reserved
	// Others returns another Node that has an address; empty means none.
	Others func(netip.Addr) (string, error)
}

// errNothingAllowed says what to do where a person has allowed nothing.
var errNothingAllowed = errors.New("no addresses of kubelets are allowed: " +
	"set controller.kubeletServing.cidrs in the chart (--kubelet-serving-cidrs)")

// Judge returns nil as why if a node's request may be approved, else the reason why not; or an error if that cannot be found out.
func Judge(r *certificatesv1.CertificateSigningRequest, node *corev1.Node, s Situation) (why, err error) {
	asked, addresses, why := Asked(r, node)
	if why != nil {
		return why, nil
	}
	if !isHubs(r) && !s.Allowed.Any() {
		return errNothingAllowed, nil
	}
	if why := names(asked, node, s); why != nil {
		return why, nil
	}
	if isHubs(r) && node.Labels[edge.LabelNodePool] == "" {
		return errors.New("its node is in no pool, so no authority signs for it"), nil
	}
	for _, ip := range addresses {
		if !isHubs(r) && !s.Allowed.address(ip) {
			return fmt.Errorf("%s is not within controller.kubeletServing.cidrs (--kubelet-serving-cidrs)", ip), nil
		}
		if whose := s.Reserved.address(ip); whose != "" {
			return fmt.Errorf("%s is an address of %s", ip, whose), nil
		}
		whose, err := s.Others(ip)
		if err != nil {
			return nil, err
		}
		if whose != "" {
			return fmt.Errorf("%s is also an address of node %s", ip, whose), nil
		}
	}
	return nil, nil
}

// Asked returns what a node's request asks for, and the IP addresses in it. A node may ask only for itself, to serve at IP
// addresses of its Node. If it asks for anything else, why says what. A kubelet may also ask for names, which Judge checks.
func Asked(
	r *certificatesv1.CertificateSigningRequest, node *corev1.Node,
) (asked *x509.CertificateRequest, addresses []netip.Addr, why error) {
	if NodeOf(r) != edge.NodeName(node.Name) || node.Name == "" {
		return nil, nil, fmt.Errorf("%q made it, not node %s", r.Spec.Username, node.Name)
	}
	asked, err := certs.ParseRequest(r.Spec.Request)
	if err != nil {
		return nil, nil, err
	}
	if asked.Subject.CommonName != r.Spec.Username || !slices.Equal(asked.Subject.Organization, []string{edge.GroupNodes}) {
		return nil, nil, fmt.Errorf("it is for %.300q, not for the node that made it", asked.Subject)
	}
	for _, u := range r.Spec.Usages {
		if !slices.Contains([]certificatesv1.KeyUsage{
			certificatesv1.UsageDigitalSignature, certificatesv1.UsageKeyEncipherment, certificatesv1.UsageServerAuth,
		}, u) {
			return nil, nil, fmt.Errorf("it is for the use %q", u)
		}
	}
	if len(asked.IPAddresses) > maxAddresses {
		return nil, nil, fmt.Errorf("it is for %d addresses, more than %d", len(asked.IPAddresses), maxAddresses)
	}
	if len(asked.EmailAddresses)+len(asked.URIs) > 0 || len(asked.IPAddresses) == 0 || isHubs(r) && len(asked.DNSNames) > 0 {
		return nil, nil, errors.New("it must be for IP addresses, and nothing else")
	}
	own := addressesOf(node)
	for _, raw := range asked.IPAddresses {
		ip, _ := netip.AddrFromSlice(raw)
		if ip = ip.Unmap(); !slices.Contains(own, ip) {
			return nil, nil, fmt.Errorf("%s is not among the addresses of node %s", ip, node.Name)
		}
		addresses = append(addresses, ip)
	}
	return asked, addresses, nil
}

// names fails if a kubelet asks for a name that is not its node's, or that it may not have.
func names(asked *x509.CertificateRequest, node *corev1.Node, s Situation) error {
	for _, name := range asked.DNSNames {
		if name != node.Name {
			return fmt.Errorf("%q is not the node's own name", name)
		}
		if whose := s.Reserved.name(name); whose != "" {
			return fmt.Errorf("%s is a name of %s", name, whose)
		}
		if !s.Allowed.name(name) {
			return fmt.Errorf("%s is not within controller.kubeletServing.names (--kubelet-serving-names)", name)
		}
	}
	return nil
}

// addressesOf returns the IP addresses that a Node has, as it says or as an administrator does.
func addressesOf(node *corev1.Node) (all []netip.Addr) {
	all = edge.LANAddresses(node.Annotations)
	for _, a := range node.Status.Addresses {
		if ip, err := netip.ParseAddr(a.Address); err == nil {
			all = append(all, ip.Unmap().WithZone(""))
		}
	}
	return all
}

// bounded returns a text of at most maxReason bytes.
func bounded(text string) string {
	if len(text) <= maxReason {
		return text
	}
	cut := maxReason
	for cut > 0 && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + "…"
}
