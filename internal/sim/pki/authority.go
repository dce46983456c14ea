// Package pki makes keys, certificates and kubeconfigs as files, for the made-up cloud of a simulation, a test or a lab. They are
// made anew each time, and are worthless elsewhere.
//
// All keys are ECDSA P-256. Directories have mode 0700 and their files 0600; each file is written whole or not at all. A
// certificate and its key are the files NAME.crt and NAME.key, with the requested name. An authority called ca has ca.crt and
// ca.key.
//
// Certificates begin an hour in the past, because a lab sets its machines' clocks minutes apart.
package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"k8s.io/utils/clock"
)

const (
	// Backdate is how long a certificate has already been valid when it is made.
	Backdate = time.Hour

	// DefaultTTL is how long a certificate is valid by default: longer than any lab runs.
	DefaultTTL = 365 * 24 * time.Hour

	authorityTTL = 10 * DefaultTTL
)

// Authority signs certificates. Several goroutines may use it as long as they ask for different names.
type Authority struct {
	pair  Pair
	dir   string
	cert  *x509.Certificate
	key   *ecdsa.PrivateKey
	clock clock.PassiveClock
}

// Pair names the files of a certificate and its key.
type Pair struct {
	Cert, Key string
}

// Create makes a new authority in dir, and replaces an existing one of that name. The name is also the common name of its
// certificate. A nil clock means the real one.
func Create(dir, name string, c clock.PassiveClock) (*Authority, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	if c == nil {
		c = clock.RealClock{}
	}
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	now := c.Now()
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: name},
		NotBefore:             now.Add(-Backdate),
		NotAfter:              now.Add(authorityTTL),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature | x509.KeyUsageCRLSign,
	}
	der, err := sign(template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("authority %s: %w", name, err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("authority %s: %w", name, err)
	}
	pair, err := writePair(dir, name, der, key)
	if err != nil {
		return nil, fmt.Errorf("authority %s: %w", name, err)
	}
	return &Authority{pair: pair, dir: dir, cert: cert, key: key, clock: c}, nil
}

// Files returns the files of the authority itself. Clients and servers get its certificate, to trust the authority.
func (a *Authority) Files() Pair { return a.pair }

// Hash returns the hash of the authority's public key, sha256:HEX, by which kubeadm and yurthub recognize an authority.
func (a *Authority) Hash() string {
	return fmt.Sprintf("sha256:%x", sha256.Sum256(a.cert.RawSubjectPublicKeyInfo))
}

// Request is a wanted certificate.
type Request struct {
	// Name decides the files, NAME.crt and NAME.key, in the authority's directory.
	Name string

	// CommonName and Organizations are the user and groups of a client. An empty CommonName means Name.
	CommonName    string
	Organizations []string

	// IPs and DNSNames are a server's addresses and names.
	IPs      []net.IP
	DNSNames []string

	// Server and Client are the allowed uses; at least one is set.
	Server, Client bool

	// TTL is how long the certificate is valid from now on; zero means DefaultTTL. If NotAfter is set, TTL does not count.
	// NotAfter may be in the past.
	TTL      time.Duration
	NotAfter time.Time
}

// Issue makes a key and a certificate and writes both. It replaces existing ones of that name.
func (a *Authority) Issue(r Request) (Pair, error) {
	if err := checkName(r.Name); err != nil {
		return Pair{}, err
	}
	template, err := r.template(a.clock.Now())
	if err != nil {
		return Pair{}, fmt.Errorf("certificate %s: %w", r.Name, err)
	}
	key, err := newKey()
	if err != nil {
		return Pair{}, err
	}
	der, err := sign(template, a.cert, key.Public(), a.key)
	if err != nil {
		return Pair{}, fmt.Errorf("certificate %s: %w", r.Name, err)
	}
	pair, err := writePair(a.dir, r.Name, der, key)
	if err != nil {
		return Pair{}, fmt.Errorf("certificate %s: %w", r.Name, err)
	}
	return pair, nil
}

// Expired returns the same request, but for a certificate that was valid for an hour and expired a minute before now.
func (r Request) Expired(now time.Time) Request {
	r.NotAfter = now.Add(-time.Minute)
	return r
}

// template returns the certificate that the request asks for at a time.
func (r Request) template(now time.Time) (*x509.Certificate, error) {
	if !r.Server && !r.Client {
		return nil, errors.New("neither for a server nor for a client")
	}
	if r.Server && len(r.IPs) == 0 && len(r.DNSNames) == 0 {
		return nil, errors.New("a server without an address or a name")
	}
	t := &x509.Certificate{
		Subject:     pkix.Name{CommonName: r.CommonName, Organization: r.Organizations},
		IPAddresses: r.IPs,
		DNSNames:    r.DNSNames,
		NotBefore:   now.Add(-Backdate),
		NotAfter:    r.NotAfter,
		KeyUsage:    x509.KeyUsageDigitalSignature,
		// Without it, a certificate could sign others.
		BasicConstraintsValid: true,
	}
	if r.CommonName == "" {
		t.Subject.CommonName = r.Name
	}
	if t.NotAfter.IsZero() {
		ttl := r.TTL
		if ttl == 0 {
			ttl = DefaultTTL
		}
		if ttl < 0 {
			return nil, fmt.Errorf("TTL %s; NotAfter can be in the past", ttl)
		}
		t.NotAfter = now.Add(ttl)
	}
	if !t.NotBefore.Before(t.NotAfter) {
		t.NotBefore = t.NotAfter.Add(-Backdate)
	}
	if r.Server {
		t.ExtKeyUsage = append(t.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	}
	if r.Client {
		t.ExtKeyUsage = append(t.ExtKeyUsage, x509.ExtKeyUsageClientAuth)
	}
	return t, nil
}

func newKey() (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("new key: %w", err)
	}
	return key, nil
}

func sign(template, parent *x509.Certificate, public crypto.PublicKey, signer crypto.Signer) ([]byte, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	template.SerialNumber = serial.Add(serial, big.NewInt(1))
	return x509.CreateCertificate(rand.Reader, template, parent, public, signer)
}

func pairIn(dir, name string) Pair {
	return Pair{Cert: filepath.Join(dir, name+".crt"), Key: filepath.Join(dir, name+".key")}
}

func writePair(dir, name string, der []byte, key *ecdsa.PrivateKey) (Pair, error) {
	pair := pairIn(dir, name)
	private, err := privatePEM(key)
	if err != nil {
		return Pair{}, err
	}
	if err := writeFile(pair.Key, private); err != nil {
		return Pair{}, err
	}
	if err := writeFile(pair.Cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})); err != nil {
		return Pair{}, err
	}
	return pair, nil
}

func privatePEM(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), nil
}

// checkName refuses names that would leave the directory.
func checkName(name string) error {
	if name == "" || name != filepath.Base(name) || name == "." || name == ".." {
		return fmt.Errorf("%q cannot be the name of a file", name)
	}
	return nil
}

// writeFile replaces a file, 0600 in a directory of 0700, in one step that survives a power cut.
func writeFile(path string, content []byte) (err error) {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, "."+filepath.Base(path)) // 0600
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
