package identity

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/cluster-bootstrap/token/util"
)

// credential is something to ask for a certificate with.
type credential struct {
	what  string // for errors
	pair  *tls.Certificate
	token string
}

// source is what a file gives: a credential, an authority, or both.
type source struct {
	credential
	authority []byte // PEM; may be empty
}

// bootstrapToken says whether the credential is a token in two halves, by which an authority can be discovered.
func (c credential) bootstrapToken() bool { return util.IsValidBootstrapToken(c.token) }

// scrub takes the token out of a text, should a server have sent it back.
func (c credential) scrub(text string) string {
	if c.token == "" {
		return text
	}
	text = strings.ReplaceAll(text, c.token, "[token]")
	if _, secret, found := strings.Cut(c.token, "."); found && c.bootstrapToken() {
		text = strings.ReplaceAll(text, secret, "[token]")
	}
	return strings.ReplaceAll(text, base64.StdEncoding.EncodeToString([]byte(c.token)), "[token]")
}

// bootstrap reads BootstrapFile. Its errors never quote the content.
func (m *Manager) bootstrap() (*source, error) {
	path := m.cfg.BootstrapFile
	if path == "" {
		return nil, errors.New("no bootstrap token is configured")
	}
	content, err := readFile(path)
	text := string(bytes.TrimSpace(content))
	switch {
	case errors.Is(err, fs.ErrNotExist), err == nil && text == "":
		return nil, fmt.Errorf("there is no bootstrap token in %s: make one in the cloud with kubeadm token create and "+
			"put it there", path)
	case err != nil:
		return nil, fmt.Errorf("bootstrap token: %w", err)
	case util.IsValidBootstrapToken(text):
		return &source{credential: credential{what: "the bootstrap token " + text[:6], token: text}}, nil
	}
	s, err := kubeconfig(path, content)
	if err != nil {
		return nil, fmt.Errorf("%s holds neither a bootstrap token, abcdef.0123456789abcdef, nor a kubeconfig with a token or a "+
			"certificate", path)
	}
	s.what = "the kubeconfig " + path
	return s, nil
}

// bootstrapDigest changes when there is something new in BootstrapFile.
func (m *Manager) bootstrapDigest() [sha256.Size]byte {
	if m.cfg.BootstrapFile == "" {
		return [sha256.Size]byte{}
	}
	content, err := readFile(m.cfg.BootstrapFile)
	if err != nil {
		return [sha256.Size]byte{}
	}
	return sha256.Sum256(bytes.TrimSpace(content))
}

// kubelet reads the kubelet's certificate.
func (m *Manager) kubelet() (*source, error) {
	path := m.cfg.KubeletKubeconfig
	if path == "" {
		return nil, errors.New("no kubelet's certificate is configured")
	}
	content, err := readFile(path)
	if err != nil {
		return nil, fmt.Errorf("kubelet's certificate: %w", err)
	}
	s := &source{}
	if pair, err := tls.X509KeyPair(content, content); err == nil {
		s.pair = &pair
	} else if s, err = kubeconfig(path, content); err != nil || s.pair == nil {
		return nil, fmt.Errorf("kubelet's certificate: %s is neither a kubeconfig with a client certificate nor a PEM file "+
			"with a certificate and its key", path)
	}
	s.what = "the kubelet's certificate in " + path
	if err := m.client.request().matches(s.pair.Leaf); err != nil {
		return nil, fmt.Errorf("%s: %w", s.what, err)
	}
	return s, nil
}

// kubeconfig reads the current context of a kubeconfig; what is neither a token nor a certificate is not supported.
func kubeconfig(path string, content []byte) (*source, error) {
	config, err := clientcmd.Load(content)
	if err != nil {
		return nil, errors.New("no kubeconfig") // its own words may quote the content
	}
	current := config.Contexts[config.CurrentContext]
	if current == nil {
		return nil, errors.New("a kubeconfig without a current context")
	}
	user, cluster := config.AuthInfos[current.AuthInfo], config.Clusters[current.Cluster]
	if user == nil {
		return nil, errors.New("a kubeconfig without a user")
	}
	if cluster == nil {
		cluster = &clientcmdapi.Cluster{}
	}
	s := &source{}
	if s.authority, err = inline(path, cluster.CertificateAuthorityData, cluster.CertificateAuthority); err != nil {
		return nil, err
	}
	if s.token = user.Token; s.token == "" && user.TokenFile != "" {
		token, err := inline(path, nil, user.TokenFile)
		if err != nil {
			return nil, err
		}
		s.token = string(bytes.TrimSpace(token))
	}
	certPEM, err := inline(path, user.ClientCertificateData, user.ClientCertificate)
	if err != nil {
		return nil, err
	}
	keyPEM, err := inline(path, user.ClientKeyData, user.ClientKey)
	if err != nil {
		return nil, err
	}
	if len(certPEM) > 0 {
		pair, err := tls.X509KeyPair(certPEM, keyPEM)
		if err != nil {
			return nil, errors.New("a kubeconfig with a certificate and a key that do not match")
		}
		s.pair = &pair
	}
	if s.pair == nil && s.token == "" {
		return nil, errors.New("a kubeconfig without a token and without a certificate")
	}
	return s, nil
}

// inline is what a kubeconfig holds itself, or the file that it names, relative to its own place.
func inline(kubeconfig string, data []byte, path string) ([]byte, error) {
	if len(data) > 0 || path == "" {
		return data, nil
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(filepath.Dir(kubeconfig), path)
	}
	return readFile(path)
}
