package identity

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/clock"

	"yurtcoordinator/internal/edge"
)

// Config says who a node is and what it can prove it with.
type Config struct {
	// Node is the name that certificates are for. Required.
	Node edge.NodeName

	// Dir is where the files are kept, as /var/lib/yurthub/pki. It is made 0700; one that others may write to is refused.
	// Required.
	Dir string

	// Servers are the cloud's API servers, https://HOST:PORT, all equal, tried in this order. Required.
	Servers []string

	// CAFile verifies them. Empty: the authority is that of BootstrapFile or of KubeletKubeconfig if these are kubeconfigs,
	// or else discovered with the bootstrap token, and kept in Dir.
	CAFile string

	// BootstrapFile holds a bootstrap token, abcdef.0123456789abcdef, or is a kubeconfig with a token or a client
	// certificate. It is read again whenever it is needed, and need not exist. Empty: there is none.
	BootstrapFile string

	// CACertHashes pin the authority that is discovered, as kubeadm's --discovery-token-ca-cert-hash does: sha256:HEX of the
	// public key. Of several authorities only those that are pinned are trusted.
	CACertHashes []string

	// UnsafeSkipCAVerification allows discovery without CACertHashes: whoever knows the token can then pass for the cloud.
	UnsafeSkipCAVerification bool

	// KubeletKubeconfig is a kubelet's kubeconfig, or a PEM file with its certificate and key, whose certificate may be used
	// to ask for the hub's own. Empty: there is none.
	KubeletKubeconfig string

	// KubeletAsIs uses the kubelet's certificate instead of one of the hub's own: a copy in Dir follows it, and the kubelet
	// renews it.
	KubeletAsIs bool

	// Metrics takes the metrics. Nil: they are not registered anywhere.
	Metrics prometheus.Registerer

	// Clock is what the node takes the time to be. Nil: the real one. Pauses do not depend on it.
	Clock clock.PassiveClock

	// Dial connects to servers. Nil: TCP.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// validate returns the parsed servers and pins.
func (c *Config) validate() ([]*url.URL, map[[sha256.Size]byte]bool, error) {
	if problems := validation.IsDNS1123Subdomain(string(c.Node)); len(problems) > 0 {
		return nil, nil, fmt.Errorf("node name %q: %s", c.Node, problems[0])
	}
	if !filepath.IsAbs(c.Dir) {
		return nil, nil, fmt.Errorf("directory of certificates %q: want an absolute path", c.Dir)
	}
	if len(c.Servers) == 0 {
		return nil, nil, errors.New("no API server to get a certificate from")
	}
	if c.KubeletAsIs && c.KubeletKubeconfig == "" {
		return nil, nil, errors.New("the kubelet's certificate is to be used as it is, but no kubeconfig of it is given")
	}
	servers := make([]*url.URL, len(c.Servers))
	for i, text := range c.Servers {
		u, err := url.Parse(text)
		if err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil {
			return nil, nil, fmt.Errorf("API server %q: want https://HOST:PORT", text)
		}
		servers[i] = u
	}
	pins := map[[sha256.Size]byte]bool{}
	for _, text := range c.CACertHashes {
		digits, found := strings.CutPrefix(strings.ToLower(text), "sha256:")
		sum, err := hex.DecodeString(digits)
		if !found || err != nil || len(sum) != sha256.Size {
			return nil, nil, fmt.Errorf("CA hash %q: want sha256: and 64 hexadecimal digits", text)
		}
		pins[[sha256.Size]byte(sum)] = true
	}
	return servers, pins, nil
}
