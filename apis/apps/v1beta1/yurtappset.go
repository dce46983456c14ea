package v1beta1

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// YurtAppSet runs one workload in each of several pools. It makes a Deployment or StatefulSet for each pool from one template,
// with changes for single pools. An empty nodepoolSelector selects every pool.
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

// YurtAppSetSpec says what runs, and in which pools.
type YurtAppSetSpec struct {
	// workload is what runs in each pool.
	Workload Workload `json:"workload"`

	// nodepoolSelector selects pools by their labels, in addition to those that pools names; {} selects every pool.
	// +optional
	NodePoolSelector *metav1.LabelSelector `json:"nodepoolSelector,omitempty"`

	// pools are the names of pools. With neither pools nor nodepoolSelector, the workload runs in no pool.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=10000
	Pools []string `json:"pools,omitempty"`

	// rollout says how a change reaches the pools that already have a workload. Without it, a change reaches all of them at
	// once.
	// +optional
	Rollout *Rollout `json:"rollout,omitempty"`

	// revisionHistoryLimit is how many old revisions are kept.
	// +optional
	// +kubebuilder:default=10
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	RevisionHistoryLimit *int32 `json:"revisionHistoryLimit,omitempty"`
}

// Rollout says how a change of the template, of a tweak or of a pool's labels reaches the pools. The rollout skips pools that
// are cut off, or whose Deployment is paused, and changes each of them once that is over. It stops when the workload of a pool
// fails with the change.
type Rollout struct {
	// maxUnavailable is how many pools may be under way at a time. A pool is under way from its change until its workload is
	// available again. Give a number, or a share of all pools such as 10%, which means at least one pool.
	// +optional
	// +kubebuilder:default="10%"
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="type(self) == string ? self.matches('^([1-9][0-9]?|100)%$') : self >= 1",message="give a number from 1, or a share from 1% to 100%"
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`

	// canary selects, by their labels, pools that change before all others. No other pool changes until all of these have the
	// change and are available.
	// +optional
	Canary *metav1.LabelSelector `json:"canary,omitempty"`

	// paused stops the rollout. Pools that are under way continue, and new pools get their workload.
	// +optional
	Paused bool `json:"paused,omitempty"`

	// prePull makes the nodes that are to run a pool's new Pods pull their images before the old Pods end. If an image can't be
	// pulled, the old Pods stay.
	// +optional
	PrePull *PrePull `json:"prePull,omitempty"`

	// group is a name that several YurtAppSets of one namespace share. They never change in the same pool at the same time, and
	// maxUnavailable counts for all of them together. Use it for workloads that stand in for each other.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Group string `json:"group,omitempty"`
}

// PrePull pulls images before Pods are replaced.
type PrePull struct {
	// timeoutSeconds is how long a pull may take. After that it is reported as failed, and tried again.
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
	// metadata has the labels and annotations that are put on each StatefulSet.
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
	// metadata has the labels and annotations that are put on each Deployment.
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
	// nodepoolSelector selects pools by their labels, in addition to those that pools names.
	// +optional
	NodePoolSelector *metav1.LabelSelector `json:"nodepoolSelector,omitempty"`
	// pools are the names of pools.
	// +optional
	// +listType=set
	Pools []string `json:"pools,omitempty"`
	// tweaks are the differences from the template in these pools.
	Tweaks Tweaks `json:"tweaks"`
}

// Tweaks are differences from the template. They are applied in this order: replicas, containerImages, patches.
type Tweaks struct {
	// replicas are used instead of the template's.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Replicas *int32 `json:"replicas,omitempty"`
	// containerImages are used instead of the template's images.
	// +optional
	// +listType=map
	// +listMapKey=name
	ContainerImages []ContainerImage `json:"containerImages,omitempty"`
	// patches change the whole workload, as in JSON Patch (RFC 6902). In a string, {{nodepool-name}} stands for the pool's
	// name, and so does {{nodepool}}.
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
	// targetImage is the image that the container runs.
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
	// path to a field of the workload, such as /spec/template/spec/nodeSelector.
	// +kubebuilder:validation:Pattern=`^(/[^/]*)+$`
	Path string `json:"path"`
	// operation is add, remove or replace.
	// +kubebuilder:validation:Enum=add;remove;replace
	Operation Operation `json:"operation"`
	// value is the new value. The operations add and replace need one.
	// +optional
	Value *apiextensionsv1.JSON `json:"value,omitempty"`
}

// YurtAppSetStatus is the state of a YurtAppSet.
type YurtAppSetStatus struct {
	// observedGeneration is the generation of the spec that this status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// collisionCount is OpenYurt's, and is left as it is.
	// +optional
	CollisionCount *int32 `json:"collisionCount,omitempty"`
	// currentRevision is the name of the ControllerRevision that has the present spec.
	// +optional
	CurrentRevision string `json:"currentRevision"`
	// conditions are PoolFound, AppDispatched, AppUpdated, AppDeleted, AppReady, Ready and Stalled. Ready and Stalled are for
	// kstatus. Ready is true when all of the others except PoolFound are true and all Pods are of the newest revision. Stalled
	// is true while somebody must first correct a selector, or a pool that stops the rollout.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []YurtAppSetCondition `json:"conditions,omitempty"`
	// readyWorkloads is the number of pools in which all wanted replicas are ready.
	ReadyWorkloads int32 `json:"readyWorkloads"`
	// updatedWorkloads is the number of pools in which all Pods are of the newest revision.
	// +optional
	UpdatedWorkloads int32 `json:"updatedWorkloads"`
	// totalWorkloads is how many pools have a workload.
	TotalWorkloads int32 `json:"totalWorkloads"`
	// workloads are the workloads of the first 500 pools, in the order of the pools' names.
	// +optional
	// +listType=map
	// +listMapKey=pool
	Workloads []WorkloadStatus `json:"workloads,omitempty"`
}

// WorkloadStatus is the state of one pool's workload.
type WorkloadStatus struct {
	// pool is the name of the pool.
	Pool string `json:"pool"`
	// name of the Deployment or StatefulSet.
	Name string `json:"name"`
	// replicas is how many replicas are wanted.
	Replicas int32 `json:"replicas"`
	// readyReplicas is how many replicas are ready.
	ReadyReplicas int32 `json:"readyReplicas"`
	// updatedReplicas is how many replicas are of the newest revision.
	UpdatedReplicas int32 `json:"updatedReplicas"`
	// message says what is wrong with this workload.
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
	// AppSetAppUpdated is true if every workload is as the YurtAppSet wants it.
	AppSetAppUpdated YurtAppSetConditionType = "AppUpdated"
	// AppSetAppDeleted is true if no pool has a workload that is no longer wanted.
	AppSetAppDeleted YurtAppSetConditionType = "AppDeleted"
	// AppSetAppReady is true if every workload is ready.
	AppSetAppReady YurtAppSetConditionType = "AppReady"
	// AppSetReady is true if every pool has its workload, and no unwanted workload is left. Each workload must be as wanted, of
	// the newest revision, and ready.
	AppSetReady YurtAppSetConditionType = "Ready"
	// AppSetStalled is true while somebody must first correct the YurtAppSet, or a pool that stops its rollout.
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
	// reason for the status, in one word, for programs.
	// +optional
	Reason string `json:"reason,omitempty"`
	// message is the reason in a sentence.
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
