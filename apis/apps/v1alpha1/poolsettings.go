package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hub "yurtcoordinator/apis/hub/v1alpha1"
)

// PoolSettings sets once, for all pools that it selects, what their hubs do, which version these run, and how their coordinators
// run. Several may select a pool: each setting comes from the one with the highest priority that has it; of equal priorities,
// from the older one.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,path=poolsettings,singular=poolsettings,shortName=ps,categories=yurt
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Priority",type=integer,JSONPath=`.spec.priority`
// +kubebuilder:printcolumn:name="Pools",type=integer,JSONPath=`.status.pools`
// +kubebuilder:printcolumn:name="Nodes",type=integer,JSONPath=`.status.nodes`
// +kubebuilder:printcolumn:name="Updated",type=integer,JSONPath=`.status.updatedNodes`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Followed",type=string,JSONPath=`.status.conditions[?(@.type=="Followed")].reason`
// +kubebuilder:printcolumn:name="Hubs",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="HubsUpgraded")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 63",message="the name can have at most 63 characters"
type PoolSettings struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec PoolSettingsSpec `json:"spec"`
	// +optional
	Status PoolSettingsStatus `json:"status,omitempty"`
}

// PoolSettingsSpec says which pools have which settings.
//
// +kubebuilder:validation:XValidation:rule="has(self.pools) || has(self.nodepoolSelector)",message="say which pools: give pools or nodepoolSelector; nodepoolSelector: {} selects all"
type PoolSettingsSpec struct {
	// pools are the names of NodePools that have these settings.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=1000
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	Pools []string `json:"pools,omitempty"`

	// nodepoolSelector selects NodePools by their labels, in addition to those that pools names. An empty one selects all.
	// +optional
	NodePoolSelector *metav1.LabelSelector `json:"nodepoolSelector,omitempty"`

	// priority decides which of several PoolSettings that select a pool sets a setting: the one with the highest priority.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=-1000
	// +kubebuilder:validation:Maximum=1000
	Priority int32 `json:"priority,omitempty"`

	// hub has the settings of the pools' hubs. A node's own setting, by a flag or in its file, overrides this one.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.ownSecrets) || !self.ownSecrets || !has(self.ownObjects) || self.ownObjects",message="ownSecrets takes ownObjects: Secrets are brought for the Pods that are"
	Hub hub.HubSettings `json:"hub,omitempty"`

	// coordinator says how the pools' coordinators run, and whether a pool has one. A change reaches a tenth of the coordinators
	// at a time.
	// +optional
	Coordinator CoordinatorSettings `json:"coordinator,omitempty"`

	// upgrade says which version the pools' hubs should run, and when they are upgraded. A change reaches a tenth of all pools
	// at a time, and one node of each.
	// +optional
	Upgrade UpgradeSettings `json:"upgrade,omitempty"`
}

// PoolSettingsStatus is the state of a PoolSettings.
type PoolSettingsStatus struct {
	// observedGeneration is the generation of the spec that this status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// pools is how many pools it selects.
	// +optional
	Pools int32 `json:"pools"`

	// nodes is how many nodes these pools have.
	// +optional
	Nodes int32 `json:"nodes"`

	// updatedNodes is how many of the nodes have reported that they run with all present settings of their pool.
	// +optional
	UpdatedNodes int32 `json:"updatedNodes"`

	// generations says how many nodes run with which generation of this PoolSettings, by their last report: the newest eight.
	// Nodes that run with an older one, without it, or that have not reported are not included.
	// +optional
	// +listType=map
	// +listMapKey=generation
	// +kubebuilder:validation:MaxItems=8
	Generations []NodesOfGeneration `json:"generations,omitempty"`

	// upgrade says how far the upgrade of the selected pools' hubs is; it exists only if spec.upgrade is set.
	// +optional
	Upgrade *UpgradeStatus `json:"upgrade,omitempty"`

	// conditions: Ready says whether all selected pools have the settings, Followed whether all of their nodes apply them,
	// CoordinatorsUpdated whether all of their coordinators run with them, CoordinatorsCreated whether each of the pools has a
	// coordinator, HubsUpgraded whether all of their hubs run the version that is set for them, Conflicting whether another
	// PoolSettings of the same priority has another value for the same setting of the same pool. Those about coordinators and
	// upgrades exist only if the spec has such settings.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// NodesOfGeneration is how many nodes run with a generation.
type NodesOfGeneration struct {
	// generation of the PoolSettings.
	Generation int64 `json:"generation"`
	// nodes is how many nodes run with it.
	Nodes int32 `json:"nodes"`
}

// The conditions of PoolSettings.
const (
	// PoolSettingsReady is true when all selected pools have the settings.
	PoolSettingsReady = "Ready"
	// PoolSettingsFollowed is true when all nodes of the selected pools apply their pool's settings.
	PoolSettingsFollowed = "Followed"
	// PoolSettingsCoordinatorsUpdated is true when the coordinators of the selected pools run with their settings.
	PoolSettingsCoordinatorsUpdated = "CoordinatorsUpdated"
	// PoolSettingsCoordinatorsCreated is true when each pool that create: Always is about has a coordinator, or its
	// YurtCoordinator.
	PoolSettingsCoordinatorsCreated = "CoordinatorsCreated"
	// PoolSettingsHubsUpgraded is true when the hubs of the selected pools run the version that is set for them.
	PoolSettingsHubsUpgraded = "HubsUpgraded"
	// PoolSettingsConflicting is true while another PoolSettings of the same priority has another value.
	PoolSettingsConflicting = "Conflicting"
)

// PoolSettingsList is a list of PoolSettings.
//
// +kubebuilder:object:root=true
type PoolSettingsList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []PoolSettings `json:"items"`
}
