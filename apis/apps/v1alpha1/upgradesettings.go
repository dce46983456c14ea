package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// UpgradeSettings say which version the hubs of the selected pools should run, and how they are upgraded. A field that is left
// out is not set. A node only runs a version that is signed with a key that was installed together with its hub.
type UpgradeSettings struct {
	// version is the release that the pools' hubs should run, such as v0.3.0. A version that is lower than the present one
	// takes the hubs back, as far as their nodes allow it. Without a version, nothing changes.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$`
	Version string `json:"version,omitempty"`

	// maxUnavailable is how many nodes of a pool may be upgrading at the same time; the default is one.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	MaxUnavailable *int32 `json:"maxUnavailable,omitempty"`

	// paused lets no upgrade begin. Upgrades that have begun run to their end.
	// +optional
	Paused *bool `json:"paused,omitempty"`

	// window is when upgrades may begin; the default is at any time.
	// +optional
	Window *UpgradeWindow `json:"window,omitempty"`
}

// UpgradeWindow is a time of day on some or all days of the week.
type UpgradeWindow struct {
	// days on which the window begins; the default is every day.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=7
	Days []Weekday `json:"days,omitempty"`

	// start is the time of day when the window begins, such as 02:30.
	// +kubebuilder:validation:Pattern=`^([01][0-9]|2[0-3]):[0-5][0-9]$`
	Start string `json:"start"`

	// duration is how long after the start upgrades may begin, such as 3h. It is 15m to 24h.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Format=duration
	// +kubebuilder:validation:XValidation:rule="self >= duration('15m') && self <= duration('24h')",message="use 15m to 24h"
	Duration metav1.Duration `json:"duration"`

	// timeZone is the name of the time zone of the window, such as Europe/Berlin; the default is UTC.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+)*$`
	// +kubebuilder:validation:XValidation:rule="self != 'Local'",message="name a zone; nobody knows where a controller runs"
	TimeZone string `json:"timeZone,omitempty"`
}

// Weekday is a day's English name.
// +kubebuilder:validation:Enum=Monday;Tuesday;Wednesday;Thursday;Friday;Saturday;Sunday
type Weekday string

// UpgradeStatus says how far the upgrade of the selected pools' hubs has come.
type UpgradeStatus struct {
	// nodes is how many nodes should run a version that is set for them.
	Nodes int32 `json:"nodes"`
	// upgradedNodes is how many of these nodes report that they run that version.
	UpgradedNodes int32 `json:"upgradedNodes"`

	// pools are the first fifty pools that are not finished. Those that somebody must look at come first.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=50
	Pools []PoolUpgrade `json:"pools,omitempty"`
}

// PoolUpgrade says how far the upgrade of one pool has come.
type PoolUpgrade struct {
	// name of the NodePool.
	Name string `json:"name"`
	// version is the version that is set for the pool's hubs.
	Version string `json:"version"`
	// nodes is how many nodes the pool has.
	Nodes int32 `json:"nodes"`
	// upgradedNodes is how many of these nodes report that they run the version.
	UpgradedNodes int32 `json:"upgradedNodes"`
	// state is Upgrading, WaitsItsTurn, OutsideWindow, Paused, NotUpgradable, Waiting, Stopped or BadSettings.
	State string `json:"state"`
	// message explains the state.
	// +optional
	Message string `json:"message,omitempty"`
}
