package apiserver

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	controlplane "k8s.io/kubernetes/pkg/controlplane/apiserver"
	kubeletclient "k8s.io/kubernetes/pkg/kubelet/client"
	noderest "k8s.io/kubernetes/pkg/registry/core/node/rest"
	podrest "k8s.io/kubernetes/pkg/registry/core/pod/rest"
)

const (
	// maxWays bounds the nodes to whose kubelets connections are kept open. Beyond it all are made anew.
	maxWays = 1024
	// maxReason bounds what is said of why a certificate was not signed, in bytes.
	maxReason = 200
	// idlePerKubelet bounds the connections that wait for a next request, as client-go does.
	idlePerKubelet = 25
)

// Reach connects to kubelets. Each node has a transport of its own. The transport accepts a certificate that the authority has
// signed for this node and the address. It also accepts the one that the node's hub reports, unless that is another node's. One
// transport for all nodes would be unsafe: a node that names another node's address would get a connection that was verified for
// the other node.
type Reach struct {
	kubelets Kubelets

	mu   sync.Mutex
	ways map[string]*way // by node
}

// way is how a node's kubelet is reached.
type way struct {
	by        terms
	transport *http.Transport
}

// terms are what a transport was made with; with others it is made anew. others are further nodes that report the pin.
type terms struct{ host, pin, others, client string }

// NewReach returns a Reach. It reads the files of kubelets whenever it needs them.
func NewReach(kubelets Kubelets) *Reach { return &Reach{kubelets: kubelets, ways: map[string]*way{}} }

// Port and AddressTypes say where kubelets are: their port unless a Node names one, and the types of Node addresses, best first.
func (r *Reach) Port() int { return int(r.kubelets.client().Port) }

// AddressTypes returns the types of Node addresses to dial, best first.
func (r *Reach) AddressTypes() (all []corev1.NodeAddressType) {
	for _, name := range r.kubelets.client().PreferredAddressTypes {
		all = append(all, corev1.NodeAddressType(name))
	}
	return all
}

// To returns the transport to a node's kubelet at an address.
func (r *Reach) To(ctx context.Context, node, host string) (http.RoundTripper, error) {
	by := terms{host: host}
	var err error
	if by.pin, err = r.kubelets.Pinned(ctx, node); err != nil {
		return nil, fmt.Errorf("find out with which certificate the kubelet of node %s serves: %w", node, err)
	}
	by.others = r.kubelets.others(node, by.pin)
	var shown []tls.Certificate
	if r.kubelets.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(r.kubelets.CertFile, r.kubelets.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("the coordinator's certificate towards kubelets: %w", err)
		}
		shown, by.client = []tls.Certificate{pair}, digest(pair.Certificate[0])
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	had := r.ways[node]
	if had != nil && had.by == by {
		return had.transport, nil
	}
	if had != nil {
		had.transport.CloseIdleConnections()
	}
	if had == nil && len(r.ways) >= maxWays {
		for name, w := range r.ways {
			w.transport.CloseIdleConnections()
			delete(r.ways, name)
		}
	}
	w := &way{by: by, transport: r.kubelets.transport(node, by, shown)}
	r.ways[node] = w
	return w.transport, nil
}

// transport returns one to a node's kubelet.
func (k Kubelets) transport(node string, by terms, shown []tls.Certificate) *http.Transport {
	return utilnet.SetTransportDefaults(&http.Transport{
		DialContext: k.dial, MaxIdleConnsPerHost: idlePerKubelet, DisableCompression: true,
		Proxy: func(*http.Request) (*url.URL, error) { return nil, nil }, //nolint:nilnil // a kubelet is on the LAN: no proxy
		TLSClientConfig: &tls.Config{
			MinVersion: tls.VersionTLS12, Certificates: shown, ServerName: by.host,
			// VerifyConnection verifies each handshake, by what crypto/tls can't: a pin has neither names nor an end.
			InsecureSkipVerify: true, //nolint:gosec // see the line before
			VerifyConnection: func(s tls.ConnectionState) error {
				err := k.verify(node, by, s.PeerCertificates)
				if err != nil && k.Refused != nil {
					k.Refused(node, err)
				}
				return err
			},
		},
	})
}

// errNoCertificate is what a server without a certificate gets, which TLS does not allow either.
var errNoCertificate = errors.New("it shows no certificate")

