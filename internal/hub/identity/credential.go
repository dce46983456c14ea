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

// credential is what a node shows when it asks for a certificate.
type credential struct {
	what  string // for errors
	pair  *tls.Certificate
	token string
}

// source is the content of a file: a credential, an authority, or both.
type source struct {
	credential
	authority []byte // PEM; may be empty
	path      string
}

// bootstrapToken reports whether the credential is a token in two halves, with which an authority can be discovered.
func (c credential) bootstrapToken() bool { return util.IsValidBootstrapToken(c.token) }

// scrub takes the token out of a text, in case a server sent it back.
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
	content, err := ReadKeyFile(path)
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
	s := kubeconfig(path, content)
	if s == nil {
		return nil, fmt.Errorf("%s holds neither a bootstrap token, abcdef.0123456789abcdef, nor a kubeconfig with a token or a "+
			"certificate", path)
	}
	s.what, s.path = "the kubeconfig "+path, path
	return s, nil
}

// bootstrapDigest changes when the content of BootstrapFile does.
func (m *Manager) bootstrapDigest() [sha256.Size]byte {
	if m.cfg.BootstrapFile == "" {
		return [sha256.Size]byte{}
	}
	content, err := ReadKeyFile(m.cfg.BootstrapFile)
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
	content, err := ReadKeyFile(path)
	if err != nil {
		return nil, fmt.Errorf("kubelet's certificate: %w", err)
	}
	s := &source{}
	if pair, err := tls.X509KeyPair(content, content); err == nil {
		s.pair = &pair
	} else if s = kubeconfig(path, content); s == nil || s.pair == nil {
		return nil, fmt.Errorf("kubelet's certificate: %s is neither a kubeconfig with a client certificate nor a PEM file "+
			"with a certificate and its key", path)
	}
	s.what, s.path = "the kubelet's certificate in "+path, path
	if err := m.client.wanted.matches(s.pair.Leaf); err != nil {
		return nil, fmt.Errorf("%s: %w", s.what, err)
	}
	return s, nil
}

// kubeconfig reads the current context of a kubeconfig. It returns nil if the content can't be read, or if the context has
// neither a token nor a certificate with its key. It returns no error, because the parser's errors may quote the content.
func kubeconfig(path string, content []byte) *source {
	config, err := clientcmd.Load(content)
	if err != nil {
		return nil
	}
	current := config.Contexts[config.CurrentContext]
	if current == nil || config.AuthInfos[current.AuthInfo] == nil {
		return nil
	}
	user, cluster := config.AuthInfos[current.AuthInfo], config.Clusters[current.Cluster]
	if cluster == nil {
		cluster = &clientcmdapi.Cluster{}
	}
	authority, err := inline(path, cluster.CertificateAuthorityData, cluster.CertificateAuthority)
	token, errToken := inline(path, []byte(user.Token), user.TokenFile)
	certPEM, errCert := inline(path, user.ClientCertificateData, user.ClientCertificate)
	keyPEM, errKey := inline(path, user.ClientKeyData, user.ClientKey)
	if errors.Join(err, errToken, errCert, errKey) != nil {
		return nil
	}
	s := &source{credential: credential{token: user.Token}, authority: authority}
	if s.token == "" {
		s.token = string(bytes.TrimSpace(token))
	}
	if len(certPEM) > 0 {
		pair, err := tls.X509KeyPair(certPEM, keyPEM)
		if err != nil {
			return nil
		}
		s.pair = &pair
	}
	if s.pair == nil && s.token == "" {
		return nil
	}
	return s
}

// inline returns data, which a kubeconfig embeds. If data is empty, it returns the content of the file at path. A relative path
// begins in the kubeconfig's directory.
func inline(kubeconfig string, data []byte, path string) ([]byte, error) {
	if len(data) > 0 || path == "" {
		return data, nil
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(filepath.Dir(kubeconfig), path)
	}
	return ReadKeyFile(path)
}
