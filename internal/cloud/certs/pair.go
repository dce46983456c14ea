package certs

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"time"
)

// Backdate is how long before its making a certificate becomes valid: twice the five minutes that clocks may differ.
const Backdate = 10 * time.Minute

// Lives says how long certificates live. The comment at each field gives the default that zero means.
type Lives struct {
	// Authority is the life of a pool's authority: five years.
	Authority time.Duration
	// Settle is how long a new authority is trusted before it signs: 90 days. A hub that is cut off from the cloud for longer may
	// reject its coordinator's new certificate until it reaches the cloud again.
	Settle time.Duration
	// Serving is the life of a coordinator's serving certificate: a year. The certificate is renewed after two thirds of it. So
	// a coordinator that is cut off from the cloud can serve its pool for the last third.
	Serving time.Duration
	// Operator is the life of an operators' client certificate: MaxOperator, and no longer.
	Operator time.Duration
	// Kubelet is the requested life of a client certificate for kubelets: 30 days. The signer may give less.
	Kubelet time.Duration
}

const day = 24 * time.Hour

// MaxOperator is the longest life of an operators' shared certificate. Nobody knows who has a copy of it.
const MaxOperator = 30 * day

// Completed returns l with its zero fields replaced by their defaults.
func (l Lives) Completed() Lives {
	for _, f := range []struct {
		field *time.Duration
		life  time.Duration
	}{
		{&l.Authority, 5 * 365 * day}, {&l.Settle, 90 * day}, {&l.Serving, 365 * day}, {&l.Operator, MaxOperator},
		{&l.Kubelet, 30 * day},
	} {
		if *f.field == 0 {
			*f.field = f.life
		}
	}
	return l
}

// Pair is a certificate and its private key, both in PEM.
type Pair struct {
	Cert, Key []byte
}

// IsZero reports whether the pair is empty.
func (p Pair) IsZero() bool { return len(p.Cert) == 0 && len(p.Key) == 0 }

// parse returns the certificate, or why the pair can't be used.
func (p Pair) parse() (*x509.Certificate, error) {
	if p.IsZero() {
		return nil, errors.New("there is none")
	}
	loaded, err := tls.X509KeyPair(p.Cert, p.Key)
	if err != nil {
		return nil, fmt.Errorf("it can't be used: %w", err)
	}
	return loaded.Leaf, nil
}

// Usable returns nil if the pair is complete and not expired at this time, else the reason. It checks nothing else.
func (p Pair) Usable(now time.Time) error {
	cert, err := p.parse()
	if err == nil && now.After(cert.NotAfter) {
		err = fmt.Errorf("it expired at %s", stamp(cert.NotAfter))
	}
	return err
}

// Part returns when so much of the certificate's life is over: n parts of all. It is the zero time if there is none.
func (p Pair) Part(n, all int64) time.Time {
	cert, err := p.parse()
	if err != nil {
		return time.Time{}
	}
	return cert.NotBefore.Add(cert.NotAfter.Sub(cert.NotBefore) / time.Duration(all) * time.Duration(n))
}

// CredentialID returns the name by which API servers and kubelets log the certificate, in
// authentication.kubernetes.io/credential-id. Empty means that there is no certificate.
func (p Pair) CredentialID() string {
	cert, err := p.parse()
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(cert.Raw)
	return "X509SHA256=" + hex.EncodeToString(sum[:])
}

// SelfSigned makes a pair that nobody trusts, for a place where a file must exist.
func SelfSigned(commonName string, life time.Duration, now time.Time) (Pair, error) {
	template := Request{CommonName: commonName, Client: true}.template(now, now.Add(life))
	return makePair(template, nil, nil)
}

// makePair makes a key and has the parent sign the template for it. Without a parent the pair signs itself.
func makePair(template, parent *x509.Certificate, signer crypto.Signer) (Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, fmt.Errorf("make a key: %w", err)
	}
	if parent == nil {
		parent, signer = template, key
	}
	cert, err := issue(template, parent, key.Public(), signer)
	if err != nil {
		return Pair{}, err
	}
	keyPEM, err := encodeKey(key)
	if err != nil {
		return Pair{}, err
	}
	return Pair{Cert: cert, Key: keyPEM}, nil
}

// issue has the parent sign the template for a public key, and returns the certificate in PEM.
func issue(template, parent *x509.Certificate, public crypto.PublicKey, signer crypto.Signer) ([]byte, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("make a serial number: %w", err)
	}
	template.SerialNumber = serial.Add(serial, big.NewInt(1)) // zero is not allowed
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, signer)
	if err != nil {
		return nil, fmt.Errorf("sign the certificate of %s: %w", template.Subject, err)
	}
	return encodeCert(der), nil
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode a key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

func parseKey(text []byte) (*ecdsa.PrivateKey, error) {
	block, _ := pem.Decode(text)
	if block == nil || block.Type != "PRIVATE KEY" {
		return nil, errors.New("no PEM private key in it")
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, err
	}
	if k, ok := key.(*ecdsa.PrivateKey); ok {
		return k, nil
	}
	return nil, fmt.Errorf("a %T, not an ECDSA key", key)
}

func encodeCert(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// Certificates returns the certificates in a PEM bundle, each only once. It skips everything else.
func Certificates(bundle []byte) []*x509.Certificate {
	var certs []*x509.Certificate
	seen := make(map[string]bool)
	for block, rest := pem.Decode(bundle); block != nil; block, rest = pem.Decode(rest) {
		cert, err := x509.ParseCertificate(block.Bytes)
		if block.Type != "CERTIFICATE" || err != nil || seen[string(cert.Raw)] {
			continue
		}
		seen[string(cert.Raw)] = true
		certs = append(certs, cert)
	}
	return certs
}

// Bundle joins PEM bundles in the given order, each certificate only once.
func Bundle(bundles ...[]byte) []byte {
	var out []byte
	for _, cert := range Certificates(bytes.Join(bundles, []byte("\n"))) {
		out = append(out, encodeCert(cert.Raw)...)
	}
	return out
}

// due returns when our certificate must be renewed: two thirds of its life after it was made.
func due(cert *x509.Certificate) time.Time {
	return twoThirds(cert.NotBefore.Add(Backdate), cert.NotAfter)
}

func twoThirds(from, to time.Time) time.Time { return from.Add(to.Sub(from) / 3 * 2) }

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
