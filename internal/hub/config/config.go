package config

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

	"yurtcoordinator/apis/hub/v1alpha1"
	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/hub/front"
	"yurtcoordinator/internal/hub/identity"
	"yurtcoordinator/internal/hub/upstream"
	"yurtcoordinator/internal/logs"
)

// Config says who a hub is and where it finds its API servers. AddFlags sets the defaults.
type Config struct {
	// Node is the node on which the hub runs. Pool is the pool to which the node belongs; it may be empty if EnableCoordinator
	// is false.
	Node edge.NodeName
	Pool edge.PoolName

	// ServerAddresses are the cloud's API servers, https://HOST:PORT, all equal, the first preferred.
	ServerAddresses []string
	// TLSServerName is the name in their certificates; empty means the host in each one's address.
	TLSServerName string
	// ProxyFile has the URL of a proxy on the way to the servers. NoProxy are the hosts that the hub reaches without the proxy.
	// If ProxyFile is empty, the environment decides: see upstream.WaySettings. ProxyCAFile verifies an HTTPS proxy, in
	// addition to the system's authorities.
	ProxyFile   string
	NoProxy     []string
	ProxyCAFile string
	// CAFile has the authorities by which the hub verifies the servers. CertFile and KeyFile, which somebody else maintains, are
	// the node's client certificate for the cloud and the coordinator. If both are empty, the hub itself gets and renews a
	// certificate in CertDir, as Identity says, and CAFile may be empty, too. CertDir also has the files by which kubelet and the
	// hub verify each other.
	CAFile, CertFile, KeyFile string
	CertDir                   string
	Identity                  Identity

	// EnableCoordinator makes the hub use the pool's coordinators. Without them the hub is a plain proxy. CoordinatorAddress is
	// empty if the cloud says where they are. Otherwise it is one or more addresses in the order of their slots, separated by
	// commas, and CAFile verifies the coordinators there.
	EnableCoordinator  bool
	CoordinatorAddress string

	// PoolScopeResources are the resources that this hub caches, to answer its node's programs. If the pool has a coordinator,
	// they cross the WAN once for the whole pool. InForce.Change can change them.
	PoolScopeResources []string
	// OwnObjects makes the hub push this node's Node, its Pods and the objects that the Pods use to the coordinator, for people
	// on site. OwnSecrets makes it also push the Secrets that the Pods use.
	OwnObjects, OwnSecrets bool
	// KubeletConfig is kubelet's configuration file. KubeletServing is kubelet's serving certificate, or the directory where
	// kubelet keeps it. The hub reports the certificate to the coordinator, which verifies kubelet by it.
	KubeletConfig, KubeletServing string

	// DiskCachePath is the directory of the hub's cache, from which the node can start while nothing can be reached. No other
	// program may use it. Empty means that the cache is in memory only.
	DiskCachePath string
	// DiskCacheKeyFile has the key with which the hub encrypts Secrets and tokens in the cache. Empty means the path of
	// DiskCachePath with .key appended.
	DiskCacheKeyFile string
	// DiskCacheClockOffset is for tests: it puts the disk's clock ahead, so that the disk's content ages and nothing else does. A
	// test can change it while the hub runs.
	DiskCacheClockOffset time.Duration
	// RememberIdentitiesFor is how long the cloud's last answer about a user holds while the cloud cannot be asked; 0 means not
	// at all. For this node's Pods the answer holds for as long as the node has them.
	RememberIdentitiesFor time.Duration
	// LinkProfile says what kind of link leads to the cloud. InForce.Change can change it.
	LinkProfile v1alpha1.LinkProfile
	// Relay says which requests use a neighbour's line while the node's own is down. If it is empty, LinkProfile decides.
	// InForce.Change can change it.
	Relay v1alpha1.Relay
	// CacheAgents are the programs whose reads are cached, by the names with which their User-Agent begins; "*" means all.
	CacheAgents []string

	// Port is where the hub serves kubelet, over TLS, and the host's other programs with credentials of their own, at Loopback.
	Port int
	// SecureBindAddress and SecurePort are where the hub serves Pods over TLS, each Pod with its own credentials. The address is
	// one of the node's that Pods reach, or OfNode. If it is empty, the hub serves no Pods. The hub requests a certificate for
	// that address.
	SecureBindAddress string
	SecurePort        int
	// MasterService tells kubelet and kube-proxy that the API server is at SecureBindAddress: kubelet gives that address to new
	// Pods, and kube-proxy reads it in its kubeconfig. With OfNode, this begins when the hub has a certificate for the address.
	MasterService bool
	// HealthBindAddress and HealthPort are where the hub serves /healthz and /readyz to anybody, and /status, /metrics and Go's
	// profiles to this node's root user. OpenMetrics makes it serve /metrics to anybody.
	HealthBindAddress string
	HealthPort        int
	OpenMetrics       bool

	// MaxRequestsInFlight bounds the reads under way, MaxMutatingRequestsInFlight the writes, as kube-apiserver's flags of
	// similar names do. MaxLongRunningRequests bounds watches and streams.
	MaxRequestsInFlight, MaxMutatingRequestsInFlight, MaxLongRunningRequests int

	// Logs says how the hub logs. InForce.Change can change how much.
	Logs logs.Settings

	// Own names the flags that the node sets itself, among those that its pool may set as well: see Given.
	Own []string
}

