package pool

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/util/cert"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/ends"
)

// DefaultQuotaBytes bounds etcd's data, in bytes. All of that is in memory.
const DefaultQuotaBytes = 256 << 20

// DefaultMirrorQuotaBytes bounds what the mirror holds, in bytes, including its history. A pool's EndpointSlices are a few MB;
// 5000 of them with ten endpoints each are 8 MB. Resources that kube-apiserver serves are also in etcd, and count there as well.
const DefaultMirrorQuotaBytes = 128 << 20

// DefaultOwnQuotaBytes bounds what hubs push about their nodes, in bytes, as counted in etcd. 1000 Pods and 500 Nodes, of 8 KB
// each, are 12 MB. The other objects that the Pods use may be as much again.
const DefaultOwnQuotaBytes = 64 << 20

// minQuotaBytes is enough for an idle coordinator and a handful of nodes, with room.
const minQuotaBytes = 16 << 20

// minMirrorQuotaBytes is twice the largest object that etcd would store: the old version is history for a while.
const minMirrorQuotaBytes = 4 << 20

const defaultServiceRange = "10.96.0.0/12"

// Config says how a coordinator serves. DataDir, TLSCertFile, TLSPrivateKeyFile and ClientCAFile must be set. Every other field
// may be zero.
type Config struct {
	// NodeName is the Node that the coordinator runs on. The coordinator annotates the Lease of this Node, so that a leader
	// forwards that Lease early. Empty means that no Lease is annotated.
	NodeName edge.NodeName

	// BindAddress is the IP address to serve on; empty means all.
	BindAddress string
	// SecurePort is the TCP port to serve on; 0 means any free one.
	SecurePort int
	// ProbePort is the TCP port of 127.0.0.1 to answer kubelet's probes on; 0 means any free one.
	ProbePort int

	// DataDir holds etcd's files, on a memory file system.
	DataDir string
	// QuotaBytes bounds etcd's data; 0 means DefaultQuotaBytes. A coordinator that reaches it stops with ErrNoSpace.
	QuotaBytes int64

	// MirrorQuotaBytes bounds the mirror's memory, in bytes; 0 means DefaultMirrorQuotaBytes. A push beyond it gets a 413.
	MirrorQuotaBytes int64

	// OwnQuotaBytes bounds what hubs may push about all their nodes together, in bytes; 0 means DefaultOwnQuotaBytes.
	OwnQuotaBytes int64
	// OwnSecrets lets hubs push the Secrets that their Pods use, and operators read them.
	OwnSecrets bool

	// TLSCertFile and TLSPrivateKeyFile are the serving certificate; reread when they change.
	TLSCertFile, TLSPrivateKeyFile string
	// ClientCAFile holds the CAs of the client certificates; reread when it changes.
	ClientCAFile string
	// PoolNodesFile holds the names of the pool's nodes, one per line. It is reread when it changes. The coordinator accepts only
	// these nodes, and those that the leader names (access.Members). Until the file has been read once, the coordinator refuses
	// all nodes. If the file goes later, the last list stays valid. An empty path means that every node with a certificate from a
	// client CA belongs to the pool.
	PoolNodesFile string
	// AddressesFile holds further addresses of this node, one per line. It is reread when it changes, and may be missing. The
	// coordinator serves at those of the addresses that the machine has. An empty path means no further addresses.
	AddressesFile string
	// PoolAddressesFile holds the addresses of the pool's nodes, one per line. If a younger coordinator of the same pool and slot
	// serves at one of them, this coordinator ends. PoolCAFile holds the authorities of this pool alone. They sign its
	// coordinators, and no other CA can sign its operators' certificates.
	//
	// Give both paths or neither. Without them this coordinator looks for no younger one, and each of the client CAs can sign
	// operators' certificates. Both files are reread when they change, and may be missing.
	PoolAddressesFile, PoolCAFile string
	// DeniedUsersFile lists client certificates that are no longer valid, one item per line: a user's name for all of the user's
	// certificates, or X509SHA256= and the digest of one. It is reread when it changes. Until it has been read once, the
	// coordinator accepts only nodes' certificates. If the file goes later, the last list stays valid. An empty path denies
	// nobody.
	DeniedUsersFile string

	// KubeletClientCertificate and KubeletClientKey are the files of the client certificate that the coordinator shows to
	// kubelets, and to other coordinators. Empty paths mean that it shows none.
	KubeletClientCertificate, KubeletClientKey string
	// KubeletCertificateAuthority is a PEM file with the authorities that sign kubelets' serving certificates. The coordinator
	// also accepts the certificates that nodes' hubs report. An empty path means that it accepts only the reported ones.
	KubeletCertificateAuthority string

	// ServiceClusterIPRange is the cloud's range, one CIDR. Its IP family is the default family of Services read here.
	// Empty means 10.96.0.0/12. No address is allocated here.
	ServiceClusterIPRange string

	// AuditLog gets a JSON line for each refusal, exec, attach, port-forward and read of a log; nil means stdout.
	AuditLog io.Writer

	// Ends are this machine's clocks and random numbers.
	Ends ends.Ends

	stalledPush      time.Duration // 0 means the default
	kubeletsAnywhere bool          // also at 127.0.0.1 and at any port
	linksAnywhere    bool          // any free port is that of links
	historyRevisions int64         // of a window; 0 means the default
	refusals         int           // a second, in the audit log; 0 means the default
	connections      int           // from one address; 0 means the default
	stopTimeout      time.Duration // 0 means StopTimeout
}