// verify returns why what serves at a kubelet's address is not known to be the kubelet of a node; nil means that it is.
func (k Kubelets) verify(node string, by terms, shown []*x509.Certificate) error {
	if len(shown) == 0 {
		return fmt.Errorf("the kubelet of node %s: %w", node, errNoCertificate)
	}
	unsigned := k.signed(node, by.host, shown)
	got := digest(shown[0].Raw)
	switch {
	case unsigned == nil:
		return nil
	case by.pin != "" && got == by.pin:
		return k.another(node, by, shown[0])
	case by.pin == "":
		return fmt.Errorf("the kubelet of node %s is not known: the cluster's authority has not signed its certificate "+
			"(%w), and the node's hub has reported none; run yurthub check on the node, which says why", node, unsigned)
	}
	return fmt.Errorf("what serves at %s is not known to be the kubelet of node %s: its certificate (SHA-256 %.16s…) is "+
		"not the one that the node's hub has reported (%.16s…), nor signed by the cluster's authority (%w); another "+
		"program may hold the port, or the certificate was replaced and kubelet not restarted: see systemctl status "+
		"kubelet and yurthub check on the node", by.host, node, got, by.pin, unsigned)
}

// errNoAuthority is why a coordinator without one takes nobody's signature.
var errNoAuthority = errors.New("this coordinator has no --kubelet-certificate-authority")

// signed returns why the certificate shown[0] is not one that the authority has signed for this node's kubelet and this address;
// nil means that it is. The address alone does not say whose kubelet it is, because a node can name another node's address.
func (k Kubelets) signed(node, host string, shown []*x509.Certificate) error {
	if k.CAFile == "" {
		return errNoAuthority
	}
	content, err := os.ReadFile(k.CAFile)
	if err != nil {
		return fmt.Errorf("--kubelet-certificate-authority: %w", err)
	}
	roots, between := x509.NewCertPool(), x509.NewCertPool()
	if !roots.AppendCertsFromPEM(bytes.TrimSpace(content)) {
		return errors.New("--kubelet-certificate-authority has no certificate")
	}
	for _, c := range shown[1:] {
		between.AddCert(c)
	}
	_, err = shown[0].Verify(x509.VerifyOptions{DNSName: host, Roots: roots, Intermediates: between})
	switch name := shown[0].Subject.CommonName; {
	case err != nil && len(err.Error()) > maxReason:
		err = fmt.Errorf("%.*s…", maxReason, err.Error()) // it may list all names of a stranger's certificate
	case err == nil && name != userOfNode+node:
		err = fmt.Errorf("it has signed for %.100q, not for %q", name, userOfNode+node)
	}
	return err
}

// digest names a certificate.
func digest(raw []byte) string {
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:])
}

// connections says how kube-apiserver's handlers reach a node's kubelet.
type connections struct {
	// where finds a kubelet by its Node. Its own transports reach nobody.
	where kubeletclient.ConnectionInfoGetter
	reach *Reach
}

// GetConnectionInfo implements kubeletclient.ConnectionInfoGetter. No caller can have the kubelet taken without verification.
func (c connections) GetConnectionInfo(ctx context.Context, node types.NodeName) (*kubeletclient.ConnectionInfo, error) {
	info, err := c.where.GetConnectionInfo(ctx, node)
	if err != nil {
		return nil, err
	}
	out := *info
	if at := c.reach.kubelets.At; at != nil {
		other, err := at(ctx, string(node))
		if err != nil {
			return nil, err
		}
		out.Hostname = cmp.Or(other, out.Hostname)
	}
	transport, err := c.reach.To(ctx, string(node), out.Hostname)
	if err != nil {
		return nil, err
	}
	out.Transport, out.InsecureSkipTLSVerifyTransport = transport, transport
	return &out, nil
}

// reaching gives the core group's handlers our connections to kubelets.
type reaching struct {
	controlplane.RESTStorageProvider
	reach *Reach
}

// NewRESTStorage implements controlplane.RESTStorageProvider.
func (p reaching) NewRESTStorage(
	config serverstorage.APIResourceConfigSource, options generic.RESTOptionsGetter,
) (genericapiserver.APIGroupInfo, error) {
	group, err := p.RESTStorageProvider.NewRESTStorage(config, options)
	if err != nil {
		return group, err
	}
	for _, name := range []string{"pods/log", "pods/exec", "pods/attach", "pods/portforward", "nodes/proxy"} {
		if err := p.rewire(group.VersionedResourcesStorageMap["v1"][name]); err != nil {
			return group, fmt.Errorf("%s: %w", name, err)
		}
	}
	return group, nil
}

// rewire replaces a handler's connections to kubelets.
func (p reaching) rewire(handler rest.Storage) error {
	var conn *kubeletclient.ConnectionInfoGetter
	switch h := handler.(type) {
	case *podrest.LogREST:
		conn = &h.KubeletConn
	case *podrest.ExecREST:
		conn = &h.KubeletConn
	case *podrest.AttachREST:
		conn = &h.KubeletConn
	case *podrest.PortForwardREST:
		conn = &h.KubeletConn
	case *noderest.ProxyREST:
		conn = &h.Connection
	default:
		return fmt.Errorf("a handler that is not known to reach kubelets: %T", handler)
	}
	*conn = connections{*conn, p.reach}
	return nil
}
