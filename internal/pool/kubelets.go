package pool

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/klog/v2"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/pool/apiserver"
)

// kubelets says how to reach kubelets and how to know them, for the streams into containers and for their usage.
func (c *wiring) kubelets() apiserver.Kubelets {
	self, _ := netip.ParseAddr(c.config.BindAddress) // the zero Addr if it can't be read, which was found out before
	return apiserver.Kubelets{
		CertFile: c.config.KubeletClientCertificate, KeyFile: c.config.KubeletClientKey,
		CAFile: c.config.KubeletCertificateAuthority, Self: self, More: c.listener.further,
		Anywhere: c.config.kubeletsAnywhere,
		Pinned:   c.pinned, Refused: c.strangers.note, At: c.kubeletAt,
		Reporters: c.reporters, Member: func(name string) bool { return c.members.Lists(edge.NodeName(name)) },
	}
}

// kubeletAt returns the LAN address of a node's kubelet. Empty means that the address in the Node's status counts.
func (c *wiring) kubeletAt(ctx context.Context, node string) (string, error) {
	n, err := c.client.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("read Node %s: %w", node, err)
	}
	if all := c.onLAN(n); len(all) > 0 {
		return all[0].Address, nil
	}
	return "", nil
}

// onLAN returns the addresses of a node on the LAN: those in its annotation, or else its InternalIPs. Addresses of the
// coordinator's own IP family come first, whichever family kubelet prefers. Nil means that the node has no annotation and at
// most one InternalIP, so the address in the Node's status counts.
func (c *wiring) onLAN(node *corev1.Node) (all []corev1.NodeAddress) {
	self, _ := netip.ParseAddr(c.config.BindAddress) // the zero Addr if it can't be read, which was found out before
	said := lanAddresses(node)
	if len(said) < 2 && len(edge.LANAddresses(node.Annotations)) == 0 {
		return nil
	}
	slices.SortStableFunc(said, func(a, b netip.Addr) int {
		other := func(x netip.Addr) int {
			if x.Unmap().Is4() == self.Unmap().Is4() {
				return 0
			}
			return 1
		}
		return other(a) - other(b)
	})
	for _, address := range said {
		all = append(all, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: address.String()})
	}
	return all
}

// lanAddresses returns the addresses of a node on the LAN: those that its annotation says, or else its InternalIPs.
func lanAddresses(node *corev1.Node) []netip.Addr {
	said := edge.LANAddresses(node.Annotations)
	if len(said) > 0 {
		return said
	}
	for _, a := range node.Status.Addresses {
		if ip, err := netip.ParseAddr(a.Address); err == nil && a.Type == corev1.NodeInternalIP {
			said = append(said, ip)
		}
	}
	return said
}

// pinned returns the digest of the serving certificate that a node reports for its kubelet. The digest is in the node's Lease
// here, which only the node can write. Each call reads the Lease anew, because the certificate may have just changed.
func (c *wiring) pinned(ctx context.Context, node string) (string, error) {
	lease, err := c.client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(ctx, node, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return "", nil // its hub has not been here yet
	}
	if err != nil {
		return "", fmt.Errorf("read Lease %s: %w", node, err)
	}
	said, _ := edge.ParseKubeletServing(lease.Annotations[edge.AnnotationKubelet])
	return said.Digest, nil
}

// reporters returns the pool's nodes that report a certificate with a digest for their kubelets.
func (c *wiring) reporters(digest string) (all []string) {
	leases, _ := c.reported.Leases(corev1.NamespaceNodeLease).List(labels.Everything()) // a cache's list does not fail
	for _, l := range leases {
		if strings.HasSuffix(l.Annotations[edge.AnnotationKubelet], "/"+digest) && c.members.Has(edge.NodeName(l.Name)) {
			all = append(all, l.Name)
		}
	}
	return all
}

// tellEvery is the least time between two log lines about servers that were not known to be kubelets.
const tellEvery = 10 * time.Second

// strangers counts and logs servers at kubelets' addresses that were not known to be the kubelets.
type strangers struct {
	refused prometheus.Counter
	log     klog.Logger
	tell    rate.Sometimes
}

func newStrangers(log klog.Logger) *strangers {
	return &strangers{log: log, tell: rate.Sometimes{Interval: tellEvery}, refused: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "yurt_coordinator_kubelets_refused_total",
		Help: "Connections to kubelets that were given up since what serves there is not known to be the node's kubelet.",
	})}
}

func (s *strangers) note(node string, why error) {
	s.refused.Inc()
	s.tell.Do(func() { s.log.Info("Refused a kubelet", "of", node, "why", why.Error()) })
}
