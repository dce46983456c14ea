package check

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

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

// readSome reads one of the kernel's files.
func readSome(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxFile))
}

// secrets are what the node can show a server.
type secrets struct {
	pair *tls.Certificate // nil: none
	with string           // the file from which pair comes
	// cloud and coordinator verify the servers; nil: not known.
	cloud, coordinator *x509.CertPool
}

// readKeys reads all files of certificates.
func readKeys(c Config) (Keys, secrets) {
	var k Keys
	var s secrets
	certPath, keyPath := c.pairFiles()
	if certPath != "" || keyPath != "" {
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
	}
	authority := k.readMeans(c, &s)
	if c.CAFile != "" {
		k.CA, authority = readFile(c.CAFile)
	} else if kept, content := readFile(filepath.Join(c.CertDir, "ca.crt")); c.CertDir != "" && !kept.Missing {
		k.CA, authority = kept, content
	}
	if k.CA.Path != "" && k.CA.fine() {
		s.cloud = k.readAuthority(c, authority)
	}
	s.coordinator = s.cloud
	if len(c.CoordinatorCA) > 0 {
		s.coordinator = x509.NewCertPool()
		s.coordinator.AppendCertsFromPEM(c.CoordinatorCA)
		return k, s
	}
	if c.CoordinatorCAFile != "" && c.CoordinatorCAFile != c.CAFile {
		s.coordinator = nil
		if file, content := readFile(c.CoordinatorCAFile); file.fine() {
			if pool := x509.NewCertPool(); pool.AppendCertsFromPEM(content) {
				s.coordinator = pool
			}
		}
	}
	return k, s
}

// readMeans reads the means by which the hub can get a certificate. It returns the authority that it finds there.
func (k *Keys) readMeans(c Config, s *secrets) (authority []byte) {
	if !c.ownCertificate() {
		return nil
	}
	if c.KubeletKubeconfig != "" {
		var content []byte
		if k.Kubelet, content = readFile(c.KubeletKubeconfig); k.Kubelet.fine() {
			found := parseCredential(c.KubeletKubeconfig, content)
			switch {
			case found.pair == nil && found.trouble != "":
				k.Kubelet.Trouble = found.trouble
			case found.pair == nil:
				k.Kubelet.Trouble = "there is no client certificate in it"
			default:
				k.KubeletPair = describe(found.pair)
				if s.pair == nil {
					s.pair, s.with = found.pair, c.KubeletKubeconfig
				}
			}
			if len(found.authority) > 0 {
				k.CA, authority = File{Path: c.KubeletKubeconfig}, found.authority
			}
		}
	}
	if c.BootstrapFile == "" {
		return authority
	}
	var content []byte
	if k.Bootstrap, content = readFile(c.BootstrapFile); !k.Bootstrap.fine() ||
		util.IsValidBootstrapToken(string(bytes.TrimSpace(content))) {
		return authority
	}
	found := parseCredential(c.BootstrapFile, content)
	if found.pair == nil && !found.token {
		k.Bootstrap.Trouble = "it is neither a bootstrap token, abcdef.0123456789abcdef, nor a kubeconfig with a " +
			"token or a certificate"
	}
	if len(found.authority) > 0 {
		k.CA, authority = File{Path: c.BootstrapFile}, found.authority
	}
	return authority
}

// readAuthority returns the authority's pinned certificates, or all if there are no hashes.
func (k *Keys) readAuthority(c Config, content []byte) *x509.CertPool {
	certs, err := cert.ParseCertsPEM(content)
	if err != nil {
		k.CA.Trouble = "there is no certificate in PEM form in it"
		return nil
	}
	pool, successors := x509.NewCertPool(), readSuccessors(k.CA.Path, c.CACertHashes)
	for _, found := range certs {
		sum := sha256.Sum256(found.RawSubjectPublicKeyInfo)
		hash := "sha256:" + hex.EncodeToString(sum[:])
		pinned := slices.ContainsFunc(c.CACertHashes, func(h string) bool { return strings.EqualFold(h, hash) })
		if whole := sha256.Sum256(found.Raw); successors[hex.EncodeToString(whole[:])] {
			pinned = true
		}
		if k.CAHash == "" || pinned {
			k.CAHash = hash
		}
		k.Pinned = k.Pinned || pinned
		if found.NotAfter.After(k.CAExpiry) {
			k.CAExpiry = found.NotAfter
		}
		if pinned || len(c.CACertHashes) == 0 {
			pool.AddCert(found)
		}
	}
	return pool
}

// readSuccessors returns the digests of those authorities that the hub has learned of from the cloud, which need no hash. The
// notes about them count only while the hashes are those by which the first authority was recognized.
func readSuccessors(authority string, hashes []string) map[string]bool {
	file, content := readFile(strings.TrimSuffix(authority, ".crt") + ".json")
	if !file.fine() {
		return nil
	}
	var notes struct {
		Version     int                 `json:"version"`
		Pins        string              `json:"pins"`
		Authorities map[string]struct{} `json:"authorities"`
	}
	if json.Unmarshal(content, &notes) != nil || notes.Version != 1 {
		return nil
	}
	pins := map[string]bool{}
	for _, h := range hashes {
		pins[strings.TrimPrefix(strings.ToLower(h), "sha256:")] = true
	}
	sum := sha256.New()
	for _, pin := range slices.Sorted(maps.Keys(pins)) {
		raw, err := hex.DecodeString(pin)
		if err != nil {
			return nil
		}
		sum.Write(raw)
	}
	if notes.Pins != hex.EncodeToString(sum.Sum(nil)) {
		return nil
	}
	known := map[string]bool{}
	for id := range notes.Authorities {
		known[id] = true
	}
	return known
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
	pair      *tls.Certificate
	token     bool
	authority []byte
	trouble   string
}

// parseCredential never quotes the content: it is secret.
func parseCredential(path string, content []byte) credential {
	if pair, err := tls.X509KeyPair(content, content); err == nil {
		return credential{pair: &pair}
	}
	config, err := clientcmd.Load(content)
	if err != nil {
		return credential{trouble: "it is neither a kubeconfig nor a certificate with its key"}
	}
	current := config.Contexts[config.CurrentContext]
	if current == nil || config.AuthInfos[current.AuthInfo] == nil {
		return credential{trouble: "it is no kubeconfig with a current context and a user"}
	}
	user, cluster := config.AuthInfos[current.AuthInfo], config.Clusters[current.Cluster]
	if cluster == nil {
		cluster = &clientcmdapi.Cluster{}
	}
	var c credential
	c.authority, c.trouble = inline(path, cluster.CertificateAuthorityData, cluster.CertificateAuthority)
	certPEM, without := inline(path, user.ClientCertificateData, user.ClientCertificate)
	if without != "" {
		c.trouble = without
	}
	keyPEM, without := inline(path, user.ClientKeyData, user.ClientKey)
	if without != "" {
		c.trouble = without
	}
	if len(certPEM) > 0 && c.trouble == "" {
		c.pair, c.trouble = parsePair(certPEM, keyPEM)
	}
	c.token = user.Token != "" || user.TokenFile != ""
	return c
}

// inline returns what a kubeconfig holds itself, or else the content of the file that it names, relative to its own
// place.
func inline(kubeconfig string, data []byte, path string) (content []byte, trouble string) {
	if len(data) > 0 || path == "" {
		return data, ""
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(filepath.Dir(kubeconfig), path)
	}
	file, content := readFile(path)
	if !file.fine() {
		return nil, fmt.Sprintf("%s, which it names: %s", path, reason(file))
	}
	return content, ""
}
