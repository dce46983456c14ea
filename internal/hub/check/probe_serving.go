package check

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"path/filepath"
	"time"

	"sigs.k8s.io/yaml"
)

// kubeletPKI is kubelet's --cert-dir if it is given none. There are the certificate that it makes itself, and the one that the
// cluster signs.
const kubeletPKI, nameOwn, nameBootstrapped = "/var/lib/kubelet/pki", "kubelet.crt", "kubelet-server-current.pem"

// serving finds the certificate that a kubelet with this command line serves with.
func serving(argv []string, c Config) Serving {
	var settings struct {
		TLSCertFile        string `json:"tlsCertFile"`
		ServerTLSBootstrap bool   `json:"serverTLSBootstrap"`
	}
	path := flagValue(argv, "config")
	if path != "" {
		file, content := readFile(path)
		trouble := file.Trouble
		switch {
		case file.Missing:
			trouble = "it is not there"
		case trouble == "" && yaml.Unmarshal(content, &settings) != nil:
			trouble = "it is no YAML"
		}
		if trouble != "" {
			return Serving{File: File{Trouble: path + ": " + trouble}}
		}
	}
	if flag := flagValue(argv, "rotate-server-certificates"); flag != "" {
		settings.ServerTLSBootstrap = flag == "true"
	}
	dir := flagValue(argv, "cert-dir")
	if dir == "" {
		dir = kubeletPKI
	}
	var s Serving
	at := flagValue(argv, "tls-cert-file")
	switch {
	case at != "":
	case settings.TLSCertFile != "" && !filepath.IsAbs(settings.TLSCertFile):
		at = filepath.Join(filepath.Dir(path), settings.TLSCertFile)
	case settings.TLSCertFile != "":
		at = settings.TLSCertFile
	case settings.ServerTLSBootstrap:
		at, s.Bootstrapped = filepath.Join(dir, nameBootstrapped), true
	default:
		at = filepath.Join(dir, nameOwn)
	}
	return s.read(at, c)
}

// read takes the certificate with which a file begins, and looks at nothing else of it.
func (s Serving) read(path string, c Config) Serving {
	var content []byte
	if s.File, content = readFile(path); !s.File.fine() {
		return s
	}
	block, _ := pem.Decode(content)
	if block == nil || block.Type != "CERTIFICATE" {
		s.File.Trouble = "it does not begin with a certificate"
		return s
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		s.File.Trouble = "it has no certificate that can be read"
		return s
	}
	sum := sha256.Sum256(cert.Raw)
	s.Digest, s.NotBefore, s.NotAfter = hex.EncodeToString(sum[:]), cert.NotBefore, cert.NotAfter
	if _, known := readKeys(c); known.cloud != nil {
		_, err := cert.Verify(x509.VerifyOptions{Roots: known.cloud, CurrentTime: cert.NotBefore.Add(time.Second)})
		s.Signed = err == nil
	}
	return s
}
