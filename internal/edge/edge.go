// Package edge is the vocabulary that every other package shares: identifiers as types of their own, and the names that
// clients, operators and other software see. It imports no package of ours, and from Kubernetes only API types.
//
// The labels, annotations and object names are a contract: users of OpenYurt have them already.
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

	// LabelWorkloadPool on a workload of a YurtAppSet names the pool in which the workload runs. Any controller may have
	// created the workload.
	LabelWorkloadPool = "apps.openyurt.io/pool-name"

	// DelegateHeartbeat is the annotation that a node's Lease carries while another node forwards its heartbeats. The
	// coordinator's copy of the Lease carries a label of the same key and value, so that a leader can select by it.
	DelegateHeartbeat = "openyurt.io/delegate-heartbeat"

	// AnnotationPutBack on a node's Lease in the cloud says that coordinator-controller has put the renewTime back, and to
	// which time. As long as the renewTime has that value, it is no heartbeat.
	AnnotationPutBack = "openyurt.io/renew-time-put-back"

	// DelegateHeartbeatOn is the value of DelegateHeartbeat; any other value, and its absence, mean "not delegated".
	DelegateHeartbeatOn = "true"

	// AnnotationCoordinatorHost marks the coordinator's copy of the Lease of the node on which the coordinator runs. The
	// coordinator sets it, and removes it from any other. A leader forwards that Lease before others. The annotation never
	// reaches the cloud.
	AnnotationCoordinatorHost = "openyurt.io/coordinator-host"

	// AnnotationRelaysAt, on the coordinator's copy of a node's Lease, is the ADDRESS:PORT at which the node's hub relays for
	// other nodes. It never reaches the cloud.
	AnnotationRelaysAt = "openyurt.io/relays-at"

	// ReasonGracePeriodTooShort is the reason of an Event on a Node. It means that kube-controller-manager's grace period is
	// shorter than the silence after which coordinator-controller acts.
	ReasonGracePeriodTooShort = "GracePeriodTooShort"

	// TaintUnschedulable keeps new Pods off a node whose own link is down. Its effect is PreferNoSchedule if all of the node's
	// requests use a neighbour's link. It is NoSchedule if another node forwards its heartbeats, or if only its heartbeats use
	// a neighbour's link.
	TaintUnschedulable = "node.openyurt.io/unschedulable"

	// ConditionCloudLinkDown is the Node condition that says whether the node's own link to the cloud is down.
	ConditionCloudLinkDown corev1.NodeConditionType = "CloudLinkDown"

	// ReasonCloudLinkDown is the reason of the Ready condition of a node that is shown NotReady only because its
	// heartbeats are delegated. The API server's policies check it.
	ReasonCloudLinkDown = "CloudLinkDown"

	// LabelExcludeDisruption on a Node makes kube-controller-manager leave the node out when it counts which share of a zone is
	// lost. Any value works. ExcludedCloudLinkDown is the value that we set for ReasonCloudLinkDown; any other value was set by
	// somebody else.
	LabelExcludeDisruption = "node.kubernetes.io/exclude-disruption"
	ExcludedCloudLinkDown  = "cloud-link-down"

	// Rolls are ConfigMaps in NamespaceSystem with facts that the API server's policies can't see otherwise. A roll's one key,
	// RollEntry, has lines of KEY=VALUE; an empty roll does not exist. No pool's ConfigMap has a name with the prefix of these.
	// ConfigMapShownNotReady lists the nodes that are shown NotReady for ReasonCloudLinkDown, with their pools.
	// ConfigMapCoordinatedPools lists the pools that have a YurtCoordinator, with its name. ConfigMapAutonomousPools lists the
	// pools that have an autonomous node, with the name of one such node.
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

	// LeaseInformerSync is the Lease by which the leader declares the pool's resources current. That means that the coordinator
	// has all of them, and that the leader keeps them up to date with the cloud.
	LeaseInformerSync = "leader-informer-sync"

	// LeaseFiller is the Lease that a filler holds. A filler is a hub without a link to the cloud that pushes its pool
	// resources to a coordinator where no hub leads. The holder may do nothing else there.
	LeaseFiller = "yurthub-filler"
)

// FillerTurn is how long a hub may hold LeaseFiller, which is not renewed.
const FillerTurn = 15 * time.Second

// ElectionTerm is how long a hub leads without renewing the election Lease. So if nobody knows whether a former leader still
// leads, the Lease must also stay vacant for that time.
const ElectionTerm = 4 * time.Second

// Ports.
const (
	// PortCoordinator is where a coordinator serves, with TLS, on its node's address.
	PortCoordinator = 10270

	// PortCoordinatorProbes is where a coordinator answers kubelet's probes, with TLS, on the loopback interface.
	PortCoordinatorProbes = 10271

	// PortCoordinatorLinks is where a coordinator shows its page to whoever has a link, with TLS, on its node's address. It is
	// closed while there is no link.
	PortCoordinatorLinks = 10272

	// PortHub is where a hub serves kubelet and the host's other programs. kubelet authenticates to the hub; the other programs
	// use credentials of their own.
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

// ForwardingUser is the user name of the Forwarder. It may write the Leases of that pool's nodes and the report about them, and
// nothing else.
func (p PoolName) ForwardingUser() string {
	return "system:serviceaccount:" + corev1.NamespaceNodeLease + ":" + p.Forwarder()
}

// IsOperators reports whether a group is one of a pool's operators: GroupOperators or GroupDebuggers.
func IsOperators(group string) bool { return group == GroupOperators || group == GroupDebuggers }

// IsPeople reports whether a group is one of persons who may look at a pool: operators or GroupViewers.
func IsPeople(group string) bool { return IsOperators(group) || group == GroupViewers }
