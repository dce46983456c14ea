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

	// Dir is the directory of the files, for example /var/lib/yurthub/pki. The Manager creates it with mode 0700, and refuses a
	// directory that others may write to. Required.
	Dir string

	// Servers are the cloud's API servers, all equal, tried in this order. Required.
	Servers []*url.URL

	// ServerName is the name in the servers' certificates; empty means the host in each server's address.
	ServerName string

	// Dial opens connections to the servers; nil means a net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	// CAFile is a PEM file with the authorities that verify the servers. If CAFile is empty, the Manager keeps the authorities in
	// Dir. It takes the first ones from a kubeconfig that names them (BootstrapFile or KubeletKubeconfig), or asks the cloud with
	// the bootstrap token.
	CAFile string

	// BootstrapFile holds a bootstrap token, abcdef.0123456789abcdef, or is a kubeconfig with a token or a client certificate.
	// The Manager reads the file whenever it needs a credential; the file need not exist. An empty path means that there is no
	// such file.
	BootstrapFile string

	// CACertHashes pin the first authorities, as kubeadm's --discovery-token-ca-cert-hash does: each is sha256:HEX of a public
	// key. An authority that the cloud names later needs no pin.
	CACertHashes []string

	// KubeletKubeconfig is kubelet's kubeconfig, or a PEM file with kubelet's certificate and key. The Manager may show that
	// certificate when it requests its own. An empty path means that there is no such file.
	KubeletKubeconfig string

	// Serve is the address at which the hub serves Pods, and for which it needs a serving certificate. The address may change.
	// The zero Addr means that it is not known yet; a nil Serve means that Pods are not served.
	Serve *live.Value[netip.Addr]

	// ShowAuthorities is called whenever the authorities that verify the hub's serving certificate may have changed. It gets them
	// in PEM, to show them to all Pods. nil means no call.
	ShowAuthorities func(authorities string)

	// Metrics takes the metrics. nil means that they are not exported.
	Metrics prometheus.Registerer
	// Ends are this machine's clocks and random numbers. Certificates are judged by the wall clock; pauses use the running clock.
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
