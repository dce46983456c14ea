package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hub "yurtcoordinator/apis/hub/v1alpha1"
)

// PoolSettings sets, for all pools that it selects, what their hubs do, which version the hubs run, and how the pools'
// coordinators run. Several PoolSettings may select a pool. Each setting then comes from the one with the highest priority that
// has it; if priorities are equal, from the older one.
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

	// nodepoolSelector selects NodePools by their labels, in addition to those that pools names. An empty selector selects all
	// NodePools.
	// +optional
	NodePoolSelector *metav1.LabelSelector `json:"nodepoolSelector,omitempty"`

	// priority decides between several PoolSettings that select the same pool and have the same setting: the highest priority
	// wins.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=-1000
	// +kubebuilder:validation:Maximum=1000
	Priority int32 `json:"priority,omitempty"`

	// hub has the settings of the pools' hubs (yurthub). A node's own setting, by a flag or in its file, overrides the one
	// here.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.ownSecrets) || !self.ownSecrets || !has(self.ownObjects) || self.ownObjects",message="ownSecrets needs ownObjects: hubs send only Secrets of Pods that they send, too"
	Hub hub.HubSettings `json:"hub,omitempty"`

	// coordinator says how the pools' coordinators run, and whether a pool gets one. A change reaches a tenth of the
	// coordinators at a time.
	// +optional
	Coordinator CoordinatorSettings `json:"coordinator,omitempty"`

	// upgrade says which version the pools' hubs should run, and when they are upgraded. A change reaches a tenth of all pools
	// at a time, and one node at a time in each of these pools.
	// +optional
	Upgrade UpgradeSettings `json:"upgrade,omitempty"`
}

// PoolSettingsStatus is the state of a PoolSettings.
type PoolSettingsStatus struct {
	// observedGeneration is the generation of the spec that this status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// pools is how many pools this PoolSettings selects.
	// +optional
	Pools int32 `json:"pools"`

	// nodes is how many nodes the selected pools have.
	// +optional
	Nodes int32 `json:"nodes"`

	// updatedNodes is how many of these nodes have reported that they run with all present settings of their pool.
	// +optional
	UpdatedNodes int32 `json:"updatedNodes"`

	// generations says how many nodes run with each generation of this PoolSettings, according to their last reports. It lists
	// the newest eight generations. It does not count nodes that run with an older generation or without this PoolSettings, or
	// that have not reported.
	// +optional
	// +listType=map
	// +listMapKey=generation
	// +kubebuilder:validation:MaxItems=8
	Generations []NodesOfGeneration `json:"generations,omitempty"`

	// upgrade says how far the upgrade of the selected pools' hubs has come. It exists only if spec.upgrade is set.
	// +optional
	Upgrade *UpgradeStatus `json:"upgrade,omitempty"`

	// conditions of the PoolSettings. Ready says whether all selected pools have the settings. Followed says whether all nodes
	// of these pools apply them. CoordinatorsUpdated says whether all coordinators of the pools run with them.
	// CoordinatorsCreated says whether each of the pools has a coordinator. HubsUpgraded says whether all hubs of the pools run
	// the version that is set for them. Conflicting says whether another PoolSettings of the same priority has a different
	// value for the same setting of the same pool. The conditions about coordinators and upgrades exist only if the spec has
	// such settings.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// NodesOfGeneration is how many nodes run with one generation of a PoolSettings.
type NodesOfGeneration struct {
	// generation of the PoolSettings.
	Generation int64 `json:"generation"`
	// nodes is how many nodes run with this generation.
	Nodes int32 `json:"nodes"`
}

// The conditions of PoolSettings.
const (
	// PoolSettingsReady is true when all selected pools have the settings.
	PoolSettingsReady = "Ready"
	// PoolSettingsFollowed is true when all nodes of the selected pools apply their pool's settings.
	PoolSettingsFollowed = "Followed"
	// PoolSettingsCoordinatorsUpdated is true when the coordinators of the selected pools run with their pools' settings.
	PoolSettingsCoordinatorsUpdated = "CoordinatorsUpdated"
	// PoolSettingsCoordinatorsCreated is true when each selected pool for which create is Always has a coordinator, or at least
	// a YurtCoordinator.
	PoolSettingsCoordinatorsCreated = "CoordinatorsCreated"
	// PoolSettingsHubsUpgraded is true when the hubs of the selected pools run the version that is set for them.
	PoolSettingsHubsUpgraded = "HubsUpgraded"
	// PoolSettingsConflicting is true while another PoolSettings of the same priority has a different value for a setting of
	// the same pool.
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
