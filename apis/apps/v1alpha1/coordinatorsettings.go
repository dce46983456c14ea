package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// CoordinatorSettings are the settings of the selected pools' coordinators. They also decide whether a pool gets a coordinator.
// A field that is left out is not set.
type CoordinatorSettings struct {
	// create is Always or OnRequest, the default. With Always, each pool that can have a coordinator gets a YurtCoordinator,
	// unless it already has one. When create is no longer Always, that YurtCoordinator is removed. With OnRequest, somebody
	// must create YurtCoordinators.
	// +optional
	Create CreateCoordinators `json:"create,omitempty"`

	// minNodes is how many nodes a pool must have before it gets a coordinator; the default is three. A pool that already has a
	// coordinator keeps it with fewer nodes. With one or two nodes, a coordinator can do less: see docs/small-pools.md.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	MinNodes *int32 `json:"minNodes,omitempty"`

	// replicas is how many coordinators a pool has, 1 to 3, each on a different node; the default is one. The YurtCoordinator's
	// own replicas field overrides it. A pool has no more coordinators than nodes.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=3
	Replicas *int32 `json:"replicas,omitempty"`

	// extraArgs are more flags of yurt-coordinator, each as --name=value. A flag is refused if it has a field here, or if the
	// coordinator's workload sets it itself. yurt-coordinator ends at a flag that it does not know. Then the first coordinators
	// with that flag do not become Ready, and the rollout stops.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=1024
	// +kubebuilder:validation:items:Pattern=`^--[a-z][a-z0-9-]*=[^\s]*$`
	// +kubebuilder:validation:items:XValidation:rule="!self.matches('^--(addresses-file|bind-address|client-ca-file|config|data-dir|denied-users-file|etcd-quota-bytes|help|kubelet-certificate-authority|kubelet-client-certificate|kubelet-client-key|logging-format|mirror-quota-bytes|node-name|own-quota-bytes|own-secrets|pool-addresses-file|pool-ca-file|pool-nodes-file|probe-port|secure-port|tls-cert-file|tls-private-key-file|v|version)=')",message="this flag is set by the workload itself, or by another field of spec.coordinator"
	ExtraArgs []string `json:"extraArgs,omitempty"`

	// ownSecrets makes coordinators accept the Secrets of the nodes' Pods, which hubs send if hub.ownSecrets is set. It also
	// lets operators read these Secrets at the coordinator.
	// +optional
	OwnSecrets *bool `json:"ownSecrets,omitempty"`

	// mirrorQuota is how much memory the pool's shared resources may take at the coordinator, such as 256Mi; the default is
	// 128Mi. The memory limit of the coordinator grows with it, unless the field resources sets one.
	// +optional
	// +kubebuilder:validation:XValidation:rule="type(self) == string ? isQuantity(self) && quantity(self).compareTo(quantity('8Mi')) >= 0 && quantity(self).compareTo(quantity('16Gi')) <= 0 : self >= 8388608 && self <= 17179869184",message="use 8Mi to 16Gi"
	MirrorQuota *resource.Quantity `json:"mirrorQuota,omitempty"`

	// ownQuota is how much memory the nodes' own objects, mostly Pods, may take at the coordinator; the default is 64Mi. It is
	// a part of etcdQuota.
	// +optional
	// +kubebuilder:validation:XValidation:rule="type(self) == string ? isQuantity(self) && quantity(self).compareTo(quantity('8Mi')) >= 0 && quantity(self).compareTo(quantity('16Gi')) <= 0 : self >= 8388608 && self <= 17179869184",message="use 8Mi to 16Gi"
	OwnQuota *resource.Quantity `json:"ownQuota,omitempty"`

	// etcdQuota is how much memory all objects may take at the coordinator; the default is 256Mi. The memory limit of the
	// coordinator grows with it, unless the field resources sets one.
	// +optional
	// +kubebuilder:validation:XValidation:rule="type(self) == string ? isQuantity(self) && quantity(self).compareTo(quantity('8Mi')) >= 0 && quantity(self).compareTo(quantity('16Gi')) <= 0 : self >= 8388608 && self <= 17179869184",message="use 8Mi to 16Gi"
	EtcdQuota *resource.Quantity `json:"etcdQuota,omitempty"`

	// verbosity is how much the coordinator logs, 0 to 7. From 2 on, Kubernetes' own code in the coordinator also logs at that
	// level.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=7
	Verbosity *int32 `json:"verbosity,omitempty"`

	// loggingFormat is the form of the coordinator's log: text, the default, or json.
	// +optional
	// +kubebuilder:validation:Enum=text;json
	LoggingFormat string `json:"loggingFormat,omitempty"`

	// resources are the requests and limits of the coordinator's container. Each value here replaces the default for the same
	// resource.
	// +optional
	Resources *CoordinatorResources `json:"resources,omitempty"`

	// nodeSelector are labels that a node must have to run the coordinator. Only nodes of the pool can run it.
	// +optional
	// +kubebuilder:validation:MaxProperties=16
	// +kubebuilder:validation:XValidation:rule="!('apps.openyurt.io/nodepool' in self)",message="a coordinator runs in its pool: leave apps.openyurt.io/nodepool out"
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`

	// preferredNodes are the names of nodes, the best first. A coordinator starts on one of them if that node can run it. A
	// coordinator that already runs on another node stays there.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=10
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	PreferredNodes []string `json:"preferredNodes,omitempty"`

	// tolerations are for taints of nodes. A coordinator always tolerates the pool's own taints, too. You can't set here
	// whether it tolerates a dead node, or a node whose link is down.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:XValidation:rule="has(self.key) && !(self.key in ['node.kubernetes.io/not-ready', 'node.kubernetes.io/unreachable', 'node.openyurt.io/unschedulable'])",message="name a taint; whether a coordinator stays on a dead node, or on one whose link is down, is not a matter of settings"
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`
}

// CreateCoordinators says whether YurtCoordinators are created automatically (Always), or by somebody (OnRequest). Empty means
// OnRequest.
// +kubebuilder:validation:Enum=Always;OnRequest
type CreateCoordinators string

// Values of CreateCoordinators.
const (
	CreateAlways    CreateCoordinators = "Always"
	CreateOnRequest CreateCoordinators = "OnRequest"
)

// CoordinatorResources are the requests and limits of a coordinator's container.
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

// ReservedCoordinatorFlags returns the flags of yurt-coordinator that extraArgs can't have. These are the flags that a
// coordinator's workload sets, those with a field in CoordinatorSettings, and those without which nobody would find or trust
// the coordinator. The validation rule of extraArgs lists the same flags.
func ReservedCoordinatorFlags() []string {
	return []string{
		"addresses-file", "bind-address", "client-ca-file", "config", "data-dir", "denied-users-file", "etcd-quota-bytes", "help",
		"kubelet-certificate-authority", "kubelet-client-certificate", "kubelet-client-key", "logging-format",
		"mirror-quota-bytes", "node-name",
		"own-quota-bytes", "own-secrets", "pool-addresses-file", "pool-ca-file", "pool-nodes-file", "probe-port", "secure-port",
		"tls-cert-file", "tls-private-key-file", "v", "version",
	}
}
