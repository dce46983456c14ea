package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// UpgradeSettings say of which version the hubs of the selected pools are to be, and how they get there. A field that is left out
// is not set. A node accepts only programs that a key has signed which was installed with its hub.
type UpgradeSettings struct {
	// version is the release that the pools' hubs are to be of, such as v0.3.0. A lower one than they have is a way back, as far
	// as the nodes let it. Without it nothing is changed.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$`
	Version string `json:"version,omitempty"`

	// maxUnavailable is how many nodes of a pool may be under way at a time, by default one.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	MaxUnavailable *int32 `json:"maxUnavailable,omitempty"`

	// paused begins nothing. What is under way comes to its end.
	// +optional
	Paused *bool `json:"paused,omitempty"`

	// window is when upgrades may begin; without it that is always.
	// +optional
	Window *UpgradeWindow `json:"window,omitempty"`
}

// UpgradeWindow is a time of day, of some days.
type UpgradeWindow struct {
	// days on which it begins; without them that is every day.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=7
	Days []Weekday `json:"days,omitempty"`

	// start is when it begins, such as 02:30.
	// +kubebuilder:validation:Pattern=`^([01][0-9]|2[0-3]):[0-5][0-9]$`
	Start string `json:"start"`

	// duration is how long upgrades may begin from then on, such as 3h: 15m to 24h.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Format=duration
	// +kubebuilder:validation:XValidation:rule="self >= duration('15m') && self <= duration('24h')",message="use 15m to 24h"
	Duration metav1.Duration `json:"duration"`

	// timeZone is a name such as Europe/Berlin; by default it is UTC.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+)*$`
	// +kubebuilder:validation:XValidation:rule="self != 'Local'",message="name a zone; nobody knows where a controller runs"
	TimeZone string `json:"timeZone,omitempty"`
}

// Weekday is a day's English name.
// +kubebuilder:validation:Enum=Monday;Tuesday;Wednesday;Thursday;Friday;Saturday;Sunday
type Weekday string

// UpgradeStatus is how far the upgrade of the selected pools' hubs is.
type UpgradeStatus struct {
	// nodes is how many nodes are to be of a version.
	Nodes int32 `json:"nodes"`
	// upgradedNodes is how many of them say that they are.
	UpgradedNodes int32 `json:"upgradedNodes"`

	// pools that are not there yet: the first fifty, those that somebody must look at before the others.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=50
	Pools []PoolUpgrade `json:"pools,omitempty"`
}

// PoolUpgrade is how far a pool is.
type PoolUpgrade struct {
	// name of the NodePool.
	Name string `json:"name"`
	// version that its hubs are to be of.
	Version string `json:"version"`
	// nodes is how many it has.
	Nodes int32 `json:"nodes"`
	// upgradedNodes is how many of them say that they are of the version.
	UpgradedNodes int32 `json:"upgradedNodes"`
	// state is Upgrading, WaitsItsTurn, OutsideWindow, Paused, Waiting, Stopped or BadSettings.
	State string `json:"state"`
	// message says more.
	// +optional
	Message string `json:"message,omitempty"`
}
