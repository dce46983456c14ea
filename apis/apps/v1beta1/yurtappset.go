package v1beta1

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// YurtAppSet runs one workload in each of several pools: a Deployment or StatefulSet for each, from one template, with
// changes for single pools. With an empty nodepoolSelector it is in every pool.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName=yas,categories=yurt
// +kubebuilder:subresource:status
// +kubebuilder:storageversion
// +kubebuilder:printcolumn:name="Total",type=integer,JSONPath=`.status.totalWorkloads`
// +kubebuilder:printcolumn:name="Ready",type=integer,JSONPath=`.status.readyWorkloads`
// +kubebuilder:printcolumn:name="Updated",type=integer,JSONPath=`.status.updatedWorkloads`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type YurtAppSet struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec YurtAppSetSpec `json:"spec"`
	// +optional
	Status YurtAppSetStatus `json:"status,omitempty"`
}

// YurtAppSetSpec says what runs, and where.
type YurtAppSetSpec struct {
	// workload is what runs in each pool.
	Workload Workload `json:"workload"`

	// nodepoolSelector selects pools by their labels; {} is every pool. Those of pools are added to them.
	// +optional
	NodePoolSelector *metav1.LabelSelector `json:"nodepoolSelector,omitempty"`

	// pools are pools by name. With neither pools nor nodepoolSelector the workload is in none.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=10000
	Pools []string `json:"pools,omitempty"`

	// rollout says how a change reaches the pools that have a workload already. Without it a change reaches all of them at once.
	// +optional
	Rollout *Rollout `json:"rollout,omitempty"`

	// revisionHistoryLimit is how many old revisions are kept.
	// +optional
	// +kubebuilder:default=10
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	RevisionHistoryLimit *int32 `json:"revisionHistoryLimit,omitempty"`
}

