package check

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
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"yurtcoordinator/internal/hub/config"
	"yurtcoordinator/internal/hub/identity"
)

// authority is a CA.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority { return authorityUntil(t, time.Now().AddDate(1, 0, 0)) }

func authorityUntil(t *testing.T, end time.Time) *authority {
	t.Helper()
	a := &authority{key: newKey(t)}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().AddDate(-1, 0, 0), NotAfter: end, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, a.key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	return a
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func (a *authority) pem() []byte { return encode("CERTIFICATE", a.cert.Raw) }

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// issue returns a certificate for 127.0.0.1, after change has changed it, with its key.
func (a *authority) issue(t *testing.T, change func(*x509.Certificate)) (certPEM, keyPEM []byte) {
	t.Helper()
	key := newKey(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "server"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(0, 1, 0),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	if change != nil {
		change(template)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return encode("CERTIFICATE", der), encode("EC PRIVATE KEY", encoded)
}

func ofNode(name string) func(*x509.Certificate) {
	return func(c *x509.Certificate) {
		c.Subject = pkix.Name{CommonName: "system:node:" + name, Organization: []string{"system:nodes"}}
		c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	}
}

// world is a node's files, with a cloud that it may reach.
type world struct {
	t   *testing.T
	ca  *authority
	dir string
	cfg Config
	// serve is what the cloud answers.
	serve http.HandlerFunc
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, ca: newAuthority(t), dir: t.TempDir(), serve: apiServer}
	crt, key := w.ca.issue(t, ofNode("n1"))
	w.cfg = Config{
		Config: config.Config{
			Node: "n1", Pool: "p1", CAFile: w.file("ca.crt", w.ca.pem()), CertDir: filepath.Join(w.dir, "pki"),
			Identity:      config.Identity{BootstrapFile: filepath.Join(w.dir, "token")},
			DiskCachePath: filepath.Join(w.dir, "cache"),
			Port:          freePort(t), HealthBindAddress: "127.0.0.1", HealthPort: freePort(t),
		},
		Step: 5 * time.Second,
	}
	if err := os.Mkdir(w.cfg.CertDir, 0o700); err != nil {
		t.Fatal(err)
	}
	w.file("pki/client.pem", append(crt, key...))
	return w
}

// file writes one of the node's files, 0600.
func (w *world) file(name string, content []byte) string {
	w.t.Helper()
	path := filepath.Join(w.dir, name)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		w.t.Fatal(err)
	}
	return path
}

// probe goes towards a server with what the node's files hold.
func (w *world) probe(address string) Server {
	w.t.Helper()
	held, err := identity.Look(w.cfg.Certificates())
	if err != nil {
		w.t.Fatal(err)
	}
	return probeServer(w.t.Context(), w.cfg, held, address)
}

// brief makes steps short, for servers that never answer.
func (w *world) brief() { w.cfg.Step = 200 * time.Millisecond }

func freePort(t *testing.T) int {
	t.Helper()
	l := listen(t)
	defer l.Close()
	return port(t, l)
}

func port(t *testing.T, l net.Listener) int {
	t.Helper()
	a, ok := l.Addr().(*net.TCPAddr)
	if !ok {
		t.Fatalf("%s is no address of TCP", l.Addr())
	}
	return a.Port
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// cloud serves with a certificate, and asks for the caller's without insisting.
func (w *world) cloud(handler http.HandlerFunc, crt, key []byte) (address string) {
	w.t.Helper()
	pair, err := tls.X509KeyPair(crt, key)
	if err != nil {
		w.t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(handler)
	s.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequestClientCert}
	s.Config.ErrorLog = discard
	s.StartTLS()
	w.t.Cleanup(s.Close)
	return s.URL
}