// Loopback is where a hub serves kubelet and the host's other programs.
const Loopback = "127.0.0.1"

// OfNode as SecureBindAddress means the address in the Node object, which may change.
const OfNode = "node"

// Identity is how a node proves who it is to get a certificate; see identity.Config, whose fields have these names.
type Identity struct {
	BootstrapFile     string
	CACertHashes      []string
	KubeletKubeconfig string
}

// maxPoolScope bounds the resources, as the coordinator does (see pool.maxMirrored).
const maxPoolScope = 32

// AddFlags declares the settings as flags and sets their defaults.
func (c *Config) AddFlags(fs *pflag.FlagSet) {
	d := v1alpha1.Default()
	fs.StringVar((*string)(&c.Node), "node-name", "", "name of this node (required)")
	fs.StringVar((*string)(&c.Pool), "nodepool-name", "",
		"name of the pool that this node belongs to (required with a coordinator)")
	fs.StringSliceVar(&c.ServerAddresses, "server-addr", nil,
		"addresses of the cloud's API servers, https://HOST:PORT[/PATH],… (required)")
	fs.StringVar(&c.TLSServerName, "tls-server-name", "",
		"name in the API servers' certificates; default: the host in --server-addr")
	fs.StringVar(&c.ProxyFile, "proxy-file", "",
		"file with the URL of the proxy to the cloud: http, https or socks5://[USER:PASSWORD@]HOST:PORT; it is read for "+
			"every connection; default: HTTPS_PROXY and NO_PROXY of the environment; the coordinator is never reached "+
			"through a proxy")
	fs.StringSliceVar(&c.NoProxy, "no-proxy", nil,
		"hosts, domains and networks to reach without the proxy of --proxy-file, as in NO_PROXY")
	fs.StringVar(&c.ProxyCAFile, "proxy-ca-file", "",
		"PEM file of the authority that signed an https proxy's certificate; default: the system's authorities")
	fs.StringVar(&c.CAFile, "ca-file", "",
		"PEM file of the authority that signed the API servers' certificates (required with --cert-file; otherwise default: "+
			"from the file of --bootstrap-file or --kubelet-kubeconfig, or discovered with the bootstrap token)")
	fs.StringVar(&c.CertFile, "cert-file", "",
		"PEM file of this node's client certificate, which somebody else renews; default: the hub gets its own")
	fs.StringVar(&c.KeyFile, "key-file", "", "PEM file of the private key of --cert-file")
	c.Identity.addFlags(fs)
	fs.StringVar(&c.CertDir, "cert-dir", d.CertDir,
		"directory for the hub's own certificates, the token and certificate with which kubelet and the hub verify each other, "+
			"and the coordinator's last known address")
	fs.BoolVar(&c.EnableCoordinator, "enable-coordinator", false, "use the pool's coordinator")
	fs.StringVar(&c.CoordinatorAddress, "coordinator-server-addr", "",
		"address of the pool's coordinator, https://HOST:10270, if somebody other than coordinator-controller runs it; "+
			"give several as a list, in the same order on every node; default: the cloud says where the coordinator is")
	fs.StringSliceVar(&c.PoolScopeResources, "pool-scope-resources", d.PoolScopeResources,
		"resources, GROUP/VERSION/RESOURCE,… (VERSION/RESOURCE for the core group), that cross the WAN once for the whole "+
			"pool; this node's programs are served from a copy")
	fs.BoolVar(&c.OwnObjects, "own-objects", *d.OwnObjects,
		"push this node's Node, Pods, their ConfigMaps and Events to the pool's coordinator, for kubectl on site")
	fs.BoolVar(&c.OwnSecrets, "own-secrets", *d.OwnSecrets,
		"also push the Secrets that this node's Pods use, if the coordinator was started with --own-secrets")
	fs.StringVar(&c.KubeletConfig, "kubelet-config", *d.KubeletConfig,
		"kubelet's configuration file, which names its serving certificate; empty: kubelet has no such file")
	fs.StringVar(&c.KubeletServing, "kubelet-serving-certificate", d.KubeletServingCertificate,
		"kubelet's serving certificate, by which the pool's coordinator recognises kubelet: a file, or kubelet's --cert-dir "+
			"if --kubelet-config names the file; the key is not read")
	fs.StringVar(&c.DiskCachePath, "disk-cache-path", *d.DiskCachePath,
		"directory for what this node's programs have read, Secrets included, so that they can start while the node can reach "+
			"nothing; empty: the hub keeps it in memory only")
	fs.StringVar(&c.DiskCacheKeyFile, "disk-cache-key-file", "",
		"file with the key that encrypts Secrets and tokens in --disk-cache-path, created if missing; default: that path with "+
			".key appended; unused with a systemd credential yurthub-cache-key")
	fs.DurationVar(&c.DiskCacheClockOffset, "disk-cache-clock-offset", 0,
		"how far to put ahead the clock by which content of --disk-cache-path grows old; for tests")
	_ = fs.MarkHidden("disk-cache-clock-offset") // it fails only for an unknown flag
	fs.DurationVar(&c.RememberIdentitiesFor, "remember-identities-for", d.RememberIdentitiesFor.Duration,
		"how long to trust the cloud's last answer on who a caller is and what it may do, while the cloud cannot be asked; 0 "+
			"means not at all; Pods of this node are trusted for as long as they exist")
	fs.StringVar((*string)(&c.LinkProfile), "link-profile", string(d.LinkProfile),
		"kind of the link to the cloud: normal, metered (fewer bytes; a silent cut is noticed later) or satellite (for long "+
			"round trips)")
	fs.StringVar((*string)(&c.Relay), "relay", string(d.Relay),
		"what this node sends over a neighbour's link while its own to the cloud is down: Control (all), Heartbeats (heartbeats "+
			"and its Node's status) or Off, with which it also relays for no other node; default: Control, or Heartbeats with "+
			"--link-profile=metered; needs --secure-bind-address")
	fs.StringSliceVar(&c.CacheAgents, "cache-agents", d.CacheAgents,
		"programs whose reads the hub keeps, by the prefix of their User-Agent; * means all; a request with the header "+
			"Edge-Cache: true is always kept")
	fs.IntVar(&c.Port, "port", d.Port,
		"port of "+Loopback+" to serve kubelet on, which authenticates by the token in --cert-dir, and other programs of the "+
			"host, each with its own credentials")
	fs.StringVar(&c.SecureBindAddress, "secure-bind-address", "",
		"address of this node to serve Pods on over TLS, each with its own credentials, or "+OfNode+" for the Node's "+
			"InternalIP, whatever that is at the time; the hub requests the certificate for it, which somebody must approve; "+
			"empty: the hub does not serve Pods")
	fs.IntVar(&c.SecurePort, "secure-port", d.SecurePort, "port of --secure-bind-address")
	fs.BoolVar(&c.MasterService, "masterservice", *d.Masterservice,
		"tell new Pods and kube-proxy that the API server is at --secure-bind-address, so that they get answers while the cloud "+
			"cannot be reached")
	fs.StringVar(&c.HealthBindAddress, "health-bind-address", d.HealthBindAddress,
		"address to serve /healthz and /readyz on, to everybody, and /status, /metrics and /debug/pprof/, to root on this node")
	fs.IntVar(&c.HealthPort, "health-port", d.HealthPort,
		"port of --health-bind-address")
	fs.BoolVar(&c.OpenMetrics, "open-metrics", false,
		"serve /metrics to anybody who reaches --health-port: for agents that are not root")
	fs.IntVar(&c.MaxRequestsInFlight, "max-requests-inflight", d.MaxRequestsInflight,
		"limit of reading requests in flight; more get 429")
	fs.IntVar(&c.MaxMutatingRequestsInFlight, "max-mutating-requests-inflight", d.MaxMutatingRequestsInflight,
		"limit of writing requests in flight; more get 429")
	fs.IntVar(&c.MaxLongRunningRequests, "max-long-running-requests", d.MaxLongRunningRequests,
		"limit of watches, logs and streams in flight; more get 429")
	c.Logs.AddFlags(fs)
}

