package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// YurtCoordinator asks for a yurt-coordinator in a pool: an API server through which the pool's nodes forward each other's
// heartbeats and share what they read, while their links to the cloud come and go. A pool has at most one.
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

// YurtCoordinatorSpec is what is wanted.
type YurtCoordinatorSpec struct {
	// version of the Kubernetes that the coordinator is made from, such as v1.36.3; by default the one that
	// coordinator-controller is made from. It does not set our release: that is the chart's. The image's tag contains both, as
	// v0.2.0-k1.36.3.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!self.contains('-k')",message="name a version of Kubernetes, such as v1.36.3; our release is the chart's"
	// +kubebuilder:validation:Pattern=`^v[0-9]+\.[0-9]+\.[0-9]+([-.][0-9A-Za-z.-]+)?$`
	// +kubebuilder:validation:MaxLength=64
	Version string `json:"version,omitempty"`

	// nodePool is the name of the coordinator's NodePool. The pool must have three nodes or more, or as many as
	// spec.coordinator.minNodes of its PoolSettings. You can't change this field: delete the YurtCoordinator and make another.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="nodePool can't be changed: delete the YurtCoordinator and make another"
	NodePool string `json:"nodePool"`

	// replicas is how many coordinators the pool has, 1 to 3, each on a different node: one in use, and standbys that have the
	// same objects and take its place when its machine is lost. The default is spec.coordinator.replicas of the pool's
	// PoolSettings, or one. A pool has no more coordinators than nodes.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=3
	Replicas *int32 `json:"replicas,omitempty"`

	// delegatedNodeStatus is how nodes of the pool are shown while their own link to the cloud is down and another node
	// forwards their heartbeats: Ready, the default, or NotReady (Ready is Unknown, with the reason CloudLinkDown).
	// In both cases they keep their Pods and endpoints, and get no new Pods. You can change it at any time.
	// +optional
	DelegatedNodeStatus DelegatedNodeStatus `json:"delegatedNodeStatus,omitempty"`

	// relayedNodeScheduling says which new Pods nodes of the pool take while their own link to the cloud is down and they reach
	// it over the link of another node: PreferNoSchedule, the default (those that fit nowhere else), Disabled (none), or Enabled
	// (any). A node of which only heartbeats take that link takes none. You can change it at any time.
	// +optional
	RelayedNodeScheduling RelayedNodeScheduling `json:"relayedNodeScheduling,omitempty"`

	// deniedUsers lists client certificates that the pool's coordinator no longer accepts, whoever signed them: the name of
	// a user, or X509SHA256= and the SHA-256 digest of one certificate in lower-case hexadecimal digits, as the
	// coordinator's audit log has it. A coordinator that is cut off from the cloud learns of it when its link is back.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=1000
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=256
	// +kubebuilder:validation:items:Pattern=`^\S+( \S+)*$`
	// +kubebuilder:validation:items:XValidation:rule="!self.startsWith('X509SHA256=') || self.matches('^X509SHA256=[0-9a-f]{64}$')",message="give X509SHA256= and 64 lower-case hexadecimal digits"
	DeniedUsers []string `json:"deniedUsers,omitempty"`

	// rekey is any text. When it changes, the coordinator gets a new key for the pool's kubelets, and its former keys are no
	// longer accepted: change it if others had access to a coordinator's machine. A node that is cut off from the cloud
	// learns of it when its link is back, and kubelet remembers an answer for five minutes.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Rekey string `json:"rekey,omitempty"`
}

// DelegatedNodeStatus is how a node is shown whose heartbeats are delegated. Empty is Ready.
// +kubebuilder:validation:Enum=Ready;NotReady
type DelegatedNodeStatus string

// Values of DelegatedNodeStatus.
const (
	DelegatedReady    DelegatedNodeStatus = "Ready"
	DelegatedNotReady DelegatedNodeStatus = "NotReady"
)

