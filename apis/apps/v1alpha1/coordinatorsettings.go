package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// CoordinatorSettings are the settings of the selected pools' coordinators, and of whether a pool has one. A field that is
// left out is not set.
type CoordinatorSettings struct {
	// create: with Always, each pool that can have a coordinator gets a YurtCoordinator, unless it already has one. It is removed
	// when this is no longer Always. With OnRequest, the default, somebody must create YurtCoordinators.
	// +optional
	Create CreateCoordinators `json:"create,omitempty"`

	// minNodes is how many nodes a pool must have before it gets a coordinator, by default three. With one or two nodes, a
	// coordinator has limits: see docs/small-pools.md. A pool that has a coordinator keeps it.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	MinNodes *int32 `json:"minNodes,omitempty"`

	// replicas is how many coordinators a pool has, 1 to 3, each on a different node, if its YurtCoordinator does not set it;
	// by default one. A pool has no more coordinators than nodes.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=3
	Replicas *int32 `json:"replicas,omitempty"`

	// extraArgs are more flags of yurt-coordinator, each as --name=value. Flags that have a field here, or that the workload
	// sets itself, are refused. The program ends at a flag that it does not know: the first coordinators then do not become
	// Ready, and the rollout stops.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=1024
	// +kubebuilder:validation:items:Pattern=`^--[a-z][a-z0-9-]*=[^\s]*$`
	// +kubebuilder:validation:items:XValidation:rule="!self.matches('^--(addresses-file|bind-address|client-ca-file|config|data-dir|denied-users-file|etcd-quota-bytes|help|kubelet-certificate-authority|kubelet-client-certificate|kubelet-client-key|logging-format|mirror-quota-bytes|node-name|own-quota-bytes|own-secrets|pool-addresses-file|pool-ca-file|pool-nodes-file|probe-port|secure-port|tls-cert-file|tls-private-key-file|v|version)=')",message="this flag is set by the workload itself, or by another field of spec.coordinator"
	ExtraArgs []string `json:"extraArgs,omitempty"`

	// ownSecrets makes coordinators accept the Secrets of the nodes' Pods from hubs that bring them (hub.ownSecrets), and lets
	// operators read them.
	// +optional
	OwnSecrets *bool `json:"ownSecrets,omitempty"`

	// mirrorQuota is how much memory the pool's shared resources may take, such as 256Mi; by default 128Mi. The memory limit
	// grows with it, unless resources sets one.
	// +optional
	// +kubebuilder:validation:XValidation:rule="type(self) == string ? isQuantity(self) && quantity(self).compareTo(quantity('8Mi')) >= 0 && quantity(self).compareTo(quantity('16Gi')) <= 0 : self >= 8388608 && self <= 17179869184",message="use 8Mi to 16Gi"
	MirrorQuota *resource.Quantity `json:"mirrorQuota,omitempty"`

	// ownQuota is how much the nodes' own objects may take, mostly Pods; by default 64Mi. It is a part of etcdQuota.
	// +optional
	// +kubebuilder:validation:XValidation:rule="type(self) == string ? isQuantity(self) && quantity(self).compareTo(quantity('8Mi')) >= 0 && quantity(self).compareTo(quantity('16Gi')) <= 0 : self >= 8388608 && self <= 17179869184",message="use 8Mi to 16Gi"
	OwnQuota *resource.Quantity `json:"ownQuota,omitempty"`

	// etcdQuota is how much all objects may take; by default 256Mi. The memory limit grows with it, unless resources sets one.
	// +optional
	// +kubebuilder:validation:XValidation:rule="type(self) == string ? isQuantity(self) && quantity(self).compareTo(quantity('8Mi')) >= 0 && quantity(self).compareTo(quantity('16Gi')) <= 0 : self >= 8388608 && self <= 17179869184",message="use 8Mi to 16Gi"
	EtcdQuota *resource.Quantity `json:"etcdQuota,omitempty"`

	// verbosity is how much the coordinator logs, 0 to 7; from 2 on, also what Kubernetes' own code in it says at that level.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=7
	Verbosity *int32 `json:"verbosity,omitempty"`

	// loggingFormat is the form of the coordinator's log: text or json; by default text.
	// +optional
	// +kubebuilder:validation:Enum=text;json
	LoggingFormat string `json:"loggingFormat,omitempty"`

	// resources are requests and limits of the coordinator's container: each value here replaces the default for the same
	// resource.
	// +optional
	Resources *CoordinatorResources `json:"resources,omitempty"`

	// nodeSelector are labels that the coordinator's node must have. That node is always one of the pool.
	// +optional
	// +kubebuilder:validation:MaxProperties=16
	// +kubebuilder:validation:XValidation:rule="!('apps.openyurt.io/nodepool' in self)",message="a coordinator runs in its pool: leave apps.openyurt.io/nodepool out"
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`

	// preferredNodes are names of nodes, the best first, on which a coordinator starts if they can run it. One that runs
	// elsewhere stays there.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=10
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	PreferredNodes []string `json:"preferredNodes,omitempty"`

	// tolerations are for taints of nodes, in addition to the pool's own taints, which a coordinator always tolerates. The
	// tolerations for a dead node, and for one whose link is down, can't be set here.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:XValidation:rule="has(self.key) && !(self.key in ['node.kubernetes.io/not-ready', 'node.kubernetes.io/unreachable', 'node.openyurt.io/unschedulable'])",message="name a taint; whether a coordinator stays on a dead node, or on one whose link is down, is not a matter of settings"
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`
}

// CreateCoordinators says who makes YurtCoordinators. Empty is OnRequest.
// +kubebuilder:validation:Enum=Always;OnRequest
type CreateCoordinators string

// Values of CreateCoordinators.
const (
	CreateAlways    CreateCoordinators = "Always"
	CreateOnRequest CreateCoordinators = "OnRequest"
)

// CoordinatorResources are of a coordinator's container.
type CoordinatorResources struct {
	// requests of cpu, memory and others.
	// +optional
	// +kubebuilder:validation:MaxProperties=8
	Requests corev1.ResourceList `json:"requests,omitempty"`
	// limits of cpu, memory and others.
	// +optional
	// +kubebuilder:validation:MaxProperties=8
	Limits corev1.ResourceList `json:"limits,omitempty"`
}

// ReservedCoordinatorFlags returns the flags of yurt-coordinator that extraArgs can't have: those that a coordinator's workload
// sets, those that have a field in CoordinatorSettings, and those without which nobody would find or trust the coordinator. The
// rule of extraArgs has the same ones.
func ReservedCoordinatorFlags() []string {
	return []string{
		"addresses-file", "bind-address", "client-ca-file", "config", "data-dir", "denied-users-file", "etcd-quota-bytes", "help",
		"kubelet-certificate-authority", "kubelet-client-certificate", "kubelet-client-key", "logging-format",
		"mirror-quota-bytes", "node-name",
		"own-quota-bytes", "own-secrets", "pool-addresses-file", "pool-ca-file", "pool-nodes-file", "probe-port", "secure-port",
		"tls-cert-file", "tls-private-key-file", "v", "version",
	}
}