// AddFlags declares c's fields as flags, with their present values as defaults.
func (c *Config) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar((*string)(&c.NodeName), "node-name", string(c.NodeName),
		"name of the Node that this coordinator runs on; marks its Lease, so that a leader forwards it early")
	fs.StringVar(&c.BindAddress, "bind-address", orDefault(c.BindAddress, "0.0.0.0"), "IP address to serve on")
	fs.IntVar(&c.SecurePort, "secure-port", edge.PortCoordinator, "TCP port to serve on; 0 takes any free one")
	fs.IntVar(&c.ProbePort, "probe-port", edge.PortCoordinatorProbes,
		"TCP port of 127.0.0.1 to answer kubelet's probes on, which show no certificate; 0 takes any free one")
	fs.StringVar(&c.DataDir, "data-dir", c.DataDir,
		"directory on a memory file system for etcd's files, emptied at start and removed at exit (required)")
	fs.Int64Var(&c.QuotaBytes, "etcd-quota-bytes", DefaultQuotaBytes,
		"how many bytes the pool's objects may take; when they are used up, the coordinator stops, and then starts "+
			"empty")
	fs.Int64Var(&c.MirrorQuotaBytes, "mirror-quota-bytes", DefaultMirrorQuotaBytes,
		"how many bytes the pool's shared resources may take; a push beyond that is refused")
	fs.Int64Var(&c.OwnQuotaBytes, "own-quota-bytes", DefaultOwnQuotaBytes,
		"how many bytes the nodes' own objects, mostly Pods, may take; a push beyond that is refused")
	fs.BoolVar(&c.OwnSecrets, "own-secrets", c.OwnSecrets,
		"accept the Secrets of the nodes' Pods from hubs with --own-secrets, and let operators read them")
	fs.StringVar(&c.TLSCertFile, "tls-cert-file", c.TLSCertFile, "serving certificate, PEM, with its chain (required)")
	fs.StringVar(&c.TLSPrivateKeyFile, "tls-private-key-file", c.TLSPrivateKeyFile,
		"private key of --tls-cert-file, PEM (required)")
	fs.StringVar(&c.ClientCAFile, "client-ca-file", c.ClientCAFile,
		"CAs of the client certificates of nodes and operators, PEM (required)")
	fs.StringVar(&c.PoolNodesFile, "pool-nodes-file", c.PoolNodesFile,
		"names of the pool's nodes, one per line; others are refused. Without it, every node with a certificate from "+
			"--client-ca-file belongs to the pool")
	fs.StringVar(&c.AddressesFile, "addresses-file", c.AddressesFile,
		"file with more addresses of this node to serve on, one per line; may be missing")
	fs.StringVar(&c.PoolAddressesFile, "pool-addresses-file", c.PoolAddressesFile,
		"file with the addresses of the pool's nodes, one per line; a younger coordinator at one of them ends this one; may be "+
			"missing")
	fs.StringVar(&c.PoolCAFile, "pool-ca-file", c.PoolCAFile,
		"CAs of this pool alone, PEM: they sign its coordinators, for --pool-addresses-file, and only they make operators; may "+
			"be missing, and then there are none")
	fs.StringVar(&c.DeniedUsersFile, "denied-users-file", c.DeniedUsersFile,
		"file with withdrawn client certificates, one per line: a user's name, or X509SHA256= and a certificate's digest")
	fs.StringVar(&c.KubeletClientCertificate, "kubelet-client-certificate", c.KubeletClientCertificate,
		"client certificate to show to kubelets, PEM")
	fs.StringVar(&c.KubeletClientKey, "kubelet-client-key", c.KubeletClientKey,
		"private key of --kubelet-client-certificate, PEM")
	fs.StringVar(&c.KubeletCertificateAuthority, "kubelet-certificate-authority", c.KubeletCertificateAuthority,
		"CAs of the kubelets' serving certificates, PEM; the coordinator also accepts the certificate that a node's hub "+
			"reports for its kubelet")
	fs.StringVar(&c.ServiceClusterIPRange, "service-cluster-ip-range",
		orDefault(c.ServiceClusterIPRange, defaultServiceRange),
		"the cloud's range of Service addresses, one CIDR; only its IP family matters here")
}

