package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// YurtCoordinator asks for a coordinator in a pool. The coordinator is an API server that runs on a node of the pool. Through
// it, the nodes forward each other's heartbeats and share what they read, even while some of their links to the cloud are down.
// A pool has at most one YurtCoordinator in use.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=yc,categories=yurt
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="NodePool",type=string,JSONPath=`.spec.nodePool`
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.status.nodeName`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Standbys",type=string,JSONPath=`.status.conditions[?(@.type=="StandbysReady")].status`,priority=1
// +kubebuilder:printcolumn:name="Delegated",type=string,JSONPath=`.status.delegatedNodes`,priority=1
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.status.coordinators[?(@.slot==0)].version`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type YurtCoordinator struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec YurtCoordinatorSpec `json:"spec"`
	// +optional
	Status YurtCoordinatorStatus `json:"status,omitempty"`
}

// YurtCoordinatorSpec says what coordinators a pool should have.
type YurtCoordinatorSpec struct {
	// version is the version of Kubernetes that the coordinator is built from, such as v1.36.3. The default is the version that
	// coordinator-controller is built from. The project's own release is not set here, but by its Helm chart. The image's tag
	// contains both, as in v0.2.0-k1.36.3.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!self.contains('-k')",message="name a version of Kubernetes, such as v1.36.3; our release is the chart's"
	// +kubebuilder:validation:Pattern=`^v[0-9]+\.[0-9]+\.[0-9]+([-.][0-9A-Za-z.-]+)?$`
	// +kubebuilder:validation:MaxLength=64
	Version string `json:"version,omitempty"`

	// nodePool is the name of the coordinator's NodePool. The pool must have at least three nodes, or spec.coordinator.minNodes
	// of its PoolSettings if that is set. You can't change this field: delete the YurtCoordinator and make another.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="nodePool can't be changed: delete the YurtCoordinator and make another"
	NodePool string `json:"nodePool"`

	// replicas is how many coordinators the pool has, 1 to 3, each on a different node. One of them is in use. The others are
	// standbys, which hold the same objects, and one takes over when the machine of the first is lost. The default is
	// spec.coordinator.replicas of the pool's PoolSettings, or one. A pool has no more coordinators than nodes.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=3
	Replicas *int32 `json:"replicas,omitempty"`

	// delegatedNodeStatus is the status of a node while its own link to the cloud is down and another node forwards its
	// heartbeats. It is Ready, the default, or NotReady: the node's condition Ready is then Unknown, with the reason
	// CloudLinkDown. In both cases the node keeps its Pods and endpoints, and gets no new Pods. You can change this field at
	// any time.
	// +optional
	DelegatedNodeStatus DelegatedNodeStatus `json:"delegatedNodeStatus,omitempty"`

	// relayedNodeScheduling says which new Pods a node takes while its own link to the cloud is down and it uses the link of
	// another node. The default, PreferNoSchedule, means Pods that fit nowhere else; Disabled means none, and Enabled means
	// any. A node that sends only its heartbeats over the other link takes none. You can change this field at any time.
	// +optional
	RelayedNodeScheduling RelayedNodeScheduling `json:"relayedNodeScheduling,omitempty"`

	// deniedUsers lists client certificates that the pool's coordinator no longer accepts, whoever signed them. Give the name
	// of a user, or X509SHA256= and the SHA-256 digest of one certificate in lower-case hexadecimal digits. The coordinator's
	// audit log shows both. A coordinator that is cut off from the cloud learns of a change when its link is back. Neighbours
	// lend their links to no node that is denied, by the name of the node or the digest of its hub's certificate.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=1000
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=256
	// +kubebuilder:validation:items:Pattern=`^\S+( \S+)*$`
	// +kubebuilder:validation:items:XValidation:rule="self.matches('^X509SHA256=[0-9a-f]{64}$') || !self.matches('(?i)^(x509[0-9a-z]*|sha-?[0-9]+|serial)( fingerprint)?[=:]|^([0-9a-f]{2}:)+[0-9a-f]{2}$|^[0-9a-f]{32,}$')",message="to deny one certificate, give X509SHA256= and 64 lower-case hexadecimal digits"
	DeniedUsers []string `json:"deniedUsers,omitempty"`

	// rekey is any text. When you change it, the coordinator gets a new key for the pool's kubelets, and its former keys are no
	// longer accepted. Change it if a stranger had access to a coordinator's machine. A node that is cut off from the cloud
	// learns of the change when its link is back. A kubelet may accept a former key for five more minutes, because it remembers
	// answers that long.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Rekey string `json:"rekey,omitempty"`
}

