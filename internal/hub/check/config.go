package check

import (
	"net"
	"path/filepath"
	"strconv"
	"time"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/hub/way"
)

// Config says what to check: the settings of the node's hub.
type Config struct {
	Node edge.NodeName
	Pool edge.PoolName

	// Invalid says why a hub would not start with these settings; empty: it would. What they say is checked all the
	// same.
	Invalid string
	// BeforeStart: no hub needs to run yet.
	BeforeStart bool
	// Joined: the node's kubelet should go through the hub already.
	Joined bool

	// Servers are the cloud's API servers, https://HOST:PORT. Coordinators are the pool's, in the order of their slots.
	Servers, Coordinators []string

	// ServerName is the name in Servers' certificates; empty: the host in each one's address.
	ServerName string
	// Proxy says through which proxy Servers are reached.
	Proxy way.Settings

	// CAFile verifies Servers, CoordinatorCAFile (empty: CAFile) the Coordinators. CertFile and KeyFile are the node's client
	// certificate; without them the hub keeps its own in CertDir.
	CAFile, CoordinatorCAFile string
	// CoordinatorCA (PEM) and CoordinatorName, if given, verify the Coordinators' certificates and name them: for those
	// of which the hub learned from the cloud.
	CoordinatorCA     []byte
	CoordinatorName   string
	CertFile, KeyFile string
	CertDir           string

	// With these the hub gets its own certificate, as in identity.Config.
	BootstrapFile     string
	CACertHashes      []string
	KubeletKubeconfig string

	// CacheDir is where the hub keeps what it knows; empty: nowhere.
	CacheDir string

	// BindAddress and Port are where the hub serves the node's programs; HealthAddress and HealthPort where it serves its
	// health; SecureAddress (empty: nowhere) and SecurePort where it serves Pods:
	// "node" is where the running hub says.
	BindAddress   string
	Port          int
	HealthAddress string
	HealthPort    int
	SecureAddress string
	SecurePort    int
	// MasterService: Pods are to be told so. Agents: the node's agents should be able to go through the hub.
	MasterService, Agents bool

	// KubeletUses is the kubeconfig that the node's kubelet uses. Empty: the one on the running kubelet's command line.
	KubeletUses string
	// KubeletHealth is the URL of the kubelet's health. Empty: http://127.0.0.1:10248/healthz.
	KubeletHealth string

	// Step bounds one step of a probe, such as connecting; zero: 5 s. Total bounds all probes together; zero: 15 s.
	Step, Total time.Duration
	// Now is the clock. Nil: time.Now.
	Now func() time.Time
}

// withDefaults fills in what is documented as a default.
func (c Config) withDefaults() Config {
	if c.Step == 0 {
		c.Step = 5 * time.Second
	}
	if c.Total == 0 {
		c.Total = 15 * time.Second
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.KubeletHealth == "" {
		c.KubeletHealth = "http://127.0.0.1:10248/healthz"
	}
	return c
}

// ownCertificate reports whether the hub gets its certificate by itself.
func (c Config) ownCertificate() bool { return c.CertFile == "" && c.KeyFile == "" }

func (c Config) pairFiles() (cert, key string) {
	if c.ownCertificate() {
		pair := filepath.Join(c.CertDir, "client.pem")
		return pair, pair
	}
	return c.CertFile, c.KeyFile
}

func (c Config) hubURL() string {
	return "https://" + net.JoinHostPort(c.BindAddress, strconv.Itoa(c.Port))
}

func (c Config) healthURL() string {
	return "http://" + net.JoinHostPort(c.HealthAddress, strconv.Itoa(c.HealthPort))
}