// Rollout says how a change of the template, of a tweak or of a pool's labels reaches the pools. It does not wait for pools that
// are cut off, or whose Deployment is paused: these are changed once that is over. It stops when the workload of a pool fails
// with the change.
type Rollout struct {
	// maxUnavailable is how many pools may be under way at a time, that is changed and not available again: a number, or a share
	// of all pools such as 10%; at least one.
	// +optional
	// +kubebuilder:default="10%"
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="type(self) == string ? self.matches('^([1-9][0-9]?|100)%$') : self >= 1",message="give a number from 1, or a share from 1% to 100%"
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`

	// canary selects pools by their labels that change before all others: no other pool changes until all of these have the
	// change and are available.
	// +optional
	Canary *metav1.LabelSelector `json:"canary,omitempty"`

	// paused stops the rollout. Pools that are under way continue, and new pools get their workload.
	// +optional
	Paused bool `json:"paused,omitempty"`

	// prePull pulls the images of a pool's new Pods on the nodes that are to run them, before the old Pods end. If they can't be
	// pulled, the old Pods stay.
	// +optional
	PrePull *PrePull `json:"prePull,omitempty"`

	// group is a name that several YurtAppSets of one namespace have in common. These never change in the same pool at the same
	// time, and share maxUnavailable: use it where one of them stands in for another.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Group string `json:"group,omitempty"`
}

// PrePull pulls images before Pods are replaced.
type PrePull struct {
	// timeoutSeconds is how long a pull may take before it is reported as failed, and tried again.
	// +optional
	// +kubebuilder:default=1200
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=86400
	TimeoutSeconds *int32 `json:"timeoutSeconds,omitempty"`
}

// Workload is what runs in each pool.
type Workload struct {
	// workloadTemplate is what the pools' workloads are made from.
	WorkloadTemplate WorkloadTemplate `json:"workloadTemplate"`
	// workloadTweaks are changes for some pools. If several apply to one pool, later ones override earlier ones.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10000
	WorkloadTweaks []WorkloadTweak `json:"workloadTweaks,omitempty"`
}

// WorkloadTemplate is a template of exactly one kind.
//
// +kubebuilder:validation:XValidation:rule="has(self.deploymentTemplate) != has(self.statefulSetTemplate)",message="exactly one of deploymentTemplate and statefulSetTemplate is needed"
// +kubebuilder:validation:XValidation:rule="has(self.deploymentTemplate) == has(oldSelf.deploymentTemplate)",message="the kind of the workload can't be changed: make another YurtAppSet"
type WorkloadTemplate struct {
	// statefulSetTemplate makes a StatefulSet in each pool.
	// +optional
	StatefulSetTemplate *StatefulSetTemplateSpec `json:"statefulSetTemplate,omitempty"`
	// deploymentTemplate makes a Deployment in each pool.
	// +optional
	DeploymentTemplate *DeploymentTemplateSpec `json:"deploymentTemplate,omitempty"`
}

// StatefulSetTemplateSpec is what StatefulSets are made from.
type StatefulSetTemplateSpec struct {
	// metadata: its labels and annotations are put on each StatefulSet.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// spec of each StatefulSet, as in apps/v1.
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	Spec appsv1.StatefulSetSpec `json:"spec"`
}

// DeploymentTemplateSpec is what Deployments are made from.
type DeploymentTemplateSpec struct {
	// metadata: its labels and annotations are put on each Deployment.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// spec of each Deployment, as in apps/v1.
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	Spec appsv1.DeploymentSpec `json:"spec"`
}

// WorkloadTweak is a change for some pools.
type WorkloadTweak struct {
	// nodepoolSelector selects pools by their labels. Those of pools are added to them.
	// +optional
	NodePoolSelector *metav1.LabelSelector `json:"nodepoolSelector,omitempty"`
	// pools are pools by name.
	// +optional
	// +listType=set
	Pools []string `json:"pools,omitempty"`
	// tweaks are the differences there.
	Tweaks Tweaks `json:"tweaks"`
}

// Tweaks are differences from the template. They are applied in the order of the fields here.
type Tweaks struct {
	// replicas instead of the template's.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Replicas *int32 `json:"replicas,omitempty"`
	// containerImages instead of the template's.
	// +optional
	// +listType=map
	// +listMapKey=name
	ContainerImages []ContainerImage `json:"containerImages,omitempty"`
	// patches of the whole workload, as in JSON Patch (RFC 6902). {{nodepool-name}} in a string is the pool's name, and so is
	// {{nodepool}}.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	Patches []Patch `json:"patches,omitempty"`
}

// ContainerImage is a container's image.
type ContainerImage struct {
	// name of the container, or of the init container.
	// +kubebuilder:validation:MinLength=1
	Name string `json:"name"`
	// targetImage is the image that it runs.
	// +kubebuilder:validation:MinLength=1
	TargetImage string `json:"targetImage"`
}

// Operation is what a Patch does.
type Operation string

// Values of Operation, as in JSON Patch.
const (
	OperationAdd     Operation = "add"
	OperationRemove  Operation = "remove"
	OperationReplace Operation = "replace"
)

// Patch is one operation of JSON Patch.
type Patch struct {
	// path into the workload, such as /spec/template/spec/nodeSelector.
	// +kubebuilder:validation:Pattern=`^(/[^/]*)+$`
	Path string `json:"path"`
	// operation is add, remove or replace.
	// +kubebuilder:validation:Enum=add;remove;replace
	Operation Operation `json:"operation"`
	// value for add and replace, which need one.
	// +optional
	Value *apiextensionsv1.JSON `json:"value,omitempty"`
}

// YurtAppSetStatus is the state of a YurtAppSet.
type YurtAppSetStatus struct {
	// observedGeneration is the generation of the spec that this status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// collisionCount distinguishes the names of revisions that have the same hash.
	// +optional
	CollisionCount *int32 `json:"collisionCount,omitempty"`
	// currentRevision is the name of the ControllerRevision of the spec.
	// +optional
	CurrentRevision string `json:"currentRevision"`
	// conditions: PoolFound, AppDispatched, AppUpdated, AppDeleted, AppReady; and for kstatus Ready, which is all of
	// these except the first, and Stalled, while somebody must correct a selector first, or a pool that stops the rollout.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []YurtAppSetCondition `json:"conditions,omitempty"`
	// readyWorkloads is the number of pools in which all wanted replicas are ready.
	ReadyWorkloads int32 `json:"readyWorkloads"`
	// updatedWorkloads is the number of pools in which all Pods are of the newest revision.
	// +optional
	UpdatedWorkloads int32 `json:"updatedWorkloads"`
	// totalWorkloads is how many workloads there are.
	TotalWorkloads int32 `json:"totalWorkloads"`
	// workloads are the pools' workloads, in the order of the pools' names; the first 500.
	// +optional
	// +listType=map
	// +listMapKey=pool
	Workloads []WorkloadStatus `json:"workloads,omitempty"`
}

// WorkloadStatus is the state of one pool's workload.
type WorkloadStatus struct {
	// pool is its name.
	Pool string `json:"pool"`
	// name of the Deployment or StatefulSet.
	Name string `json:"name"`
	// replicas that are wanted.
	Replicas int32 `json:"replicas"`
	// readyReplicas are those that are ready.
	ReadyReplicas int32 `json:"readyReplicas"`
	// updatedReplicas are those that are of the newest revision.
	UpdatedReplicas int32 `json:"updatedReplicas"`
	// message says what is wrong there.
	// +optional
	Message string `json:"message,omitempty"`
}

// YurtAppSetConditionType names a condition.
type YurtAppSetConditionType string

// The conditions of a YurtAppSet.
const (
	// AppSetPoolFound is true if there are pools to run in.
	AppSetPoolFound YurtAppSetConditionType = "PoolFound"
	// AppSetAppDispatched is true if every pool has its workload.
	AppSetAppDispatched YurtAppSetConditionType = "AppDispatched"
	// AppSetAppUpdated is true if every workload is as wanted.
	AppSetAppUpdated YurtAppSetConditionType = "AppUpdated"
	// AppSetAppDeleted is true if there is no workload where none is wanted.
	AppSetAppDeleted YurtAppSetConditionType = "AppDeleted"
	// AppSetAppReady is true if every workload is ready.
	AppSetAppReady YurtAppSetConditionType = "AppReady"
	// AppSetReady is true if every workload exists, as wanted, of the newest revision and ready, and no other is left.
	AppSetReady YurtAppSetConditionType = "Ready"
	// AppSetStalled is true while somebody must correct the YurtAppSet first, or a pool that stops its rollout.
	AppSetStalled YurtAppSetConditionType = "Stalled"
)

// YurtAppSetCondition is one aspect of a YurtAppSet's state.
type YurtAppSetCondition struct {
	// type of the condition.
	Type YurtAppSetConditionType `json:"type"`
	// status is True, False or Unknown.
	// +kubebuilder:validation:Enum=True;False;Unknown
	Status corev1.ConditionStatus `json:"status"`
	// observedGeneration is the generation of the spec that the condition is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// lastTransitionTime is when the status last changed.
	// +optional
	LastTransitionTime metav1.Time `json:"lastTransitionTime,omitempty"`
	// reason in one word, for programs.
	// +optional
	Reason string `json:"reason,omitempty"`
	// message says it in a sentence.
	// +optional
	Message string `json:"message,omitempty"`
}

// YurtAppSetList is a list of YurtAppSets.
//
// +kubebuilder:object:root=true
type YurtAppSetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []YurtAppSet `json:"items"`
}
