package pooltest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"yurtcoordinator/internal/edge"
)

// Authority is a CA made by a test.
type Authority struct {
	Cert *x509.Certificate
	key  *ecdsa.PrivateKey
	Pem  []byte
}

// Pair is a certificate and its key, PEM.
type Pair struct{ Cert, Key []byte }

// NewAuthority returns a CA that has been valid for two days and stays so for two more.
func NewAuthority(t testing.TB, name string) *Authority {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    time.Now().Add(-48 * time.Hour),
		NotAfter:     time.Now().Add(48 * time.Hour),
		KeyUsage:     x509.KeyUsageCertSign,
		IsCA:         true, BasicConstraintsValid: true,
	}
	key := NewKey(t)
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &Authority{cert, key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
}

// Issue signs a certificate for client and server, for this machine and for the pool p1.
func (a *Authority) Issue(t testing.TB, subject pkix.Name, notAfter time.Time) Pair {
	t.Helper()
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		t.Fatal(err)
	}
	key := NewKey(t)
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: serial,
		Subject:      subject,
		NotBefore:    time.Now().Add(-24 * time.Hour),
		NotAfter:     notAfter,
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
		DNSNames:     []string{edge.PoolName("p1").CoordinatorServerName()},
	}, a.Cert, key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return Pair{
		Cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		Key:  pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER}),
	}
}

// NewKey returns a fresh key.
func NewKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// TLS is the pair as a server or a client presents it.
func (p Pair) TLS(t testing.TB) tls.Certificate {
	t.Helper()
	cert, err := tls.X509KeyPair(p.Cert, p.Key)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

// WriteFile writes a file into dir and returns its path.
func WriteFile(t testing.TB, dir, name string, content []byte) string {
	t.Helper()
	file := filepath.Join(dir, name)
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// Node is the subject of a node's certificate.
func Node(name string) pkix.Name {
	return pkix.Name{CommonName: "system:node:" + name, Organization: []string{"system:nodes"}}
}

// Operator is the subject of an operator's certificate.
func Operator() pkix.Name {
	return pkix.Name{CommonName: "alice", Organization: []string{"openyurt:coordinators"}}
}

// Debugger is the subject of the certificate of a person who may enter any Pod.
func Debugger() pkix.Name {
	return pkix.Name{CommonName: "bob", Organization: []string{"openyurt:coordinators:debug"}}
}

// Viewer is the subject of the certificate of a person who only looks.
func Viewer() pkix.Name {
	return pkix.Name{CommonName: "vera", Organization: []string{"openyurt:coordinators:viewers"}}
}

// Scraper is the subject of the certificate of a program that reads metrics.
func Scraper() pkix.Name {
	return pkix.Name{CommonName: "scraper", Organization: []string{"openyurt:coordinators:metrics"}}
}

// Tomorrow is when the certificates of most tests expire.
func Tomorrow() time.Time { return time.Now().Add(24 * time.Hour) }