func (i *Identity) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&i.BootstrapFile, "bootstrap-file", "",
		"file with a bootstrap token, as kubeadm token create prints it, or a kubeconfig with one; it is read whenever a token "+
			"is needed, so replace an expired one in place")
	fs.StringSliceVar(&i.CACertHashes, "discovery-token-ca-cert-hash", nil,
		"hashes, sha256:HEX,…, of the cloud authority's public keys, to verify it when it is discovered")
	fs.StringVar(&i.KubeletKubeconfig, "kubelet-kubeconfig", "",
		"a kubelet's kubeconfig, or a PEM file with its certificate and key, used to request the hub's own certificate")
}

// Proxy returns through which proxy the cloud is reached.
func (c *Config) Proxy() upstream.WaySettings {
	return upstream.WaySettings{File: c.ProxyFile, Except: strings.Join(c.NoProxy, ","), CAFile: c.ProxyCAFile}
}

// Proof returns how kubelet and the hub verify each other.
func (c *Config) Proof() front.ProofConfig {
	return front.ProofConfig{Dir: c.CertDir, Node: c.Node, Address: net.ParseIP(Loopback), Port: c.Port}
}

// Certificates returns how the hub gets its certificate by itself.
func (c *Config) Certificates() identity.Config {
	return identity.Config{
		Node: c.Node, Dir: c.CertDir, CAFile: c.CAFile, ServerName: c.TLSServerName,
		BootstrapFile: c.Identity.BootstrapFile, CACertHashes: c.Identity.CACertHashes,
		KubeletKubeconfig: c.Identity.KubeletKubeconfig,
	}
}

