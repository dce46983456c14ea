package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// YurtHubConfiguration holds the settings of yurthub, the hub, for one node. A field that is left out has the value that the
// node's pool sets, if it is a field of HubSettings, or else its default.
//
// +kubebuilder:object:root=true
type YurtHubConfiguration struct {
	metav1.TypeMeta `json:",inline"`

	// nodeName is the name of this node. nodepoolName is the name of its pool.
	NodeName     string `json:"nodeName,omitempty"`
	NodepoolName string `json:"nodepoolName,omitempty"`

	// serverAddr are the addresses of the cloud's API servers, as https://HOST:PORT[/PATH]. caFile is a PEM file with the
	// authority that signed their certificates. tlsServerName is the name in these certificates; empty means the host of
	// serverAddr.
	ServerAddr    []string `json:"serverAddr,omitempty"`
	TLSServerName string   `json:"tlsServerName,omitempty"`
	CAFile        string   `json:"caFile,omitempty"`

	// proxyFile is a file with the URL of a proxy, through which the hub reaches the API servers. noProxy are the hosts for
	// which the proxy is not used. proxyCAFile is a PEM file with the authority that signed an https proxy's certificate.
	ProxyFile   string   `json:"proxyFile,omitempty"`
	NoProxy     []string `json:"noProxy,omitempty"`
	ProxyCAFile string   `json:"proxyCAFile,omitempty"`

	// certFile and keyFile are the node's client certificate and its private key, if another program renews them. Otherwise the
	// hub gets a certificate of its own and keeps it in certDir. To request this certificate, it uses bootstrapFile or
	// kubeletKubeconfig.
	CertFile                 string   `json:"certFile,omitempty"`
	KeyFile                  string   `json:"keyFile,omitempty"`
	CertDir                  string   `json:"certDir,omitempty"`
	BootstrapFile            string   `json:"bootstrapFile,omitempty"`
	DiscoveryTokenCACertHash []string `json:"discoveryTokenCACertHash,omitempty"`
	KubeletKubeconfig        string   `json:"kubeletKubeconfig,omitempty"`

	// enableCoordinator makes the hub use the pool's coordinators. coordinatorServerAddr are their addresses, in the order of
	// their slots and separated by commas; empty means that the hub asks the cloud for the addresses.
	EnableCoordinator     bool   `json:"enableCoordinator,omitempty"`
	CoordinatorServerAddr string `json:"coordinatorServerAddr,omitempty"`

	// kubeletConfig is kubelet's configuration file; empty means that kubelet has none. kubeletServingCertificate is kubelet's
	// serving certificate, or the directory where kubelet keeps it. The hub reports this certificate to the coordinator.
	KubeletConfig             *string `json:"kubeletConfig,omitempty"`
	KubeletServingCertificate string  `json:"kubeletServingCertificate,omitempty"`

	// diskCachePath is the directory where the hub keeps its data; empty means that it keeps them in memory only.
	DiskCachePath    *string `json:"diskCachePath,omitempty"`
	DiskCacheKeyFile string  `json:"diskCacheKeyFile,omitempty"`

	// port is the port at 127.0.0.1 where the hub serves the programs of this node. secureBindAddress and securePort are where
	// it serves Pods; the address "node" means the Node's InternalIP, and empty means that it serves no Pods. healthBindAddress
	// and healthPort are where it serves its health. openMetrics shows its metrics there to everybody.
	Port              int    `json:"port,omitempty"`
	SecureBindAddress string `json:"secureBindAddress,omitempty"`
	SecurePort        int    `json:"securePort,omitempty"`
	HealthBindAddress string `json:"healthBindAddress,omitempty"`
	HealthPort        int    `json:"healthPort,omitempty"`
	OpenMetrics       bool   `json:"openMetrics,omitempty"`

	// maxRequestsInflight, maxMutatingRequestsInflight and maxLongRunningRequests limit how many requests may be in flight:
	// those that read, those that write, and long-running ones such as watches.
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

// Relay says what a node sends over the link of another node of its pool, while its own link to the cloud is down.
//
// +kubebuilder:validation:Enum=Off;Heartbeats;Control
type Relay string

// Kinds of relaying.
const (
	// RelayOff means nothing. The node doesn't relay for others either.
	RelayOff Relay = "Off"
	// RelayHeartbeats means its heartbeats and its Node's status.
	RelayHeartbeats Relay = "Heartbeats"
	// RelayControl means everything that it would send over its own link.
	RelayControl Relay = "Control"
)

// HubSettings are the settings of yurthub, the hub on each node, that the nodes of a pool usually share. A field that is left
// out is not set.
type HubSettings struct {
	// poolScopeResources are the resources that the pool gets over the WAN once. The hubs serve a copy of them to the programs
	// of their nodes. Each is GROUP/VERSION/RESOURCE, or VERSION/RESOURCE for the core group.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:items:Pattern=`^([a-z0-9][a-z0-9.-]*/)?v[a-z0-9]+/[a-z0-9][a-z0-9.-]*$`
	PoolScopeResources []string `json:"poolScopeResources,omitempty"`

	// cacheAgents are the programs for which hubs keep what they have read, given by the prefixes of their User-Agents; * means
	// all programs.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=64
	// +kubebuilder:validation:items:Pattern=`^[^\s,/]+$`
	CacheAgents []string `json:"cacheAgents,omitempty"`

	// ownObjects makes each hub send its Node, the node's Pods, and their ConfigMaps and Events to the pool's coordinator.
	// People on site read them there with kubectl.
	// +optional
	OwnObjects *bool `json:"ownObjects,omitempty"`

	// ownSecrets makes hubs also send the Secrets that the Pods use, if the coordinator accepts them.
	// +optional
	OwnSecrets *bool `json:"ownSecrets,omitempty"`

	// masterservice makes the node's hub the API server of each Pod that starts from now on. It needs a secureBindAddress on
	// each node.
	// +optional
	Masterservice *bool `json:"masterservice,omitempty"`

	// rememberIdentitiesFor is how long a hub trusts the cloud's last answer about a user, such as what the user may do, while
	// it cannot ask the cloud. An example is 24h; 0s means not at all. Pods of the node are trusted for as long as they exist.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	RememberIdentitiesFor *metav1.Duration `json:"rememberIdentitiesFor,omitempty"`

	// linkProfile is the kind of link to the cloud: normal, metered (fewer bytes; a silent cut is noticed later) or satellite
	// (for long round trips).
	// +optional
	LinkProfile LinkProfile `json:"linkProfile,omitempty"`

	// relay is what a node sends over the link of a neighbour in its pool while its own link to the cloud is down. Control
	// means everything, and Heartbeats means its heartbeats and the status of its Node. Off means nothing; the node then relays
	// for no other node either. The default is Control, or Heartbeats if linkProfile is metered.
	// +optional
	Relay Relay `json:"relay,omitempty"`

	// loggingFormat is the form of the hub's log: text or json.
	// +optional
	// +kubebuilder:validation:Enum=text;json
	LoggingFormat string `json:"loggingFormat,omitempty"`

	// verbosity is how much the hub logs, 0 to 7. It is the flag --v.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=7
	Verbosity *int32 `json:"verbosity,omitempty"`
}
