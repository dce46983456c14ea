package apiserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apiserver/pkg/server/egressselector"
	"k8s.io/kubernetes/pkg/cluster/ports"
	kubeletclient "k8s.io/kubernetes/pkg/kubelet/client"
)

// kubeletTimeout bounds the connection to a kubelet, which is on the same LAN. It is Kubernetes' default.
const kubeletTimeout = 5 * time.Second

// kubeletKeepAlive is Kubernetes' default.
const kubeletKeepAlive = 30 * time.Second

// Kubelets says how to reach and to verify kubelets. Without CertFile the coordinator shows kubelets no client certificate.
// Without CAFile it verifies kubelets only by Pinned. It never sends a request to a kubelet that it can't verify.
//
// Each Node names its kubelet's address itself, so a false Node could send the coordinator anywhere. The coordinator therefore
// connects only to addresses that Kubelets.may accepts.
type Kubelets struct {
	CertFile, KeyFile, CAFile string
	// Pinned returns the SHA-256, in hex, of the serving certificate that a node reports for its kubelet; empty means none.
	Pinned func(ctx context.Context, node string) (string, error)
	// Reporters returns the nodes of the pool that report, for their kubelets, the certificate with the given digest. A nil
	// Reporters means that nobody knows. Member reports whether a node of the pool has the given name. A nil Member means that
	// none has.
	Reporters func(digest string) []string
	Member    func(name string) bool
	// At returns the LAN address of a node's kubelet. Empty means that the address in the Node's status counts. A nil At means
	// the same for all Nodes.
	At func(ctx context.Context, node string) (string, error)
	// Refused is told of each server at a kubelet's address that was not known to be the kubelet; nil means nobody.
	Refused func(node string, why error)
	// Self is the coordinator's own address on the pool's LAN; unspecified or zero means that it has several. Only if Self is a
	// loopback address does the coordinator call kubelets at loopback addresses.
	Self netip.Addr
	// More returns the coordinator's further addresses, which may be of the other IP family; nil means that it has none.
	More func() []netip.Addr
	// Anywhere lets kubelets be at any address and port: tests have theirs at 127.0.0.1.
	Anywhere bool
}

// may returns why there can be no kubelet at an address; nil means that there can.
func (k Kubelets) may(at netip.AddrPort) error {
	addr := at.Addr().Unmap()
	switch {
	case k.Anywhere:
		return nil
	case at.Port() != ports.KubeletPort:
		return fmt.Errorf("no kubelet is called at port %d, only at %d: see status.daemonEndpoints of the Node",
			at.Port(), ports.KubeletPort)
	case !addr.IsGlobalUnicast() && (!addr.IsLoopback() || !k.Self.Unmap().IsLoopback()):
		return fmt.Errorf("no kubelet is called at %s, which is no address on a LAN: see status.addresses of the Node", addr)
	case k.Self.IsValid() && !k.Self.IsUnspecified() && !k.speaks(addr):
		return fmt.Errorf("no kubelet is called at %s: this pool's coordinator is at %s, of the other IP family; "+
			"see status.addresses of the Node, and kubelet's --node-ip", addr, k.Self)
	}
	return nil
}

// speaks reports whether the coordinator has an address of the same IP family.
func (k Kubelets) speaks(with netip.Addr) bool {
	same := func(own netip.Addr) bool { return own.Unmap().Is4() == with.Is4() }
	return same(k.Self) || k.More != nil && slices.ContainsFunc(k.More(), same)
}

// dial connects to a kubelet. An address that is no IP address is an error: names are not resolved.
func (k Kubelets) dial(ctx context.Context, network, address string) (net.Conn, error) {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return nil, fmt.Errorf("no kubelet is called at %.99q, which is no IP address: see status.addresses of the Node", address)
	}
	if err := k.may(at); err != nil {
		return nil, err
	}
	dialer := net.Dialer{Timeout: kubeletTimeout, KeepAlive: kubeletKeepAlive}
	return dialer.DialContext(ctx, network, address)
}

// client returns where kubelets listen. The transports made from its result can't connect: only those of Reach can.
func (k Kubelets) client() kubeletclient.KubeletClientConfig {
	return kubeletclient.KubeletClientConfig{
		Port:         ports.KubeletPort,
		ReadOnlyPort: ports.KubeletReadOnlyPort,
		// No names: a site's resolver may be down, in the cloud, or told by a Node what to say.
		PreferredAddressTypes: []string{string(corev1.NodeInternalIP), string(corev1.NodeExternalIP)},
		HTTPTimeout:           kubeletTimeout,
		Lookup: func(egressselector.NetworkContext) (utilnet.DialFunc, error) {
			return func(context.Context, string, string) (net.Conn, error) { return nil, errUnverified }, nil
		},
	}
}

// errUnverified is the error of a handler that tries to reach a kubelet without Reach.
var errUnverified = errors.New("no kubelet is called without being verified")