// OwnCertificate reports whether the hub gets its certificate by itself.
func (c *Config) OwnCertificate() bool { return c.CertFile == "" && c.KeyFile == "" }

// Validate returns an error that names the flag and says what it must be.
func (c *Config) Validate() error {
	required := func(flag, value string) error {
		if value == "" {
			return fmt.Errorf("--%s is required", flag)
		}
		return nil
	}
	err := errors.Join(required("node-name", string(c.Node)), required("cert-dir", c.CertDir))
	if c.OwnCertificate() {
		err = errors.Join(err, c.Identity.validate())
	} else {
		err = errors.Join(err, required("ca-file", c.CAFile), required("cert-file", c.CertFile), required("key-file", c.KeyFile))
	}
	if err == nil && len(c.ServerAddresses) == 0 {
		err = errors.New("--server-addr is required")
	}
	if err == nil && c.EnableCoordinator {
		err = required("nodepool-name", string(c.Pool))
		_, wrong := c.Coordinators()
		err = errors.Join(err, wrong)
	}
	if err != nil {
		return errors.New(strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	if c.ProxyFile == "" && len(c.NoProxy) > 0 {
		return errors.New("--no-proxy does nothing without --proxy-file: the environment has a NO_PROXY of its own")
	}
	if _, err := c.Shared(); err != nil {
		return err
	}
	if problems := validation.IsDNS1123Subdomain(string(c.Node)); len(problems) > 0 {
		return fmt.Errorf("--node-name %q: %s", c.Node, problems[0])
	}
	if err := c.validateSecure(); err != nil {
		return err
	}
	if net.ParseIP(c.HealthBindAddress) == nil {
		return fmt.Errorf("--health-bind-address %q: want an IP address", c.HealthBindAddress)
	}
	for flag, port := range map[string]int{"port": c.Port, "secure-port": c.SecurePort, "health-port": c.HealthPort} {
		if len(validation.IsValidPortNum(port)) > 0 {
			return fmt.Errorf("--%s %d: want 1 to 65535", flag, port)
		}
	}
	if c.RememberIdentitiesFor < 0 {
		return fmt.Errorf("--remember-identities-for %v: want 0 or more", c.RememberIdentitiesFor)
	}
	if err := c.Logs.Validate(); err != nil {
		return err
	}
	switch c.LinkProfile {
	case v1alpha1.LinkNormal, v1alpha1.LinkMetered, v1alpha1.LinkSatellite:
	default:
		return fmt.Errorf("--link-profile %q: want normal, metered or satellite", c.LinkProfile)
	}
	switch c.Relay {
	case "", v1alpha1.RelayOff, v1alpha1.RelayHeartbeats, v1alpha1.RelayControl:
	default:
		return fmt.Errorf("--relay %q: want Off, Heartbeats or Control", c.Relay)
	}
	for _, p := range []struct {
		flag  string
		value int
	}{
		{"max-requests-inflight", c.MaxRequestsInFlight},
		{"max-mutating-requests-inflight", c.MaxMutatingRequestsInFlight},
		{"max-long-running-requests", c.MaxLongRunningRequests},
	} {
		if p.value < 1 {
			return fmt.Errorf("--%s %d: want at least 1", p.flag, p.value)
		}
	}
	return nil
}

// PodsAt returns the address at which Pods are served: a fixed one, or the Node's; neither means nowhere.
func (c *Config) PodsAt() (fixed netip.Addr, ofNode bool) {
	if c.SecureBindAddress == OfNode {
		return netip.Addr{}, true
	}
	fixed, _ = netip.ParseAddr(c.SecureBindAddress) // Validate has seen it
	return fixed.Unmap(), false
}

func (c *Config) validateSecure() error {
	if c.SecureBindAddress == "" {
		if c.MasterService {
			return errors.New("--masterservice needs --secure-bind-address: Pods must find the hub there")
		}
		return nil
	}
	ip := net.ParseIP(c.SecureBindAddress)
	if c.SecureBindAddress != OfNode && (ip == nil || ip.IsUnspecified() || ip.IsLoopback()) {
		return fmt.Errorf("--secure-bind-address %q: want an IP address of this node that Pods reach, or %s", c.SecureBindAddress,
			OfNode)
	}
	switch {
	case !c.OwnCertificate():
		return errors.New("--secure-bind-address needs a certificate that the hub gets by itself: leave --cert-file and " +
			"--key-file out")
	case c.DiskCachePath == "":
		return errors.New("--secure-bind-address needs --disk-cache-path: what Pods read is kept there")
	}
	return nil
}

func (i *Identity) validate() error {
	if i.BootstrapFile == "" && i.KubeletKubeconfig == "" {
		return errors.New("one of --bootstrap-file, --kubelet-kubeconfig, or --cert-file with --key-file is required: a node " +
			"must prove who it is")
	}
	return nil
}

// Servers returns the cloud's API servers.
func (c *Config) Servers() ([]*url.URL, error) { return addresses("server-addr", c.ServerAddresses...) }

// Coordinators returns where the pool's coordinators are, in the order of their slots; nothing means where the cloud says.
func (c *Config) Coordinators() ([]*url.URL, error) {
	if c.CoordinatorAddress == "" {
		return nil, nil
	}
	const flag = "coordinator-server-addr"
	all, err := addresses(flag, strings.Split(c.CoordinatorAddress, ",")...)
	if err != nil {
		return nil, err
	}
	if len(all) > edge.MaxSlots {
		return nil, fmt.Errorf("--%s: %d addresses are given, and a pool has at most %d coordinators", flag, len(all),
			edge.MaxSlots)
	}
	for i, u := range all {
		if slices.ContainsFunc(all[:i], func(o *url.URL) bool { return o.Host == u.Host }) {
			return nil, fmt.Errorf("--%s: %s is given twice", flag, u.Host)
		}
	}
	return all, nil
}

// Shared returns the resources that the pool shares.
func (c *Config) Shared() ([]schema.GroupVersionResource, error) {
	return resources("pool-scope-resources", c.PoolScopeResources)
}

// addresses parses the server addresses of a flag.
func addresses(flag string, texts ...string) ([]*url.URL, error) {
	urls := make([]*url.URL, len(texts))
	for i, text := range texts {
		u, err := url.Parse(text)
		if err != nil || u.Scheme != "https" || u.Host == "" {
			return nil, fmt.Errorf("--%s %q: want https://HOST:PORT", flag, text)
		}
		urls[i] = u
	}
	return urls, nil
}

// resources parses the resources of a flag. It refuses one that is given twice.
func resources(flag string, texts []string) ([]schema.GroupVersionResource, error) {
	var all []schema.GroupVersionResource
	for _, text := range texts {
		parts := strings.Split(text, "/")
		if len(parts) == 2 {
			parts = append([]string{""}, parts...)
		}
		if len(parts) != 3 || parts[1] == "" || parts[2] == "" || strings.ToLower(text) != text {
			return nil, fmt.Errorf("--%s %q: want GROUP/VERSION/RESOURCE, such as discovery.k8s.io/v1/endpointslices", flag, text)
		}
		r := schema.GroupVersionResource{Group: parts[0], Version: parts[1], Resource: parts[2]}
		if slices.ContainsFunc(all, func(o schema.GroupVersionResource) bool { return o.GroupResource() == r.GroupResource() }) {
			return nil, fmt.Errorf("--%s: %s is given twice", flag, r.GroupResource())
		}
		all = append(all, r)
	}
	if len(all) > maxPoolScope {
		return nil, fmt.Errorf("--%s: %d resources, want at most %d", flag, len(all), maxPoolScope)
	}
	return all, nil
}
