package check

import (
	"bytes"
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/cert"
	"k8s.io/cluster-bootstrap/token/util"
)

// maxFile bounds what is read of a file, in bytes.
const maxFile = 4 << 20

// readFile reads a regular file. It never blocks on a pipe.
func readFile(path string) (File, []byte) {
	file := File{Path: path}
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		file.Missing = true
		return file, nil
	}
	if err != nil {
		file.Trouble = "it cannot be read: " + cause(err)
		return file, nil
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		file.Trouble = "it is not a file"
		return file, nil
	}
	file.Mode = info.Mode()
	content, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	switch {
	case err != nil:
		file.Trouble = "it cannot be read: " + cause(err)
	case len(content) > maxFile:
		file.Trouble = fmt.Sprintf("it is larger than %d bytes", maxFile)
	case len(bytes.TrimSpace(content)) == 0:
		file.Trouble = "it is empty"
	}
	return file, content
}

// secrets are what the node can show a server.
type secrets struct {
	pair *tls.Certificate // nil: none
	with string           // the file from which pair comes
	// cloud verifies the cloud's servers, and authority is the file from which that comes; nil: it is not known.
	cloud     *x509.CertPool
	authority string
}

// readKeys reads all files of certificates.
func readKeys(c Config) (Keys, secrets) {
	var k Keys
	var s secrets
	certPath, keyPath := c.pairFiles()
	var certPEM, keyPEM []byte
	k.Cert, certPEM = readFile(certPath)
	k.Key, keyPEM = readFile(keyPath)
	if k.Cert.fine() && k.Key.fine() {
		pair, trouble := parsePair(certPEM, keyPEM)
		if trouble != "" {
			k.Cert.Trouble = trouble
		} else {
			k.Pair, s.pair, s.with = describe(pair), pair, certPath
		}
	}
	authority := k.readMeans(c, &s)
	if c.CAFile != "" {
		k.CA, authority = readFile(c.CAFile)
	} else if kept, content := readFile(filepath.Join(c.CertDir, "ca.crt")); c.CertDir != "" && !kept.Missing {
		k.CA, authority = kept, content
	}
	if k.CA.Path == "" || !k.CA.fine() {
		return k, s
	}
	certs, err := cert.ParseCertsPEM(authority)
	if err != nil {
		k.CA.Trouble = "there is no certificate in PEM form in it"
		return k, s
	}
	s.cloud, s.authority = x509.NewCertPool(), k.CA.Path
	for _, found := range certs {
		s.cloud.AddCert(found)
		if found.NotAfter.After(k.CAExpiry) {
			k.CAExpiry = found.NotAfter
		}
	}
	return k, s
}

// readMeans reads the means by which the hub can get a certificate. It returns the authority that it finds there.
func (k *Keys) readMeans(c Config, s *secrets) (authority []byte) {
	if !c.OwnCertificate() {
		return nil
	}
	var content []byte
	if path := c.Identity.KubeletKubeconfig; path != "" {
		if k.Kubelet, content = readFile(path); k.Kubelet.fine() {
			found, trouble := parseCredential(path, content)
			if found.pair == nil {
				k.Kubelet.Trouble = cmp.Or(trouble, "there is no client certificate in it")
			} else if k.KubeletPair = describe(found.pair); s.pair == nil {
				s.pair, s.with = found.pair, path
			}
			if len(found.authority) > 0 {
				k.CA, authority = File{Path: path}, found.authority
			}
		}
	}
	path := c.Identity.BootstrapFile
	if path == "" {
		return authority
	}
	if k.Bootstrap, content = readFile(path); !k.Bootstrap.fine() ||
		util.IsValidBootstrapToken(string(bytes.TrimSpace(content))) {
		return authority
	}
	found, _ := parseCredential(path, content)
	if found.pair == nil && !found.token {
		k.Bootstrap.Trouble = "it is neither a bootstrap token, abcdef.0123456789abcdef, nor a kubeconfig with a " +
			"token or a certificate"
	}
	if len(found.authority) > 0 {
		k.CA, authority = File{Path: path}, found.authority
	}
	return authority
}

func parsePair(certPEM, keyPEM []byte) (*tls.Certificate, string) {
	if _, err := cert.ParseCertsPEM(certPEM); err != nil {
		return nil, "there is no certificate in PEM form in it"
	}
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, "the key does not belong to the certificate, or is not one in PEM form"
	}
	return &pair, ""
}

func describe(pair *tls.Certificate) Pair {
	leaf := pair.Leaf
	return Pair{
		Present: true, CommonName: line(leaf.Subject.CommonName), Organizations: leaf.Subject.Organization,
		NotBefore: leaf.NotBefore, NotAfter: leaf.NotAfter,
		ForClients: !leaf.IsCA && (slices.Contains(leaf.ExtKeyUsage, x509.ExtKeyUsageClientAuth) ||
			slices.Contains(leaf.ExtKeyUsage, x509.ExtKeyUsageAny)),
	}
}

// credential is what a kubeconfig, or a PEM file with a certificate and its key, holds.
type credential struct {
	server    string
	pair      *tls.Certificate
	token     bool
	authority []byte
}

// parseCredential reads a file's content, and what a kubeconfig names relative to its own place. It never quotes the content:
// that is secret.
func parseCredential(path string, content []byte) (c credential, trouble string) {
	if pair, err := tls.X509KeyPair(content, content); err == nil {
		return credential{pair: &pair}, ""
	}
	config, err := clientcmd.Load(content)
	if err != nil {
		return c, "it is neither a kubeconfig nor a certificate with its key"
	}
	if clientcmdapi.MinifyConfig(config) != nil {
		return c, "it is no kubeconfig with a current context"
	}
	base := filepath.Dir(path)
	for _, cluster := range config.Clusters {
		err := clientcmdapi.FlattenContent(&cluster.CertificateAuthority, &cluster.CertificateAuthorityData, base)
		if err != nil {
			trouble = "what it names: " + cause(err)
		}
		c.server, c.authority = cluster.Server, cluster.CertificateAuthorityData
	}
	for _, user := range config.AuthInfos {
		c.token = user.Token != "" || user.TokenFile != ""
		err := errors.Join(clientcmdapi.FlattenContent(&user.ClientCertificate, &user.ClientCertificateData, base),
			clientcmdapi.FlattenContent(&user.ClientKey, &user.ClientKeyData, base))
		if err != nil {
			return c, "what it names: " + line(err.Error())
		}
		if len(user.ClientCertificateData) > 0 && trouble == "" {
			c.pair, trouble = parsePair(user.ClientCertificateData, user.ClientKeyData)
		}
	}
	return c, trouble
}
