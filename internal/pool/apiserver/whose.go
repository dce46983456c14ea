package apiserver

import (
	"crypto/x509"
	"fmt"
	"slices"
	"strings"
)

// userOfNode begins the common name of what the cluster's authority signs for a node.
const userOfNode = "system:node:"

// another returns why a certificate is another node's, although this node has reported it as its kubelet's; nil means that
// nothing says so. Everybody on the LAN can see a kubelet's certificate, and a node can report any.
//
// The names in the certificate decide before the reports do. kubelet names its node when it signs for itself, and so does the
// cluster's authority. If a certificate that two nodes report does not name its node, neither of them is believed.
func (k Kubelets) another(node string, by terms, c *x509.Certificate) error {
	common := c.Subject.CommonName
	if name, ok := strings.CutPrefix(common, userOfNode); ok && name != node {
		return fmt.Errorf("the kubelet of node %s is not called: the certificate that its hub has reported is that of "+
			"node %.253q", node, name)
	}
	common, _, _ = strings.Cut(strings.TrimPrefix(common, userOfNode), "@") // kubelet writes NODE@SECONDS
	named := append([]string{common}, c.DNSNames...)
	for i := range named {
		named[i] = strings.ToLower(named[i])
	}
	own := slices.Contains(named, node)
	for other := range strings.FieldsSeq(by.others) {
		if !own || slices.Contains(named, other) {
			return fmt.Errorf("the kubelet of node %s is not called: the hub of node %s has reported the same certificate, "+
				"which does not say whose it is; give each kubelet a certificate of its own", node, other)
		}
	}
	if i := slices.IndexFunc(named, k.member); !own && i >= 0 {
		return fmt.Errorf("the kubelet of node %s is not called: the certificate that its hub has reported is that of node %s",
			node, named[i])
	}
	return nil
}

// others returns which other nodes report the certificate that a node has reported, in order.
func (k Kubelets) others(node, pin string) string {
	if k.Reporters == nil || pin == "" {
		return ""
	}
	all := slices.DeleteFunc(k.Reporters(pin), func(other string) bool { return other == node })
	slices.Sort(all)
	return strings.Join(all, " ")
}

func (k Kubelets) member(name string) bool { return k.Member != nil && k.Member(name) }
