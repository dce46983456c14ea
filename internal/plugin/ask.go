package plugin

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/utils/ptr"

	"yurtcoordinator/internal/edge"
)

const (
	// defaultLife is how long a viewer's certificate lasts: a working day, which is also the signer's default. minLife is the API
	// server's bound, and maxLife the signer's.
	defaultLife, minLife, maxLife = 8 * time.Hour, 10 * time.Minute, 168 * time.Hour
	// approvalTime is how long viewersKubeconfig waits, and approvalPeriod how often it looks.
	approvalTime, approvalPeriod = time.Hour, 2 * time.Second
)

var (
	errNoPlace    = errors.New("no coordinator of the pool has a node with an address: see kubectl yurt status")
	errNotOurs    = errors.New("the cloud has signed another certificate than the one that was asked for")
	errNotAllowed = errors.New("the request was not granted")
)

// viewersKubeconfig requests a viewer's certificate in the caller's own name. It waits until somebody approves the request, and
// returns a kubeconfig with the certificate. It writes to tell, for a person, what it waits for.
func (r *Reader) viewersKubeconfig(
	ctx context.Context, pool edge.PoolName, life time.Duration, tell io.Writer,
) ([]byte, error) {
	if r.Within != "" {
		return nil, fmt.Errorf("this kubeconfig is of pool %s: certificates are asked for in the cloud", r.Within)
	}
	config, err := r.placesOf(ctx, pool)
	if err != nil {
		return nil, err
	}
	who, err := r.Kube.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{},
		metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("ask the cloud who this is: %w", err)
	}
	name := who.Status.UserInfo.Username
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	asked, err := cert.MakeCSR(key, &pkix.Name{CommonName: name, Organization: []string{edge.GroupViewers}}, nil, nil)
	if err != nil {
		return nil, err
	}
	requests := r.Kube.CertificatesV1().CertificateSigningRequests()
	made, err := requests.Create(ctx, &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "view-" + string(pool) + "-"},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request: asked, SignerName: edge.SignerPeople + string(pool),
			Usages:            []certificatesv1.KeyUsage{certificatesv1.UsageClientAuth},
			ExpirationSeconds: ptr.To(int32(life / time.Second)),
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("ask for a certificate: %w", err)
	}
	fmt.Fprintf(tell, "Asked for a certificate that lets %s look at pool %s. It comes once somebody approves the request:\n\n"+
		"  kubectl certificate approve %s\n\n", name, pool, made.Name)
	signed, err := r.signed(ctx, made.Name)
	if err != nil {
		return nil, err
	}
	keyPEM, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return nil, err
	}
	return complete(config, signed, keyPEM)
}

// signed waits for the certificate of a request. It goes on after a failed read, because only this process has the key, and a
// later approval would be worth nothing. If the request is gone, or the caller may not read it, signed fails at once.
func (r *Reader) signed(ctx context.Context, request string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, approvalTime)
	defer cancel()
	again := time.NewTicker(approvalPeriod)
	defer again.Stop()
	unread := errors.New("no answer has come")
	for {
		is, err := r.Kube.CertificatesV1().CertificateSigningRequests().Get(ctx, request, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err) || apierrors.IsForbidden(err):
			return nil, fmt.Errorf("read the request %s: %w", request, err)
		case err == nil && len(is.Status.Certificate) > 0:
			return is.Status.Certificate, nil
		case err == nil:
			for _, c := range is.Status.Conditions {
				if c.Type == certificatesv1.CertificateDenied || c.Type == certificatesv1.CertificateFailed {
					return nil, fmt.Errorf("%w: %s %s: %s", errNotAllowed, request, c.Type, c.Message)
				}
			}
		}
		if err == nil || ctx.Err() == nil { // a read that the end of the wait has cut off says nothing
			unread = err
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			if unread != nil {
				return nil, fmt.Errorf("read the request %s: %w (%w)", request, unread, context.Cause(ctx))
			}
			return nil, fmt.Errorf("nobody has approved %s: %w", request, context.Cause(ctx))
		}
	}
}

// placesOf returns a kubeconfig with the addresses of a pool's coordinators. Under the names NAME/any, it also has addresses of
// hubs that pass connections on to a coordinator. Its contexts are named as those of the operators' kubeconfig.
func (r *Reader) placesOf(ctx context.Context, pool edge.PoolName) (*clientcmdapi.Config, error) {
	_, o, err := r.pool(ctx, string(pool))
	if err != nil {
		return nil, err
	}
	nodes, err := r.nodes(ctx, nodesOf(string(pool)))
	if err != nil {
		return nil, fmt.Errorf("list Nodes: %w", err)
	}
	config := clientcmdapi.NewConfig()
	base := "yurt-coordinator-" + string(pool)
	add := func(name, address string, port int) {
		config.Clusters[name] = &clientcmdapi.Cluster{
			Server: "https://" + net.JoinHostPort(address, strconv.Itoa(port)), TLSServerName: pool.CoordinatorServerName(),
		}
		config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: base}
	}
	for _, c := range o.Coordinators {
		for _, in := range c.Status.Coordinators {
			name := base
			if in.Slot > 0 {
				name += "/" + strconv.Itoa(int(in.Slot))
			}
			for i := range nodes {
				if address := onLAN(&nodes[i]); nodes[i].Name == in.NodeName && address != "" {
					add(name, address, edge.PortCoordinator)
				}
			}
		}
	}
	if len(config.Clusters) == 0 {
		return nil, errNoPlace
	}
	doors := 0
	for i := range nodes {
		if address := internal(&nodes[i]); address != "" && doors < edge.MaxSlots {
			name := base + "/any"
			if doors++; doors > 1 {
				name += "-" + strconv.Itoa(doors)
			}
			add(name, address, edge.PortHubRelay)
		}
	}
	config.CurrentContext = base
	if config.Contexts[base] == nil {
		config.CurrentContext = base + "/any"
	}
	return config, nil
}

// onLAN returns where a node's coordinator is reached: its address on the LAN, or its InternalIP.
func onLAN(n *corev1.Node) string {
	if said := edge.LANAddresses(n.Annotations); len(said) > 0 {
		return said[0].String()
	}
	return internal(n)
}

func internal(n *corev1.Node) string {
	for _, a := range n.Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			return a.Address
		}
	}
	return ""
}

// complete adds a certificate, its key and the pool's authorities to a kubeconfig. The parameter signed has the certificate and,
// behind it, these authorities.
func complete(config *clientcmdapi.Config, signed, key []byte) ([]byte, error) {
	pair, err := tls.X509KeyPair(signed, key)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNotOurs, err)
	}
	all, err := cert.ParseCertsPEM(signed)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNotOurs, err)
	}
	roots := x509.NewCertPool()
	for _, authority := range all[1:] {
		roots.AddCert(authority)
	}
	if _, err := pair.Leaf.Verify(x509.VerifyOptions{
		Roots: roots, CurrentTime: pair.Leaf.NotBefore, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}); err != nil {
		return nil, fmt.Errorf("%w, or it has not the pool's authority with it: is coordinator-controller older than this? %w",
			errNotOurs, err)
	}
	own, err := cert.EncodeCertificates(all[0])
	if err != nil {
		return nil, err
	}
	authorities, err := cert.EncodeCertificates(all[1:]...)
	if err != nil {
		return nil, err
	}
	for name, c := range config.Clusters {
		c.CertificateAuthorityData = authorities
		config.AuthInfos[config.Contexts[name].AuthInfo] = &clientcmdapi.AuthInfo{ClientCertificateData: own, ClientKeyData: key}
	}
	return clientcmd.Write(*config)
}
