package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// YurtHubConfiguration has a node's own settings of its hub. A field that is left out has the pool's setting, if it is one of
// HubSettings, or else its default.
//
// +kubebuilder:object:root=true
type YurtHubConfiguration struct {
	metav1.TypeMeta `json:",inline"`

	// nodeName is the name of this node, nodepoolName that of its pool.
	NodeName     string `json:"nodeName,omitempty"`
	NodepoolName string `json:"nodepoolName,omitempty"`

	// serverAddr are the cloud's API servers, https://HOST:PORT[/PATH]. caFile verifies them, by the name tlsServerName if given.
	ServerAddr    []string `json:"serverAddr,omitempty"`
	TLSServerName string   `json:"tlsServerName,omitempty"`
	CAFile        string   `json:"caFile,omitempty"`

	// proxyFile has the URL of a proxy on the way to them, and noProxy the hosts for which it is not used. proxyCAFile
	// verifies an https proxy.
	ProxyFile   string   `json:"proxyFile,omitempty"`
	NoProxy     []string `json:"noProxy,omitempty"`
	ProxyCAFile string   `json:"proxyCAFile,omitempty"`

	// certFile and keyFile are the node's client certificate, if somebody else renews it. Otherwise the hub gets one itself, in
	// certDir, with one of bootstrapFile and kubeletKubeconfig.
	CertFile                 string   `json:"certFile,omitempty"`
	KeyFile                  string   `json:"keyFile,omitempty"`
	CertDir                  string   `json:"certDir,omitempty"`
	BootstrapFile            string   `json:"bootstrapFile,omitempty"`
	DiscoveryTokenCACertHash []string `json:"discoveryTokenCACertHash,omitempty"`
	KubeletKubeconfig        string   `json:"kubeletKubeconfig,omitempty"`

	// enableCoordinator makes the hub use the pool's coordinators, at coordinatorServerAddr (several in the order of their slots,
	// separated by commas), or where the cloud says they are.
	EnableCoordinator     bool   `json:"enableCoordinator,omitempty"`
	CoordinatorServerAddr string `json:"coordinatorServerAddr,omitempty"`

	// kubeletConfig is kubelet's configuration file; empty means that kubelet has none. kubeletServingCertificate is the
	// certificate with which kubelet serves, or the directory where kubelet keeps it: the hub reports it to the coordinator.
	KubeletConfig             *string `json:"kubeletConfig,omitempty"`
	KubeletServingCertificate string  `json:"kubeletServingCertificate,omitempty"`

	// diskCachePath is where the hub keeps its data; empty means only in memory.
	DiskCachePath    *string `json:"diskCachePath,omitempty"`
	DiskCacheKeyFile string  `json:"diskCacheKeyFile,omitempty"`

	// port is where the hub serves this node's programs, at 127.0.0.1, secureBindAddress (empty: nowhere; node: the Node's
	// InternalIP) and securePort where it serves Pods, healthBindAddress and healthPort where it serves its health. openMetrics
	// shows metrics there to everybody.
	Port              int    `json:"port,omitempty"`
	SecureBindAddress string `json:"secureBindAddress,omitempty"`
	SecurePort        int    `json:"securePort,omitempty"`
	HealthBindAddress string `json:"healthBindAddress,omitempty"`
	HealthPort        int    `json:"healthPort,omitempty"`
	OpenMetrics       bool   `json:"openMetrics,omitempty"`

	// How many requests may be in flight: reading, writing, and long-running ones.
	MaxRequestsInflight         int `json:"maxRequestsInflight,omitempty"`
	MaxMutatingRequestsInflight int `json:"maxMutatingRequestsInflight,omitempty"`
	MaxLongRunningRequests      int `json:"maxLongRunningRequests,omitempty"`

	HubSettings `json:",inline"`
}

// LinkProfile says what kind of a link a node has to the cloud.
//
// +kubebuilder:validation:Enum=normal;metered;satellite
type LinkProfile string

// Profiles of links.
const (
	// LinkNormal is a link whose bytes cost little.
	LinkNormal LinkProfile = "normal"
	// LinkMetered is a link billed by the byte: a silent cut is noticed later.
	LinkMetered LinkProfile = "metered"
	// LinkSatellite is a link whose round trips take most of a second.
	LinkSatellite LinkProfile = "satellite"
)

// Relay says what a node whose own link to the cloud is down sends over a neighbour's.
//
// +kubebuilder:validation:Enum=Off;Heartbeats;Control
type Relay string

// Kinds of relaying.
const (
	// RelayOff: nothing. The node doesn't relay for others either.
	RelayOff Relay = "Off"
	// RelayHeartbeats: its heartbeats and its Node's status.
	RelayHeartbeats Relay = "Heartbeats"
	// RelayControl: everything that it would send over its own.
	RelayControl Relay = "Control"
)

// HubSettings are the settings of a hub that the hubs of a pool usually share. A field that is left out is not set.
type HubSettings struct {
	// poolScopeResources are the resources, GROUP/VERSION/RESOURCE (the core group's: VERSION/RESOURCE), that the pool gets
	// over the WAN once, and of which hubs serve a copy to nodes' programs.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:items:Pattern=`^([a-z0-9][a-z0-9.-]*/)?v[a-z0-9]+/[a-z0-9][a-z0-9.-]*$`
	PoolScopeResources []string `json:"poolScopeResources,omitempty"`

	// cacheAgents are the programs whose reads hubs keep, by the prefixes of their User-Agents; * means all.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=64
	// +kubebuilder:validation:items:Pattern=`^[^\s,/]+$`
	CacheAgents []string `json:"cacheAgents,omitempty"`

	// ownObjects brings each node's Node, Pods, their ConfigMaps and Events to the pool's coordinator, for kubectl on site.
	// +optional
	OwnObjects *bool `json:"ownObjects,omitempty"`

	// ownSecrets also brings the Secrets that the Pods use, if the coordinator accepts them.
	// +optional
	OwnSecrets *bool `json:"ownSecrets,omitempty"`

	// masterservice gives Pods that start from now on their node's hub as the API server. It needs a
	// secureBindAddress on each node.
	// +optional
	Masterservice *bool `json:"masterservice,omitempty"`

	// rememberIdentitiesFor is how long the cloud's last answer about a user counts while the cloud cannot be asked, such as
	// 24h; 0s means not at all. Pods of the node are trusted for as long as they exist.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	RememberIdentitiesFor *metav1.Duration `json:"rememberIdentitiesFor,omitempty"`

	// linkProfile is the kind of link to the cloud: normal, metered (fewer bytes; a silent cut is noticed later) or satellite
	// (for long round trips).
	// +optional
	LinkProfile LinkProfile `json:"linkProfile,omitempty"`

	// relay is what a node whose own link to the cloud is down sends over the link of a neighbour in its pool: Control (all),
	// Heartbeats (heartbeats and the status of its Node) or Off, with which it also relays for no other node. The default is
	// Control, or Heartbeats if linkProfile is metered.
	// +optional
	Relay Relay `json:"relay,omitempty"`

	// loggingFormat is the form of the hub's log: text or json.
	// +optional
	// +kubebuilder:validation:Enum=text;json
	LoggingFormat string `json:"loggingFormat,omitempty"`

	// verbosity is how much the hub logs, 0 to 7. It is --v.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=7
	Verbosity *int32 `json:"verbosity,omitempty"`
}