// DelegatedNodeStatus is the status of a node while another node forwards its heartbeats. Empty means Ready.
// +kubebuilder:validation:Enum=Ready;NotReady
type DelegatedNodeStatus string

// Values of DelegatedNodeStatus.
const (
	DelegatedReady    DelegatedNodeStatus = "Ready"
	DelegatedNotReady DelegatedNodeStatus = "NotReady"
)

// RelayedNodeScheduling says which new Pods a node takes while it uses the link of another node. Empty means PreferNoSchedule.
// +kubebuilder:validation:Enum=Disabled;PreferNoSchedule;Enabled
type RelayedNodeScheduling string

// Values of RelayedNodeScheduling.
const (
	RelayedDisabled         RelayedNodeScheduling = "Disabled"
	RelayedPreferNoSchedule RelayedNodeScheduling = "PreferNoSchedule"
	RelayedEnabled          RelayedNodeScheduling = "Enabled"
)

// YurtCoordinatorStatus is the state of a YurtCoordinator.
type YurtCoordinatorStatus struct {
	// observedGeneration is the generation of the spec that this status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// nodeName is the node that the coordinator runs on. If there are several coordinators, it is the node of the one with the
	// lowest slot that serves.
	// +optional
	NodeName string `json:"nodeName,omitempty"`

	// coordinators are the pool's coordinators, ordered by their slots: slot 0, then 1 and 2 for standbys. Each hub uses the
	// coordinator with the lowest slot that it can reach.
	// +optional
	// +listType=map
	// +listMapKey=slot
	// +kubebuilder:validation:MaxItems=3
	Coordinators []CoordinatorInSlot `json:"coordinators,omitempty"`

	// conditions of the YurtCoordinator. Pending says why there is no coordinator. CertsReady says whether the coordinator has
	// its certificates. Ready says whether the coordinator, or a standby in its place, serves. StandbysReady says whether all
	// standbys serve. KubeletsVerifiable says whether the coordinator can verify the kubelets that it must call, and how.
	// PoolResourcesComplete says whether it has the pool's shared resources, and PoolResourcesCurrent whether it also gets
	// their changes. Reconciling says whether it still has to change to match its version and its settings. Stalled says
	// whether somebody must fix something first. EvictionsHeld says whether evictions are held because all nodes of the pool
	// fell silent together.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []YurtCoordinatorCondition `json:"conditions,omitempty"`

	// delegatedNodes are the living nodes of the pool whose own link to the cloud is down, so that another node forwards their
	// heartbeats. Their condition CloudLinkDown is True.
	// +optional
	// +listType=set
	DelegatedNodes []string `json:"delegatedNodes,omitempty"`

	// outsidePoolNodes are the nodes of the pool that reach none of the pool's coordinators.
	// +optional
	// +listType=set
	OutsidePoolNodes []string `json:"outsidePoolNodes,omitempty"`

	// settings are the PoolSettings that select the pool, each with the generation that this status reflects.
	// +optional
	// +listType=map
	// +listMapKey=name
	Settings []SettingsGeneration `json:"settings,omitempty"`
}

// CoordinatorInSlot is one of a pool's coordinators.
type CoordinatorInSlot struct {
	// slot is the number of the coordinator in its pool: 0, or 1 or 2 for a standby.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=2
	Slot int32 `json:"slot"`
	// nodeName is the node that the coordinator runs on.
	// +optional
	NodeName string `json:"nodeName,omitempty"`
	// version of the coordinator's image, such as v0.2.0-k1.36.3: the project's release, and the version of Kubernetes that the
	// coordinator is built from.
	// +optional
	Version string `json:"version,omitempty"`
	// ready says whether the coordinator serves.
	Ready bool `json:"ready"`
	// generation of the coordinator's certificate, as SLOT.NUMBER. Each new Pod of a slot gets a higher number than the Pods
	// before it.
	// +optional
	Generation string `json:"generation,omitempty"`
}

