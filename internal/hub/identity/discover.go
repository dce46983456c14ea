package identity

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/cert"
	"k8s.io/cluster-bootstrap/token/api"
	"k8s.io/cluster-bootstrap/token/jws"
)

const fileCA = "ca.crt"

// authority returns the cloud's authority: the known one, or one that it discovers and stores. The caller holds the lock.
func (m *Manager) authority(ctx context.Context) (*x509.CertPool, error) {
	roots, err := m.knownAuthority()
	if err == nil || !errors.Is(err, errUnknown) {
		return roots, err
	}
	found, err := m.findAuthority(ctx)
	if err != nil {
		return nil, err
	}
	roots, content, err := m.pinned(found)
	if err != nil {
		return nil, err
	}
	if err := m.disk.Write(fileCA, content); err != nil {
		return nil, err
	}
	return roots, nil
}

// errUnknown says that there is no authority yet.
var errUnknown = errors.New("the cloud's authority is not known")

// knownAuthority returns the authority that is given or kept, or errUnknown.
func (m *Manager) knownAuthority() (*x509.CertPool, error) {
	if path := m.cfg.CAFile; path != "" {
		content, err := ReadKeyFile(path)
		if err != nil {
			return nil, fmt.Errorf("CA file: %w", err)
		}
		roots := x509.NewCertPool()
		if !roots.AppendCertsFromPEM(content) {
			return nil, fmt.Errorf("CA file %s holds no certificate in PEM form", path)
		}
		return roots, nil
	}
	set, _, err := m.trusted()
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	for _, a := range set.Authorities {
		roots.AddCert(a.Cert)
	}
	return roots, nil
}

// findAuthority looks for the cloud's authority in the kubeconfigs, then asks the cloud.
func (m *Manager) findAuthority(ctx context.Context) ([]byte, error) {
	found, bootstrap, err := m.namedAuthority()
	if err != nil || len(found.authority) > 0 {
		return found.authority, err
	}
	var said []byte
	err = m.each(func(server *url.URL) (err error) {
		said, err = m.discover(ctx, server, bootstrap)
		return err
	})
	return said, err
}

// namedAuthority returns the configured file that contains the cloud's authority. If there is none, it returns the bootstrap
// token, with which the cloud can be asked for that authority. Its error says why neither works.
func (m *Manager) namedAuthority() (found source, token string, err error) {
	bootstrap, err := m.bootstrap()
	if err == nil && len(bootstrap.authority) > 0 {
		return *bootstrap, "", nil
	}
	if m.cfg.KubeletKubeconfig != "" {
		kubelet, without := m.kubelet()
		switch {
		case without == nil && len(kubelet.authority) > 0:
			return *kubelet, "", nil
		case without != nil && err != nil:
			err = fmt.Errorf("%w; %w", without, err)
		}
	}
	if err != nil {
		return found, "", fmt.Errorf("%w: %w", errUnknown, err)
	}
	if !bootstrap.bootstrapToken() {
		return found, "", fmt.Errorf("%w: %s names none; give a CA file", errUnknown, bootstrap.what)
	}
	if len(m.pins) == 0 {
		return found, "", fmt.Errorf("%w, and no CA hash is given to recognize it: give one, as kubeadm token create "+
			"--print-join-command prints it, or a CA file", errUnknown)
	}
	return found, bootstrap.token, nil
}

// discover reads the cloud's public ConfigMap twice, and returns the authority in it. The first read is from an unverified
// server; the token must have signed the content, and a hash must pin the authority. In the second read that authority must
// verify the server, and the content must be the same. The token itself is never sent.
func (m *Manager) discover(ctx context.Context, server *url.URL, token string) ([]byte, error) {
	id, secret, _ := strings.Cut(token, ".")
	unverified, err := m.clusterInfo(ctx, server, nil)
	if err != nil {
		return nil, err
	}
	said := unverified.Data[api.KubeConfigKey]
	signature := unverified.Data[api.JWSSignatureKeyPrefix+id]
	if said == "" {
		return nil, fmt.Errorf("%s has no %s in ConfigMap %s/%s: it is not set up for bootstrap tokens; give a CA file",
			server.Host, api.KubeConfigKey, metav1.NamespacePublic, api.ConfigMapClusterInfo)
	}
	if signature == "" {
		return nil, fmt.Errorf("%s does not know the bootstrap token %s (yet), or it has expired: kubeadm token create makes "+
			"another", server.Host, id)
	}
	if !jws.DetachedTokenIsValid(signature, said, id, secret) {
		return nil, fmt.Errorf("what %s says about itself is not signed with the bootstrap token %s: the token is wrong, or "+
			"that is not the cloud", server.Host, id)
	}
	found, err := namedIn(unverified)
	if err != nil {
		return nil, err
	}
	roots, found, err := m.pinned(found)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", server.Host, err)
	}
	verified, err := m.clusterInfo(ctx, server, roots)
	if err != nil {
		return nil, err
	}
	if verified.Data[api.KubeConfigKey] != said {
		return nil, fmt.Errorf("%s says something else about itself once it is verified: someone is in between", server.Host)
	}
	return found, nil
}

// namedIn returns the authority that the cloud's public ConfigMap names.
func namedIn(info *corev1.ConfigMap) (found []byte, err error) {
	config, err := clientcmd.Load([]byte(info.Data[api.KubeConfigKey]))
	if err != nil {
		return nil, fmt.Errorf("ConfigMap %s/%s is no kubeconfig", metav1.NamespacePublic, api.ConfigMapClusterInfo)
	}
	for _, cluster := range config.Clusters { // there is one
		found = cluster.CertificateAuthorityData
	}
	return found, nil
}

func (m *Manager) clusterInfo(ctx context.Context, server *url.URL, roots *x509.CertPool) (*corev1.ConfigMap, error) {
	s, err := m.open(server, roots, credential{})
	if err != nil {
		return nil, err
	}
	defer s.close()
	return s.clusterInfo(ctx)
}

func (s *session) clusterInfo(ctx context.Context) (*corev1.ConfigMap, error) {
	found, err := s.CoreV1().ConfigMaps(metav1.NamespacePublic).Get(ctx, api.ConfigMapClusterInfo, metav1.GetOptions{})
	if err != nil {
		return nil, s.failed(ctx, "discover the cloud's authority", err)
	}
	return found, nil
}

// pinned returns the authorities that match a hash, or all if there are no hashes.
func (m *Manager) pinned(content []byte) (*x509.CertPool, []byte, error) {
	certs, err := cert.ParseCertsPEM(content)
	if err != nil {
		return nil, nil, errors.New("the cloud's authority is no certificate in PEM form")
	}
	roots := x509.NewCertPool()
	var kept []byte
	for _, c := range certs {
		if len(m.pins) == 0 || m.pins[sha256.Sum256(c.RawSubjectPublicKeyInfo)] {
			roots.AddCert(c)
			kept = append(kept, encodeCerts(c)...)
		}
	}
	if kept == nil {
		return nil, nil, fmt.Errorf("the cloud's authority has the hash sha256:%x, which is not among the CA hashes given: they "+
			"are wrong, or that is not the cloud", sha256.Sum256(certs[0].RawSubjectPublicKeyInfo))
	}
	return roots, kept, nil
}
