package edge

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Pool resources: what the nodes of a pool share.
const (
	// AnnotationAppliedRevisions, on LeaseInformerSync, is a JSON object. Its keys are the pool resources, in the form
	// "endpointslices.discovery.k8s.io". Each value is the cloud's revision up to which the coordinator has the resource.
	AnnotationAppliedRevisions = "openyurt.io/applied-revisions"

	// AnnotationFilling, on LeaseInformerSync, is a JSON object. Its keys are the pool resources whose first list from the cloud
	// is under way. Each value is the number of the page that the leader is reading. While that number grows, other hubs wait for
	// the leader.
	AnnotationFilling = "openyurt.io/filling"

	// PathPage is where a coordinator serves the page that people look at.
	PathPage = "/ui"
)

// Service topology.
const (
	// AnnotationTopologyKeys on a Service says which of its endpoints a node's clients see.
	AnnotationTopologyKeys = "openyurt.io/topologyKeys"

	// TopologyNodePool and TopologyHostname are values of AnnotationTopologyKeys. With the first, a node sees only the endpoints
	// in its own pool; with the second, only those on itself.
	TopologyNodePool = "openyurt.io/nodepool"
	TopologyHostname = "kubernetes.io/hostname"
)

// These constants describe a pool's coordinator in the cloud. All objects of the coordinator are in NamespaceSystem, except the
// Secrets that only coordinator-controller reads, which are in NamespaceKeys.
const (
	// AppCoordinator is the YurtAppSet that runs the coordinators, and the value of LabelApp on their Pods.
	AppCoordinator = "yurt-coordinator"

	// LabelApp is the label by which the coordinators' Service selects them.
	LabelApp = "app.kubernetes.io/name"

	// ServiceCoordinator is the Service of all coordinators. Each node sees only the endpoints of its own pool.
	ServiceCoordinator = "yurt-coordinator-apiserver"

	// MinPoolNodes is how many nodes a pool must have for a coordinator, by default. With fewer, a coordinator can do less
	// (docs/small-pools.md).
	MinPoolNodes = 3
)

// These are the keys of the ConfigMap that tells a pool's hubs where their coordinators are. DiscoveryServer and
// DiscoveryGeneration are for slot 0; see Slot.ServerKey for the other slots. All other keys apply to the whole pool.
const (
	// DiscoveryServer is the coordinator's address, https://HOST:PORT.
	DiscoveryServer = "server"
	// DiscoveryServerName is the name in the coordinator's certificate, whichever node it runs on.
	DiscoveryServerName = "serverName"
	// DiscoveryCA is the PEM bundle that verifies the coordinator's certificate.
	DiscoveryCA = "ca.crt"
	// DiscoveryClients are the credential ids of the certificates that coordinators may show to the pool's kubelets, one per
	// line.
	DiscoveryClients = "kubelet-clients"
	// DiscoveryGeneration is the Generation of the coordinator's certificate.
	DiscoveryGeneration = "generation"
	// DiscoveryNodes are addresses of the pool's nodes, one per line: a coordinator that has moved is at one of them.
	DiscoveryNodes = "nodes"
	// DiscoveryDenied names nodes and hubs whose certificates are no longer valid in the pool, one per line. A line is a user
	// name, or CertificateIDPrefix with a certificate's digest.
	DiscoveryDenied = "denied"
)

// CertificateIDPrefix begins the id of a certificate, as kube-apiserver writes it. The certificate's SHA-256 follows, in
// lower-case hexadecimal digits.
const CertificateIDPrefix = "X509SHA256="

// CoordinatorUsers is the prefix of all coordinators' user names at kubelets. The cloud knows no such user.
const CoordinatorUsers = "openyurt:yurt-coordinator"

// CoordinatorUser is the user name of a pool's coordinator at the pool's kubelets.
func (p PoolName) CoordinatorUser() string { return CoordinatorUsers + ":" + string(p) }