func orDefault(s, fallback string) string {
	if s == "" {
		return fallback
	}
	return s
}

// completed returns c with its zero values replaced by their defaults.
func (c Config) completed() Config {
	c.BindAddress = orDefault(c.BindAddress, "0.0.0.0")
	c.ServiceClusterIPRange = orDefault(c.ServiceClusterIPRange, defaultServiceRange)
	if c.AuditLog == nil {
		c.AuditLog = os.Stdout
	}
	if c.QuotaBytes == 0 {
		c.QuotaBytes = DefaultQuotaBytes
	}
	if c.MirrorQuotaBytes == 0 {
		c.MirrorQuotaBytes = DefaultMirrorQuotaBytes
	}
	if c.OwnQuotaBytes == 0 {
		c.OwnQuotaBytes = DefaultOwnQuotaBytes
	}
	if c.stopTimeout == 0 {
		c.stopTimeout = StopTimeout
	}
	return c
}

// validate checks everything that needs no file. Its error is one line that names the flag.
func (c Config) validate() error {
	if c.NodeName != "" {
		if problems := validation.IsDNS1123Subdomain(string(c.NodeName)); len(problems) > 0 {
			return fmt.Errorf("--node-name %q is not a valid Node name: %s", c.NodeName, problems[0])
		}
	}
	if _, err := netip.ParseAddr(c.BindAddress); err != nil {
		return fmt.Errorf("--bind-address %q is not an IP address; use 0.0.0.0 for all", c.BindAddress)
	}
	if c.SecurePort < 0 || c.SecurePort > 65535 {
		return fmt.Errorf("--secure-port %d is not a TCP port; use 1 to 65535, or 0 for any free one", c.SecurePort)
	}
	if c.ProbePort < 0 || c.ProbePort > 65535 || c.ProbePort != 0 && c.ProbePort == c.SecurePort {
		return fmt.Errorf("--probe-port %d is not a TCP port of its own; use 1 to 65535, or 0 for any free one", c.ProbePort)
	}
	if c.QuotaBytes < minQuotaBytes {
		return fmt.Errorf("--etcd-quota-bytes %d is too small to start with; give at least %d", c.QuotaBytes,
			minQuotaBytes)
	}
	if c.MirrorQuotaBytes < minMirrorQuotaBytes {
		return fmt.Errorf("--mirror-quota-bytes %d is too small for one object; give at least %d", c.MirrorQuotaBytes,
			minMirrorQuotaBytes)
	}
	if c.OwnQuotaBytes < minMirrorQuotaBytes {
		return fmt.Errorf("--own-quota-bytes %d is too small for one object; give at least %d", c.OwnQuotaBytes,
			minMirrorQuotaBytes)
	}
	if _, err := c.serviceRange(); err != nil {
		return err
	}
	for _, required := range []struct{ flag, value string }{
		{"tls-cert-file", c.TLSCertFile},
		{"tls-private-key-file", c.TLSPrivateKeyFile},
		{"client-ca-file", c.ClientCAFile},
		{"data-dir", c.DataDir},
	} {
		if required.value == "" {
			return fmt.Errorf("--%s is required", required.flag)
		}
	}
	if (c.KubeletClientCertificate == "") != (c.KubeletClientKey == "") {
		return errors.New("--kubelet-client-certificate and --kubelet-client-key go together; give both or neither")
	}
	if (c.PoolAddressesFile == "") != (c.PoolCAFile == "") {
		return errors.New("--pool-addresses-file and --pool-ca-file go together; give both or neither")
	}
	return nil
}