// RelayedNodeScheduling says which new Pods a node takes that is relayed. Empty is PreferNoSchedule.
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

	// nodeName is the node that the coordinator runs on; of several, the node of the first one that serves.
	// +optional
	NodeName string `json:"nodeName,omitempty"`

	// coordinators are the pool's coordinators by their slots: slot 0, and those of standbys. Hubs use the one of the lowest slot
	// that they reach.
	// +optional
	// +listType=map
	// +listMapKey=slot
	// +kubebuilder:validation:MaxItems=3
	Coordinators []CoordinatorInSlot `json:"coordinators,omitempty"`

	// conditions: Pending says why there is no coordinator, CertsReady whether it has its certificates, Ready whether it, or a
	// standby in its place, serves, StandbysReady whether all standbys serve, KubeletsVerifiable whether it can verify
	// the kubelets that it must call, and how; PoolResourcesComplete and PoolResourcesCurrent whether it has the pool's shared
	// resources, and their changes; Reconciling whether it still has to change to match its version and its settings, and
	// Stalled whether somebody must fix something first; EvictionsHeld whether evictions are held because all nodes of the pool
	// fell silent together.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []YurtCoordinatorCondition `json:"conditions,omitempty"`

	// delegatedNodes are the living nodes of the pool whose own link to the cloud is down: another node forwards their
	// heartbeats. They are those whose condition CloudLinkDown is True.
	// +optional
	// +listType=set
	DelegatedNodes []string `json:"delegatedNodes,omitempty"`

	// outsidePoolNodes are the nodes of the pool that reach none of its coordinators.
	// +optional
	// +listType=set
	OutsidePoolNodes []string `json:"outsidePoolNodes,omitempty"`

	// settings are the PoolSettings that select the pool, with the generations that this status reflects.
	// +optional
	// +listType=map
	// +listMapKey=name
	Settings []SettingsGeneration `json:"settings,omitempty"`
}

// CoordinatorInSlot is one of a pool's coordinators.
type CoordinatorInSlot struct {
	// slot of the coordinator: 0, or 1 or 2 of a standby.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=2
	Slot int32 `json:"slot"`
	// nodeName is the node that it runs on.
	// +optional
	NodeName string `json:"nodeName,omitempty"`
	// version of its image, such as v0.2.0-k1.36.3: our release, and the Kubernetes that it is made from.
	// +optional
	Version string `json:"version,omitempty"`
	// ready says whether it serves.
	Ready bool `json:"ready"`
	// generation of its certificate, SLOT.NUMBER: each Pod of a slot has a greater number than those before it.
	// +optional
	Generation string `json:"generation,omitempty"`
}

// SettingsGeneration is a generation of a PoolSettings.
type SettingsGeneration struct {
	// name of the PoolSettings.
	Name string `json:"name"`
	// generation of it.
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
	// reason in one word, for programs.
	// +optional
	Reason string `json:"reason,omitempty"`
	// message says it in a sentence, and what to do.
	// +optional
	Message string `json:"message,omitempty"`
}

// YurtCoordinatorConditionType names a condition.
type YurtCoordinatorConditionType string

// The conditions of a YurtCoordinator.
const (
	// YurtCoordinatorPending is true while something prevents the coordinator: its pool has fewer than three nodes, or
	// another coordinator.
	YurtCoordinatorPending YurtCoordinatorConditionType = "Pending"
	// YurtCoordinatorCertsReady is true when the coordinator has the certificates that it needs where it runs.
	YurtCoordinatorCertsReady YurtCoordinatorConditionType = "CertsReady"
	// YurtCoordinatorReady is true while a coordinator of the pool serves: that of slot 0, or a standby.
	YurtCoordinatorReady YurtCoordinatorConditionType = "Ready"
	// YurtCoordinatorStandbysReady is true while all wanted coordinators of the pool serve. It exists if more than one is
	// wanted.
	YurtCoordinatorStandbysReady YurtCoordinatorConditionType = "StandbysReady"
	// YurtCoordinatorKubeletsVerifiable is true while the coordinator can verify each kubelet of the nodes that reach it. It
	// exists once the pool's leader has reported.
	YurtCoordinatorKubeletsVerifiable YurtCoordinatorConditionType = "KubeletsVerifiable"
	// YurtCoordinatorResourcesComplete is true once all of the pool's shared resources have come to the coordinator since it
	// started. It exists once the pool's leader has reported.
	YurtCoordinatorResourcesComplete YurtCoordinatorConditionType = "PoolResourcesComplete"
	// YurtCoordinatorResourcesCurrent is true while the pool's leader also brings each change of these. It exists once the
	// leader has reported.
	YurtCoordinatorResourcesCurrent YurtCoordinatorConditionType = "PoolResourcesCurrent"
	// YurtCoordinatorReconciling is true while the coordinator does not run yet with its version and its settings. kstatus
	// reads it as in progress.
	YurtCoordinatorReconciling YurtCoordinatorConditionType = "Reconciling"
	// YurtCoordinatorStalled is true while somebody must fix something first. kstatus reads it as failed.
	YurtCoordinatorStalled YurtCoordinatorConditionType = "Stalled"
	// YurtCoordinatorEvictionsHeld is true while evictions from the pool are held because all of its nodes fell silent together.
	// It exists from the first such time on.
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
