package v1beta2

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NodePool is the nodes of one site, which share a LAN. A node belongs to it if its label apps.openyurt.io/nodepool is the
// NodePool's name. A NodePool that has nodes can't be deleted.
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
	// Edge means a site of its own.
	Edge NodePoolType = "Edge"
	// Cloud means that the nodes are beside the control plane.
	Cloud NodePoolType = "Cloud"
)

// NodePoolSpec is what the pool's nodes have in common.
//
// +kubebuilder:validation:XValidation:rule="(has(self.hostNetwork) && self.hostNetwork) == (has(oldSelf.hostNetwork) && oldSelf.hostNetwork)",message="hostNetwork can't be changed"
type NodePoolSpec struct {
	// type is Edge for a site of its own, or Cloud for nodes beside the control plane.
	// +optional
	// +kubebuilder:default=Edge
	// +kubebuilder:validation:Enum=Edge;Cloud
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="type can't be changed"
	Type NodePoolType `json:"type,omitempty"`

	// hostNetwork says that the nodes have no Pod network, so their Pods use the network of the host. The nodes get the label
	// nodepool.openyurt.io/hostnetwork=true. With it, the agents of a Pod network can be kept off these nodes.
	// +optional
	HostNetwork bool `json:"hostNetwork,omitempty"`

	// labels are put on each node of the pool. They replace the node's own values for the same keys.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="!('apps.openyurt.io/nodepool' in self)",message="the label apps.openyurt.io/nodepool says which pool a node is in: set it on the node"
	Labels map[string]string `json:"labels,omitempty"`

	// annotations are put on each node of the pool. They replace the node's own values for the same keys.
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

// NodePoolHubLeaders are the fields with which OpenYurt, from 1.7 on, elects leaders among its own hubs. This project does not
// use them. It keeps them for hubs of OpenYurt that still run, and for a return to OpenYurt.
type NodePoolHubLeaders struct {
	// interConnectivity is OpenYurt's and not used here: whether the nodes reach each other.
	// +optional
	InterConnectivity bool `json:"interConnectivity,omitempty"`
	// enableLeaderElection is OpenYurt's and not used here: whether OpenYurt's hubs have leaders.
	// +optional
	EnableLeaderElection bool `json:"enableLeaderElection,omitempty"`
	// leaderElectionStrategy is OpenYurt's and not used here: how the leaders of OpenYurt's hubs are chosen.
	// +optional
	LeaderElectionStrategy string `json:"leaderElectionStrategy,omitempty"`
	// leaderNodeLabelSelector is OpenYurt's and not used here: which nodes may lead.
	// +optional
	LeaderNodeLabelSelector map[string]string `json:"leaderNodeLabelSelector,omitempty"`
	// leaderReplicas is OpenYurt's and not used here: how many leaders a pool has.
	// +optional
	LeaderReplicas int32 `json:"leaderReplicas,omitempty"`
	// poolScopeMetadata is OpenYurt's and not used here: what the leaders of OpenYurt's hubs share.
	// +optional
	// +listType=atomic
	PoolScopeMetadata []PoolScopeResource `json:"poolScopeMetadata,omitempty"`
}

// NodePoolStatus is the state of a NodePool.
type NodePoolStatus struct {
	// observedGeneration is the generation of the spec that the status is about. Ready says whether all nodes have what it wants.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// readyNodeNum is how many nodes are ready.
	ReadyNodeNum int32 `json:"readyNodeNum"`
	// unreadyNodeNum is how many nodes are not ready.
	UnreadyNodeNum int32 `json:"unreadyNodeNum"`
	// nodes are the names of all nodes of the pool, in order.
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

// NodePoolHubLeadersStatus is what OpenYurt, from 1.7 on, writes about the leaders among its own hubs. It also has the
// conditions.
type NodePoolHubLeadersStatus struct {
	// leaderEndpoints are OpenYurt's and not used here: which of OpenYurt's hubs lead.
	// +optional
	// +listType=atomic
	LeaderEndpoints []HubLeader `json:"leaderEndpoints,omitempty"`
	// leaderNum is OpenYurt's and not used here: how many of OpenYurt's hubs lead.
	// +optional
	LeaderNum int32 `json:"leaderNum,omitempty"`
	// leaderLastElectedTime is OpenYurt's and not used here: when the leaders of OpenYurt's hubs were chosen.
	// +optional
	LeaderLastElectedTime *metav1.Time `json:"leaderLastElectedTime,omitempty"`
	// conditions of the NodePool. Ready says whether all nodes have what the NodePool sets. Stalled says whether somebody must
	// correct the NodePool. Other conditions are OpenYurt's, about the choice of leaders, and are kept.
	// +optional
	// +listType=atomic
	Conditions []NodePoolCondition `json:"conditions,omitempty"`
}

// HubLeader is one of OpenYurt's hubs, which leads.
type HubLeader struct {
	// nodeName is the node of the hub.
	NodeName string `json:"nodeName"`
	// address is where the hub is reached.
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
	// reason for the status, in one word, for programs.
	// +optional
	Reason string `json:"reason,omitempty"`
	// message is the reason in a sentence.
	// +optional
	Message string `json:"message,omitempty"`
}

// The conditions of a NodePool that this project sets. kstatus understands both.
const (
	// NodePoolReady is true when all nodes of the pool have what the NodePool sets.
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