// SettingsGeneration is a generation of a PoolSettings.
type SettingsGeneration struct {
	// name of the PoolSettings.
	Name string `json:"name"`
	// generation of the PoolSettings.
	Generation int64 `json:"generation"`
}

// YurtCoordinatorCondition is one aspect of a YurtCoordinator's state.
type YurtCoordinatorCondition struct {
	// type of the condition: Pending, CertsReady, Ready, StandbysReady, KubeletsVerifiable, PoolResourcesComplete,
	// PoolResourcesCurrent, Reconciling, Stalled or EvictionsHeld.
	Type YurtCoordinatorConditionType `json:"type"`
	// status is True, False or Unknown.
	// +kubebuilder:validation:Enum=True;False;Unknown
	Status ConditionStatus `json:"status"`
	// observedGeneration is the generation of the spec that the condition is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// lastProbeTime is when the condition was last checked and written.
	// +optional
	LastProbeTime metav1.Time `json:"lastProbeTime,omitempty"`
	// lastTransitionTime is when the status last changed.
	// +optional
	LastTransitionTime metav1.Time `json:"lastTransitionTime,omitempty"`
	// reason for the status, in one word, for programs.
	// +optional
	Reason string `json:"reason,omitempty"`
	// message is the reason in a sentence, and says what to do.
	// +optional
	Message string `json:"message,omitempty"`
}

// YurtCoordinatorConditionType names a condition.
type YurtCoordinatorConditionType string

// The conditions of a YurtCoordinator.
const (
	// YurtCoordinatorPending is true while something keeps the pool from a coordinator. For example, the pool has too few
	// nodes, or another YurtCoordinator.
	YurtCoordinatorPending YurtCoordinatorConditionType = "Pending"
	// YurtCoordinatorCertsReady is true when the coordinator has the certificates that it needs on its present node.
	YurtCoordinatorCertsReady YurtCoordinatorConditionType = "CertsReady"
	// YurtCoordinatorReady is true while a coordinator of the pool serves: the one in slot 0, or a standby.
	YurtCoordinatorReady YurtCoordinatorConditionType = "Ready"
	// YurtCoordinatorStandbysReady is true while all wanted coordinators of the pool serve. This condition exists only if more
	// than one coordinator is wanted.
	YurtCoordinatorStandbysReady YurtCoordinatorConditionType = "StandbysReady"
	// YurtCoordinatorKubeletsVerifiable is true while the coordinator can verify each kubelet of the nodes that reach it. This
	// condition exists once the hub that leads the pool has reported.
	YurtCoordinatorKubeletsVerifiable YurtCoordinatorConditionType = "KubeletsVerifiable"
	// YurtCoordinatorResourcesComplete is true once all of the pool's shared resources have come to the coordinator since it
	// started. This condition exists once the hub that leads the pool has reported.
	YurtCoordinatorResourcesComplete YurtCoordinatorConditionType = "PoolResourcesComplete"
	// YurtCoordinatorResourcesCurrent is true while the hub that leads the pool also brings each change of these resources.
	// This condition exists once that hub has reported.
	YurtCoordinatorResourcesCurrent YurtCoordinatorConditionType = "PoolResourcesCurrent"
	// YurtCoordinatorReconciling is true while the coordinator does not run yet with its version and its settings. kstatus then
	// reports the YurtCoordinator as in progress.
	YurtCoordinatorReconciling YurtCoordinatorConditionType = "Reconciling"
	// YurtCoordinatorStalled is true while somebody must fix something first. kstatus then reports the YurtCoordinator as
	// failed.
	YurtCoordinatorStalled YurtCoordinatorConditionType = "Stalled"
	// YurtCoordinatorEvictionsHeld is true while evictions from the pool are held because all of its nodes fell silent
	// together. This condition exists from the first such time on.
	YurtCoordinatorEvictionsHeld YurtCoordinatorConditionType = "EvictionsHeld"
)

// ConditionStatus is whether a condition holds.
type ConditionStatus string

// Values of ConditionStatus.
const (
	ConditionTrue    ConditionStatus = "True"
	ConditionFalse   ConditionStatus = "False"
	ConditionUnknown ConditionStatus = "Unknown"
)

// YurtCoordinatorList is a list of YurtCoordinators.
//
// +kubebuilder:object:root=true
type YurtCoordinatorList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []YurtCoordinator `json:"items"`
}