func (c Config) serviceRange() (net.IPNet, error) {
	_, parsed, err := net.ParseCIDR(c.ServiceClusterIPRange)
	if err != nil {
		return net.IPNet{}, fmt.Errorf("--service-cluster-ip-range %q is not a CIDR such as %s",
			c.ServiceClusterIPRange, defaultServiceRange)
	}
	if ones, bits := parsed.Mask.Size(); bits-ones < 3 {
		return net.IPNet{}, fmt.Errorf("--service-cluster-ip-range %s is too small; it must hold 8 addresses or more",
			parsed)
	}
	return *parsed, nil
}

// checkFiles reads the certificates, keys and CAs that must be there at the start, so that the start reports a bad file in one
// line. Otherwise the server would start and only half work. Files that may be missing are read later.
func (c Config) checkFiles(now time.Time) error {
	if err := checkPair("tls-cert-file", c.TLSCertFile, "tls-private-key-file", c.TLSPrivateKeyFile, now); err != nil {
		return err
	}
	if err := checkAuthorities("client-ca-file", c.ClientCAFile, now); err != nil {
		return err
	}
	if c.KubeletClientCertificate != "" {
		err := checkPair("kubelet-client-certificate", c.KubeletClientCertificate,
			"kubelet-client-key", c.KubeletClientKey, now)
		if err != nil {
			return err
		}
	}
	if c.KubeletCertificateAuthority != "" {
		if err := checkAuthorities("kubelet-certificate-authority", c.KubeletCertificateAuthority, now); err != nil {
			return err
		}
	}
	return nil
}

func checkPair(certFlag, certFile, keyFlag, keyFile string, now time.Time) error {
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		return fmt.Errorf("--%s %s, --%s %s: %w", certFlag, certFile, keyFlag, keyFile, err)
	}
	return expired(certFlag, certFile, pair.Leaf, now)
}

func checkAuthorities(flag, file string, now time.Time) error {
	all, err := cert.CertsFromFile(file)
	if err != nil {
		return fmt.Errorf("--%s: %w", flag, err) // which names the file
	}
	for _, each := range all {
		if err = expired(flag, file, each, now); err == nil {
			return nil // one valid certificate is enough: during a rotation a bundle also holds the old CA
		}
	}
	return err
}

// expired returns an error for a certificate that has expired, but accepts one that is not valid yet. At the edge, this machine's
// clock is as likely to be wrong as the certificate. Clients check the certificate by their own clocks.
func expired(flag, file string, of *x509.Certificate, now time.Time) error {
	if now.After(of.NotAfter) {
		return fmt.Errorf("--%s %s: the certificate of %q expired at %s, and it is %s now; "+
			"renew it, or set the clock right",
			flag, file, of.Subject, of.NotAfter.UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339))
	}
	return nil
}
