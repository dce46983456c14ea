package edge

import "strings"

// Pool resources: what the nodes of a pool share.
const (
	// AnnotationAppliedRevisions is on LeaseInformerSync. It is a JSON object: the cloud's revision up to which the
	// coordinator has each pool resource, applied and not merely seen, by its name as in "endpointslices.discovery.k8s.io".
	AnnotationAppliedRevisions = "openyurt.io/applied-revisions"

	// PathMirror is where a coordinator serves the pool's resources with the cloud's revisions.
	PathMirror = "/mirror/v1"

	// PathOwn is where hubs push their own nodes' objects to a coordinator. QueryLocal is the parameter by which they say that
	// these are not as the cloud has written them, but as the node says on top of that, which the cloud has not heard yet.
	PathOwn    = "/own/v1"
	QueryLocal = "local"

	// MirrorCoreGroup stands for the core group, whose name is empty, in paths below PathMirror and PathOwn.
	MirrorCoreGroup = "core"
)

// Service topology.
const (
	// AnnotationTopologyKeys on a Service says which of its endpoints a node's clients see.
	AnnotationTopologyKeys = "openyurt.io/topologyKeys"

	// TopologyNodePool, TopologyHostname and TopologyZone are its values: those in the node's pool, on the node itself,
	// in the node's zone.
	TopologyNodePool = "openyurt.io/nodepool"
	TopologyHostname = "kubernetes.io/hostname"
	TopologyZone     = "kubernetes.io/zone"
)

// A pool's coordinator, as the cloud keeps it. All of it is in NamespaceSystem.
const (
	// AppCoordinator is the YurtAppSet that runs the coordinators, and the value of LabelApp on their Pods.
	AppCoordinator = "yurt-coordinator"

	// LabelApp is the label that the Service of the coordinators selects them by.
	LabelApp = "app.kubernetes.io/name"

	// ServiceCoordinator is the Service of all coordinators, which each node sees its own pool's of.
	ServiceCoordinator = "yurt-coordinator-apiserver"

	// MinPoolNodes is how many nodes a pool must have for a coordinator: of two, one that is cut off could not tell who
	// leads.
	MinPoolNodes = 3
)

// Keys of the ConfigMap that tells a pool's hubs where their coordinator is.
const (
	// DiscoveryServer is its address, https://HOST:PORT.
	DiscoveryServer = "server"
	// DiscoveryServerName is the name that its certificate is for, whichever node it runs on.
	DiscoveryServerName = "serverName"
	// DiscoveryCA is the PEM bundle that its certificate is verified with.
	DiscoveryCA = "ca.crt"
)

// DiscoveryConfigMap is the name of the ConfigMap that tells a pool's hubs where their coordinator is. Without a coordinator
// there is none.
func (p PoolName) DiscoveryConfigMap() string { return "yurt-coordinator-" + string(p) }

// CoordinatorServerName is the DNS name that the certificate of a pool's coordinator is for, besides its addresses. It is
// the pool's own, so that no coordinator can pass for another's.
func (p PoolName) CoordinatorServerName() string {
	return string(p) + "." + ServiceCoordinator + "." + NamespaceSystem + ".svc"
}

// CoordinatorSecret is the name of the Secret that a pool's coordinator serves with.
func (p PoolName) CoordinatorSecret() string { return "yurt-coordinator-" + string(p) + "-certs" }

// KubeconfigSecret is the name of the Secret that a pool's operators use.
func (p PoolName) KubeconfigSecret() string { return "yurt-coordinator-" + string(p) + "-kubeconfig" }

// AuthoritySecret is the name of the Secret with the authority that signs both, which nobody but coordinator-controller
// reads.
func (p PoolName) AuthoritySecret() string { return "yurt-coordinator-" + string(p) + "-ca" }

const operatorPrefix = "openyurt:operator:"

// OperatorUser is who a pool's operators are to its coordinator: the common name of their client certificate.
func (p PoolName) OperatorUser() string { return operatorPrefix + string(p) }

// PoolOfOperator is the inverse of PoolName.OperatorUser.
func PoolOfOperator(user string) (PoolName, bool) {
	pool, ok := strings.CutPrefix(user, operatorPrefix)
	if !ok {
		return "", false
	}
	return PoolName(pool), true
}

// AnnotationReachedNodes, on the Lease that ReportLease names, has the nodes that reach the pool's coordinator, as its leader
// sees it: see JoinNodes.
const AnnotationReachedNodes = "openyurt.io/reached-nodes"

// ReportLease is the name of the Lease, in kube-node-lease of the cloud, by which a pool's leader says who it is (the holder)
// and which nodes reach the coordinator. It is renewed each minute, and counts for two.
func (p PoolName) ReportLease() string { return "yurt-coordinator-" + string(p) }

// JoinNodes writes a list of nodes as the value of an annotation, SplitNodes reads it.
func JoinNodes(nodes []NodeName) string {
	texts := make([]string, len(nodes))
	for i, n := range nodes {
		texts[i] = string(n)
	}
	return strings.Join(texts, ",")
}

// SplitNodes is described at JoinNodes.
func SplitNodes(value string) []NodeName {
	var nodes []NodeName
	for n := range strings.SplitSeq(value, ",") {
		if n != "" {
			nodes = append(nodes, NodeName(n))
		}
	}
	return nodes
}
