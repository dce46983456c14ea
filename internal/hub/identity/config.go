package identity

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"path/filepath"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/ends"
	"yurtcoordinator/internal/live"
)

// Config says who a node is and how it can prove that.
type Config struct {
	// Node is the name that certificates are for. Required.
	Node edge.NodeName

	// Dir is the directory that the files are kept in, for example /var/lib/yurthub/pki. The Manager makes it 0700, and refuses
	// a directory that others may write to. Required.
	Dir string

	// Servers are the cloud's API servers, all equal, tried in this order. Required.
	Servers []*url.URL

	// ServerName is the name in the servers' certificates; empty means the host in each server's address.
	ServerName string

	// Dial opens connections to the servers; nil means a net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	// CAFile is a PEM file with the authorities that verify the servers. Empty means that the Manager finds the authority
	// itself and keeps it in Dir. The Manager takes the authority from BootstrapFile or KubeletKubeconfig if one is a
	// kubeconfig that names it. Otherwise the Manager discovers it with the bootstrap token.
	CAFile string

	// BootstrapFile holds a bootstrap token, abcdef.0123456789abcdef, or is a kubeconfig with a token or a client certificate.
	// The Manager reads it whenever it needs a credential; the file need not exist. Empty means that there is no such file.
	BootstrapFile string

	// CACertHashes pin the discovered authority, as kubeadm's --discovery-token-ca-cert-hash does: each is sha256:HEX of a
	// public key. Of several authorities only the pinned ones are trusted.
	CACertHashes []string

	// KubeletKubeconfig is kubelet's kubeconfig, or a PEM file with its certificate and key. The Manager may use that
	// certificate to request the hub's own. Empty means that there is no such file.
	KubeletKubeconfig string

	// Serve is the address at which the hub serves Pods, and for which it needs a second certificate. It may change. The zero
	// Addr means that the address is not known yet; nil means that Pods are not served.
	Serve *live.Value[netip.Addr]

	// ShowAuthorities is called with the authorities, in PEM, that verify the hub's serving certificate, whenever they may have
	// changed. All Pods must get them. nil means no call.
	ShowAuthorities func(authorities string)

	// Metrics takes the metrics. nil means that they are not exported.
	Metrics prometheus.Registerer
	// Ends are this machine's clocks and random numbers. The wall clock decides about certificates; pauses use the running
	// clock.
	Ends ends.Ends
}

// validate returns the parsed pins.
func (c *Config) validate() (map[[sha256.Size]byte]bool, error) {
	if !filepath.IsAbs(c.Dir) {
		return nil, fmt.Errorf("directory of certificates %q: want an absolute path", c.Dir)
	}
	pins := map[[sha256.Size]byte]bool{}
	for _, text := range c.CACertHashes {
		digits, found := strings.CutPrefix(strings.ToLower(text), "sha256:")
		sum, err := hex.DecodeString(digits)
		if !found || err != nil || len(sum) != sha256.Size {
			return nil, fmt.Errorf("CA hash %q: want sha256: and 64 hexadecimal digits", text)
		}
		pins[[sha256.Size]byte(sum)] = true
	}
	return pins, nil
}