// CheckName says why a pool of this name can have neither a coordinator nor operators; nil means that it can. With a dot, pool x
// and pool x.hubs would share a Secret (HubsAuthoritySecret).
func (p PoolName) CheckName() error {
	if len(validation.IsDNS1123Label(string(p))) > 0 {
		return fmt.Errorf("%.100q can't be the name of a pool with a coordinator: "+
			"such a name has lower-case letters, digits and dashes, and no dot", string(p))
	}
	return nil
}

// DiscoveryConfigMap is the name of the ConfigMap that tells a pool's hubs where their coordinator is. It exists only
// while the pool has a coordinator.
func (p PoolName) DiscoveryConfigMap() string { return "yurt-coordinator-" + string(p) }

// CoordinatorServerName is the DNS name in the certificate of a pool's coordinator, besides its addresses. Each pool has its own
// name, so that no coordinator can impersonate the coordinator of another pool.
func (p PoolName) CoordinatorServerName() string {
	return string(p) + "." + ServiceCoordinator + "." + NamespaceSystem + ".svc"
}

// CoordinatorServerNameIn returns which of the names in a coordinator's certificate is its pool's; empty if none is.
func CoordinatorServerNameIn(names []string) string {
	for _, name := range names {
		if pool, ok := strings.CutSuffix(name, PoolName("").CoordinatorServerName()); ok && pool != "" {
			return name
		}
	}
	return ""
}

// CoordinatorSecret is the name of the Secret that a pool's coordinator in slot 0 serves with.
func (p PoolName) CoordinatorSecret() string { return p.CoordinatorSecretIn(0) }

// KubeconfigSecret is the name of the Secret that a pool's operators use.
func (p PoolName) KubeconfigSecret() string { return "yurt-coordinator-" + string(p) + "-kubeconfig" }

// AuthoritySecret is the name of the Secret, in NamespaceKeys, with the authority that signs the certificates in
// CoordinatorSecret and KubeconfigSecret.
func (p PoolName) AuthoritySecret() string { return "yurt-coordinator-" + string(p) + "-ca" }

// HubsAuthoritySecret is the name of the Secret, in NamespaceKeys, with the authority that signs the hubs' serving certificates,
// and nothing else. It is not the name of another pool's AuthoritySecret, as that pool's name would have a dot (CheckName).
func (p PoolName) HubsAuthoritySecret() string { return "yurt-coordinator-" + string(p) + ".hubs-ca" }

// KubeletClientSecret is the name of the Secret, in NamespaceKeys, with the coordinator's keys for kubelets.
// coordinator-controller copies the keys that the coordinator needs into the coordinator's own Secret.
func (p PoolName) KubeletClientSecret() string {
	return "yurt-coordinator-" + string(p) + "-kubelet-client"
}

// KubeletClientRequest is the name of the CertificateSigningRequest for a key of KubeletClientSecret, given the key's public half
// in DER. A policy (controller-rights.yaml) allows coordinator-controller only names of this form.
func (p PoolName) KubeletClientRequest(public []byte) string {
	sum := sha256.Sum256(public)
	return p.KubeletClientSecret() + "-" + hex.EncodeToString(sum[:8])
}

const operatorPrefix = "openyurt:operator:"

// OperatorUser is the user name of a pool's operators at its coordinator: the common name of their client certificate.
func (p PoolName) OperatorUser() string { return operatorPrefix + string(p) }

// PoolOfOperator is the inverse of PoolName.OperatorUser.
func PoolOfOperator(user string) (PoolName, bool) {
	pool, ok := strings.CutPrefix(user, operatorPrefix)
	if !ok {
		return "", false
	}
	return PoolName(pool), true
}

// JoinNodes writes a list of nodes as the value of an annotation. SplitNodes reads it.
func JoinNodes(nodes []NodeName) string {
	texts := make([]string, len(nodes))
	for i, n := range nodes {
		texts[i] = string(n)
	}
	return strings.Join(texts, ",")
}

// SplitNodes reads what JoinNodes wrote.
func SplitNodes(value string) []NodeName {
	var nodes []NodeName
	for n := range strings.SplitSeq(value, ",") {
		if n != "" {
			nodes = append(nodes, NodeName(n))
		}
	}
	return nodes
}
