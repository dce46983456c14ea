package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hub "yurtcoordinator/apis/hub/v1alpha1"
)

// PoolSettings says once what all hubs of the pools that it selects are to do and of which version they are, and how their
// coordinators run. A pool may be selected by several: a setting is taken from the one with the highest priority that has it; of
// equal priorities, from the older one.
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

	// nodepoolSelector selects NodePools by their labels, besides those that pools names. An empty one selects all.
	// +optional
	NodePoolSelector *metav1.LabelSelector `json:"nodepoolSelector,omitempty"`

	// priority decides which of several PoolSettings says a setting of a pool that they all select: the highest one.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=-1000
	// +kubebuilder:validation:Maximum=1000
	Priority int32 `json:"priority,omitempty"`

	// hub has the settings of the pools' hubs. A setting that a node has itself, by a flag or in its file, beats this one.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.ownSecrets) || !self.ownSecrets || !has(self.ownObjects) || self.ownObjects",message="ownSecrets takes ownObjects: Secrets are brought for the Pods that are"
	Hub hub.HubSettings `json:"hub,omitempty"`

	// coordinator says how the pools' coordinators run, and whether a pool has one. What changes is taken over by a part of the
	// coordinators at a time.
	// +optional
	Coordinator CoordinatorSettings `json:"coordinator,omitempty"`

	// upgrade says of which version the pools' hubs are to be, and when they become so. What changes reaches a tenth of all pools
	// at a time, and one node of each.
	// +optional
	Upgrade UpgradeSettings `json:"upgrade,omitempty"`
}

// PoolSettingsStatus is what became of it.
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

	// updatedNodes is how many of the nodes have said that they run with all that their pool's PoolSettings say now.
	// +optional
	UpdatedNodes int32 `json:"updatedNodes"`

	// generations says how many nodes run with which generation of this PoolSettings, by their last word: the newest eight.
	// Nodes that run with an older one, with none of it, or have not said anything are not among them.
	// +optional
	// +listType=map
	// +listMapKey=generation
	// +kubebuilder:validation:MaxItems=8
	Generations []NodesOfGeneration `json:"generations,omitempty"`

	// upgrade says how far the upgrade of the selected pools' hubs is; it is there only if spec.upgrade says something.
	// +optional
	Upgrade *UpgradeStatus `json:"upgrade,omitempty"`

	// conditions: Ready says whether all selected pools are told of it, Followed whether all of their nodes do as it says,
	// CoordinatorsUpdated whether all of their coordinators run as it says, CoordinatorsCreated whether each of the pools has a
	// coordinator, HubsUpgraded whether all of their hubs are of the version that they are to be of, Conflicting whether another
	// of the same priority says something else about the same setting of the same pool. Those about coordinators and upgrades are
	// there only if the spec says something about it.
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
	// PoolSettingsReady is true when all selected pools are told.
	PoolSettingsReady = "Ready"
	// PoolSettingsFollowed is true when all nodes of the selected pools do what their pool is told.
	PoolSettingsFollowed = "Followed"
	// PoolSettingsCoordinatorsUpdated is true when the coordinators of the selected pools run as their settings say.
	PoolSettingsCoordinatorsUpdated = "CoordinatorsUpdated"
	// PoolSettingsCoordinatorsCreated is true when each pool that create: Always is about has a coordinator, or its
	// YurtCoordinator.
	PoolSettingsCoordinatorsCreated = "CoordinatorsCreated"
	// PoolSettingsHubsUpgraded is true when the hubs of the selected pools are of the version that they are to be of.
	PoolSettingsHubsUpgraded = "HubsUpgraded"
	// PoolSettingsConflicting is true while another PoolSettings of the same priority says something else.
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
