package v1beta2

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NodePool is the nodes of one site, which share a LAN: those whose label apps.openyurt.io/nodepool has its name. A
// NodePool that has nodes can't be deleted.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,path=nodepools,shortName=np,categories=yurt
// +kubebuilder:subresource:status
// +kubebuilder:storageversion
// +kubebuilder:printcolumn:name="Type",type=string,JSONPath=`.spec.type`
// +kubebuilder:printcolumn:name="ReadyNodes",type=integer,JSONPath=`.status.readyNodeNum`
// +kubebuilder:printcolumn:name="NotReadyNodes",type=integer,JSONPath=`.status.unreadyNodeNum`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63",message="the name must fit a label: at most 63 characters"
type NodePool struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	// +kubebuilder:default={}
	Spec NodePoolSpec `json:"spec,omitempty"`
	// +optional
	Status NodePoolStatus `json:"status,omitempty"`
}

// NodePoolType says where a pool's nodes are.
type NodePoolType string

// Values of NodePoolType.
const (
	// Edge is a site of its own.
	Edge NodePoolType = "Edge"
	// Cloud is beside the control plane.
	Cloud NodePoolType = "Cloud"
)

// NodePoolSpec is what the pool's nodes have in common.
//
// +kubebuilder:validation:XValidation:rule="(has(self.hostNetwork) && self.hostNetwork) == (has(oldSelf.hostNetwork) && oldSelf.hostNetwork)",message="hostNetwork can't be changed"
type NodePoolSpec struct {
	// type is Edge for a site of its own, Cloud for nodes beside the control plane.
	// +optional
	// +kubebuilder:default=Edge
	// +kubebuilder:validation:Enum=Edge;Cloud
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="type can't be changed"
	Type NodePoolType `json:"type,omitempty"`

	// hostNetwork says that the nodes have no network for Pods: Pods there use their host's. Nodes get the label
	// nodepool.openyurt.io/hostnetwork=true, which can keep a network's agents off them.
	// +optional
	HostNetwork bool `json:"hostNetwork,omitempty"`

	// labels are put on each node of the pool, and replace what it has.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="!('apps.openyurt.io/nodepool' in self)",message="the label apps.openyurt.io/nodepool says which pool a node is in: set it on the node"
	Labels map[string]string `json:"labels,omitempty"`

	// annotations are put on each node of the pool, and replace what it has.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	Annotations map[string]string `json:"annotations,omitempty"`

	// taints are put on each node of the pool.
	// +optional
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:XValidation:rule="self.effect in ['NoSchedule', 'PreferNoSchedule', 'NoExecute']",message="effect is NoSchedule, PreferNoSchedule or NoExecute"
	// +listType=map
	// +listMapKey=key
	// +listMapKey=effect
	Taints []corev1.Taint `json:"taints,omitempty"`

	NodePoolHubLeaders `json:",inline"`
}

// NodePoolHubLeaders are the fields by which OpenYurt from 1.7 on elects leaders among its own hubs. Nothing here reads them.
// They are kept, for hubs of OpenYurt's that are still there and for the way back.
type NodePoolHubLeaders struct {
	// interConnectivity is OpenYurt's: whether the nodes reach each other. Not used.
	// +optional
	InterConnectivity bool `json:"interConnectivity,omitempty"`
	// enableLeaderElection is OpenYurt's: whether its hubs have leaders. Not used.
	// +optional
	EnableLeaderElection bool `json:"enableLeaderElection,omitempty"`
	// leaderElectionStrategy is OpenYurt's: how leaders of its hubs are chosen. Not used.
	// +optional
	LeaderElectionStrategy string `json:"leaderElectionStrategy,omitempty"`
	// leaderNodeLabelSelector is OpenYurt's: which nodes may lead. Not used.
	// +optional
	LeaderNodeLabelSelector map[string]string `json:"leaderNodeLabelSelector,omitempty"`
	// leaderReplicas is OpenYurt's: how many leaders a pool has. Not used.
	// +optional
	LeaderReplicas int32 `json:"leaderReplicas,omitempty"`
	// poolScopeMetadata is OpenYurt's: what leaders of its hubs share. Not used.
	// +optional
	// +listType=atomic
	PoolScopeMetadata []PoolScopeResource `json:"poolScopeMetadata,omitempty"`
}

// NodePoolStatus is the state of a NodePool.
type NodePoolStatus struct {
	// observedGeneration is the generation of the spec that the nodes have.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// readyNodeNum is how many nodes are ready.
	ReadyNodeNum int32 `json:"readyNodeNum"`
	// unreadyNodeNum is how many are not.
	UnreadyNodeNum int32 `json:"unreadyNodeNum"`
	// nodes are the names of all, in order.
	// +optional
	// +listType=set
	Nodes []string `json:"nodes,omitempty"`

	NodePoolHubLeadersStatus `json:",inline"`
}

// PoolScopeResource is a resource that leaders of OpenYurt's hubs share.
type PoolScopeResource struct {
	// group of the resource.
	Group string `json:"group"`
	// version of the resource.
	Version string `json:"version"`
	// resource is its plural name.
	Resource string `json:"resource"`
}

// NodePoolHubLeadersStatus is what OpenYurt from 1.7 on writes of leaders among its own hubs, and the conditions.
type NodePoolHubLeadersStatus struct {
	// leaderEndpoints are OpenYurt's: which of its hubs lead. Not used.
	// +optional
	// +listType=atomic
	LeaderEndpoints []HubLeader `json:"leaderEndpoints,omitempty"`
	// leaderNum is OpenYurt's: how many of its hubs lead. Not used.
	// +optional
	LeaderNum int32 `json:"leaderNum,omitempty"`
	// leaderLastElectedTime is OpenYurt's: when its leaders were chosen. Not used.
	// +optional
	LeaderLastElectedTime *metav1.Time `json:"leaderLastElectedTime,omitempty"`
	// conditions: Ready says whether all nodes have what the pool wants, Stalled whether somebody must correct the NodePool.
	// The others are OpenYurt's, about the choice of leaders, and are kept.
	// +optional
	// +listType=atomic
	Conditions []NodePoolCondition `json:"conditions,omitempty"`
}

// HubLeader is a hub of OpenYurt's that leads.
type HubLeader struct {
	// nodeName is its node.
	NodeName string `json:"nodeName"`
	// address is where it is reached.
	Address string `json:"address"`
}

// NodePoolCondition is one aspect of a NodePool's state.
type NodePoolCondition struct {
	// type of the condition.
	// +optional
	Type string `json:"type,omitempty"`
	// status is True, False or Unknown.
	// +optional
	Status corev1.ConditionStatus `json:"status,omitempty"`
	// lastTransitionTime is when the status last changed.
	// +optional
	LastTransitionTime *metav1.Time `json:"lastTransitionTime,omitempty"`
	// reason in one word, for programs.
	// +optional
	Reason string `json:"reason,omitempty"`
	// message says it in a sentence.
	// +optional
	Message string `json:"message,omitempty"`
}

// The conditions of a NodePool that are ours, as kstatus reads them.
const (
	// NodePoolReady is true when all nodes of the pool have what it wants.
	NodePoolReady = "Ready"
	// NodePoolStalled is true while somebody must correct the NodePool first.
	NodePoolStalled = "Stalled"
)

// NodePoolList is a list of NodePools.
//
// +kubebuilder:object:root=true
type NodePoolList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NodePool `json:"items"`
}
