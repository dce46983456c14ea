// Package edge is the vocabulary that our packages share: types for identifiers, and the names that clients, operators and other
// software see. It imports no package of ours.
//
// The labels, annotations and object names are a contract with users and with other software. Some are OpenYurt's own.
package edge

import (
	"net/http"
	"path"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// NodeName is the name of a Node object, and of the machine it stands for.
type NodeName string

// LeasePath is the path of the node's Lease on an API server.
func (n NodeName) LeasePath() string {
	return path.Join("/apis/coordination.k8s.io/v1/namespaces", corev1.NamespaceNodeLease, "leases", string(n))
}

// PoolName is the name of a NodePool: the nodes of one site, sharing a LAN.
type PoolName string

// FromMemory is the header Warning of an answer that comes from a hub's memory, and not from the cloud now.
const FromMemory = `110 yurthub "the cloud cannot be reached; this is what it said last"`

// AsksForTable reports whether a request prefers a table to objects, as kubectl's do. Only an API server can make one.
func AsksForTable(r *http.Request) bool { return strings.Contains(r.Header.Get("Accept"), "as=Table") }

// Labels, annotations and conditions.
const (
	// LabelNodePool on a Node names the pool that it belongs to.
	LabelNodePool = "apps.openyurt.io/nodepool"

	// LabelWorkloadPool, on a workload of a YurtAppSet, names the pool in which the workload runs.
	LabelWorkloadPool = "apps.openyurt.io/pool-name"

	// DelegateHeartbeat is the annotation of a Lease whose heartbeats do not take the node's own link to the cloud. At the
	// coordinator the Lease also has a label of the same key and value, by which a leader selects the Leases to forward.
	DelegateHeartbeat = "openyurt.io/delegate-heartbeat"

	// AnnotationPutBack, on a node's Lease in the cloud, is the time to which coordinator-controller has put the renewTime back.
	// A renewTime with this value is no heartbeat.
	AnnotationPutBack = "openyurt.io/renew-time-put-back"

	// DelegateHeartbeatOn is the value of DelegateHeartbeat; any other value, and its absence, mean "not delegated".
	DelegateHeartbeatOn = "true"

	// AnnotationCoordinatorHost marks the Lease of a coordinator's own node. The coordinator sets it on its copy of that Lease,
	// and removes it from all other copies. A leader forwards that Lease before others. The annotation never reaches the cloud.
	AnnotationCoordinatorHost = "openyurt.io/coordinator-host"

	// AnnotationRelaysAt, on the coordinator's copy of a node's Lease, is the ADDRESS:PORT at which the node's hub relays for
	// other nodes. It never reaches the cloud.
	AnnotationRelaysAt = "openyurt.io/relays-at"

	// ReasonGracePeriodTooShort is the reason of an Event on a Node. It means that kube-controller-manager's grace period is
	// shorter than the silence after which coordinator-controller acts.
	ReasonGracePeriodTooShort = "GracePeriodTooShort"

	// TaintUnschedulable keeps new Pods off a node whose own link is down. As a rule its effect is NoSchedule. If all of the
	// node's requests take a neighbour's link, the effect is PreferNoSchedule, unless the pool's YurtCoordinator wants something
	// else.
	TaintUnschedulable = "node.openyurt.io/unschedulable"

	// ConditionCloudLinkDown is the Node condition that says whether the node's own link to the cloud is down.
	ConditionCloudLinkDown corev1.NodeConditionType = "CloudLinkDown"

	// ReasonCloudLinkDown is the reason of the Ready condition of a node that is shown NotReady only because its
	// heartbeats are delegated. The API server's policies check it.
	ReasonCloudLinkDown = "CloudLinkDown"

	// LabelExcludeDisruption on a Node, with any value, makes kube-controller-manager ignore the Node when it counts how many of
	// a zone's nodes are not Ready. coordinator-controller sets the value ExcludedCloudLinkDown, together with
	// ReasonCloudLinkDown, and leaves any other value alone.
	LabelExcludeDisruption = "node.kubernetes.io/exclude-disruption"
	ExcludedCloudLinkDown  = "cloud-link-down"

	// Rolls are ConfigMaps in NamespaceSystem with facts that the API server's policies can't see otherwise. RollEntry is the one
	// key of each, with lines of KEY=VALUE. A roll that would be empty does not exist. No pool's own ConfigMap has the name of a
	// roll.
	//   - ConfigMapShownNotReady has each node that is shown NotReady for ReasonCloudLinkDown, with its pool.
	//   - ConfigMapCoordinatedPools has each pool that has a YurtCoordinator, with the YurtCoordinator's name.
	//   - ConfigMapAutonomousPools has each pool that has an autonomous node, with the name of one such node.
	ConfigMapShownNotReady    = "yurt-coordinator--shown-not-ready"
	ConfigMapCoordinatedPools = "yurt-coordinator--coordinated-pools"
	ConfigMapAutonomousPools  = "yurt-coordinator--autonomous-pools"
	RollEntry                 = "list"
)

// Leases in the coordinator.
const (
	// NamespaceSystem holds the pool's own Leases.
	NamespaceSystem = "kube-system"

	// NamespaceKeys holds, in the cloud, the Secrets that only coordinator-controller reads.
	NamespaceKeys = "yurt-coordinator-system"

	// LeaseElection is the Lease with which the hubs of a pool elect their leader.
	LeaseElection = "yurthub"

	// LeaseInformerSync is the Lease by which the leader declares which pool resources are current at the coordinator.
	LeaseInformerSync = "leader-informer-sync"

	// LeaseFiller is the Lease that a filler holds for its turn. The holder may push pool resources while nobody leads. The Lease
	// allows nothing else.
	LeaseFiller = "yurthub-filler"
)

// FillerTurn is how long a hub may hold LeaseFiller, which is not renewed.
const FillerTurn = 15 * time.Second

// ElectionTerm is the longest time for which a hub leads without renewing the election Lease. If a former leader may still lead,
// the Lease stays vacant for that time.
const ElectionTerm = 4 * time.Second

// Ports.
const (
	// PortCoordinator is where a coordinator serves, with TLS, on its node's address.
	PortCoordinator = 10270

	// PortCoordinatorProbes is where a coordinator answers kubelet's probes, with TLS, on the loopback interface.
	PortCoordinatorProbes = 10271

	// PortCoordinatorLinks is where a coordinator shows its page by PageLinks, with TLS, on its node's address. The port is
	// closed while there is no PageLink.
	PortCoordinatorLinks = 10272

	// PortHub is where a hub serves kubelet and the host's other programs.
	PortHub = 10261

	// PortHubTLS is where a hub serves Pods.
	PortHubTLS = 10268

	// PortHubRelay is where a hub relays for the other hubs of its pool.
	PortHubRelay = 10269

	// PortHubHealth is where a hub serves /healthz and /readyz to anybody, and /status and /metrics to root.
	PortHubHealth = 10267
)

// Identities.
const (
	// GroupOperators is the group of the client certificates that operators use against a coordinator.
	GroupOperators = "openyurt:coordinators"

	// GroupDebuggers is the group of the operators who may enter any Pod, and so become root on its node.
	GroupDebuggers = "openyurt:coordinators:debug"

	// GroupViewers is the group of persons who look at a pool, and enter and change nothing.
	GroupViewers = "openyurt:coordinators:viewers"

	// GroupMetrics is the group of programs that read a coordinator's metrics, and nothing else there.
	GroupMetrics = "openyurt:coordinators:metrics"

	// GroupNodes is Kubernetes' group of all nodes' certificates.
	GroupNodes = "system:nodes"

	// SignerPeople begins the name of what signs the certificates of people at a pool's coordinator. The pool's name follows.
	SignerPeople = "coordinator.openyurt.io/"

	// SignerHubs signs what hubs serve with, each by the authority of its node's pool.
	SignerHubs = "hub.openyurt.io/serving"

	hubUserPrefix   = "openyurt:hub:"
	nodeUserPrefix  = "system:node:"
	forwarderPrefix = "heartbeat-forwarder-"
)

// User is the Kubernetes user name of a node's client certificate.
func (n NodeName) User() string { return nodeUserPrefix + string(n) }

// HubUser is the common name of a hub's serving certificate. Nobody has a right by that name.
func (n NodeName) HubUser() string { return hubUserPrefix + string(n) }

// Forwarder is the name of the ServiceAccount in kube-node-lease that a pool's leader impersonates at the cloud to forward
// heartbeats. The ServiceAccount does not exist, so nobody can get a token for it.
func (p PoolName) Forwarder() string { return forwarderPrefix + string(p) }

// ForwardingUser is the user name of the Forwarder. This user may write the Leases of the pool's nodes and the pool's reports
// (ReportLease), and nothing else.
func (p PoolName) ForwardingUser() string {
	return "system:serviceaccount:" + corev1.NamespaceNodeLease + ":" + p.Forwarder()
}

// IsOperators reports whether a group is one of a pool's operators: GroupOperators or GroupDebuggers.
func IsOperators(group string) bool { return group == GroupOperators || group == GroupDebuggers }

// IsPeople reports whether a group is one of persons who may look at a pool: operators or GroupViewers.
func IsPeople(group string) bool { return IsOperators(group) || group == GroupViewers }
