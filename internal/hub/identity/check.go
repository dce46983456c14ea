package identity

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/binary"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"

	"yurtcoordinator/internal/edge"
)

// tolerance is how far ahead of this node's clock a new certificate may begin: twice the 5 minutes by which clocks commonly
// differ.
const tolerance = 10 * time.Minute

// maxChain bounds the certificates in a signer's answer: the node's own, and up to 8 authorities of a pool.
const maxChain = 1 + 8

// request says what certificate is wanted.
type request struct {
	node edge.NodeName
	// hub says that the hub's serving certificate is wanted. Its signer decides the subject, whatever the request says, and adds
	// the authorities that verify the certificate.
	hub    bool
	signer string
	usages []certificatesv1.KeyUsage
	use    x509.ExtKeyUsage
	ips    []net.IP
}

func (r request) subject() pkix.Name {
	return pkix.Name{CommonName: r.node.User(), Organization: []string{edge.GroupNodes}}
}

// encode returns the request in PEM form, signed with key.
func (r request) encode(key *ecdsa.PrivateKey) ([]byte, error) {
	template := &x509.CertificateRequest{Subject: r.subject(), IPAddresses: r.ips}
	encoded, err := cert.MakeCSRFromTemplate(key, template)
	if err != nil {
		return nil, fmt.Errorf("make certificate request: %w", err)
	}
	return encoded, nil
}

// name returns the name of the CertificateSigningRequest for key: the same after a restart, and another for another request.
func (r request) name(kind string, key *ecdsa.PrivateKey) (string, error) {
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return "", fmt.Errorf("encode public key: %w", err)
	}
	sum := sha256.Sum256(fmt.Appendf(public, "%s %s %v []", r.signer, r.node, r.ips))
	return "yurthub-" + kind + "-" + hex.EncodeToString(sum[:16]), nil
}

// matches returns an error unless a certificate is for this node, this use and these addresses, whatever the time.
func (r request) matches(leaf *x509.Certificate) error {
	want := r.node.User()
	if r.hub {
		want = r.node.HubUser()
	}
	if got := leaf.Subject.CommonName; got != want {
		return fmt.Errorf("the certificate is for %q, not for %q", got, want)
	}
	if r.hub && len(leaf.Subject.Organization) > 0 {
		return fmt.Errorf("the certificate is for the groups %q, not for none", leaf.Subject.Organization)
	}
	if !r.hub && !slices.Contains(leaf.Subject.Organization, edge.GroupNodes) {
		return fmt.Errorf("the certificate is not for the group %s but for %q", edge.GroupNodes, leaf.Subject.Organization)
	}
	if leaf.IsCA {
		return errors.New("the certificate is an authority's")
	}
	if !slices.Contains(leaf.ExtKeyUsage, r.use) && !slices.Contains(leaf.ExtKeyUsage, x509.ExtKeyUsageAny) {
		return fmt.Errorf("the certificate is not for the use %q", r.usages)
	}
	for _, ip := range r.ips {
		if !slices.ContainsFunc(leaf.IPAddresses, ip.Equal) {
			return fmt.Errorf("the certificate is not for the address %s", ip)
		}
	}
	return nil
}

// accept checks what a signer has returned for a key. It returns certificate and key, as the content of a file and as a pair. Its
// error says why the certificate is useless.
func (r request) accept(issued []byte, key *ecdsa.PrivateKey, now time.Time) ([]byte, *tls.Certificate, error) {
	certs, err := cert.ParseCertsPEM(issued)
	if err != nil {
		return nil, nil, errors.New("what the signer returned is no certificate in PEM form")
	}
	if len(certs) > maxChain {
		return nil, nil, fmt.Errorf("the signer returned %d certificates, want at most %d", len(certs), maxChain)
	}
	leaf := certs[0]
	if !key.PublicKey.Equal(leaf.PublicKey) {
		return nil, nil, errors.New("the signer returned a certificate for another key")
	}
	if err := r.matches(leaf); err != nil {
		return nil, nil, err
	}
	switch {
	case !now.Before(leaf.NotAfter):
		return nil, nil, fmt.Errorf("the signer returned a certificate that ended at %s, but this node's clock says %s",
			date(leaf.NotAfter), date(now))
	case leaf.NotBefore.After(now.Add(tolerance)):
		return nil, nil, fmt.Errorf("the signer returned a certificate that begins at %s, but this node's clock says %s: "+
			"set the clock", date(leaf.NotBefore), date(now))
	}
	content, err := encodeKey(key)
	if err != nil {
		return nil, nil, err
	}
	content = append(encodeCerts(certs...), content...)
	pair, err := tls.X509KeyPair(content, content)
	if err != nil {
		return nil, nil, fmt.Errorf("what the signer returned: %w", err)
	}
	if r.hub {
		if err := verifiable(&pair, now); err != nil {
			return nil, nil, err
		}
	}
	return content, &pair, nil
}

// encodeCerts returns certificates in PEM form.
func encodeCerts(certs ...*x509.Certificate) (encoded []byte) {
	for _, c := range certs {
		encoded = append(encoded, pem.EncodeToMemory(&pem.Block{Type: cert.CertificateBlockType, Bytes: c.Raw})...)
	}
	return encoded
}

// renewAt returns when to renew a certificate: at some point from 2/3 to 9/10 of its life. The certificate's digest decides the
// point, so nodes that joined together do not renew together, and a restart changes nothing.
func renewAt(leaf *x509.Certificate) time.Time {
	const first, last = 2.0 / 3, 9.0 / 10
	sum := sha256.Sum256(leaf.Raw)
	chance := float64(binary.BigEndian.Uint32(sum[:4])) / (1 << 32)
	life := float64(leaf.NotAfter.Sub(leaf.NotBefore))
	return leaf.NotBefore.Add(time.Duration(life * (first + (last-first)*chance)))
}

// lacking returns why pair must be replaced at the time now; "" means that it need not be. The pair may still be used until then.
func (r request) lacking(pair *tls.Certificate, now time.Time) string {
	switch {
	case pair == nil:
		return "there is no certificate"
	case r.matches(pair.Leaf) != nil:
		return r.matches(pair.Leaf).Error()
	case now.After(pair.Leaf.NotAfter):
		return "the certificate expired at " + date(pair.Leaf.NotAfter)
	case !now.Before(renewAt(pair.Leaf)):
		return "the certificate is to be renewed before " + date(pair.Leaf.NotAfter)
	}
	return ""
}

func newKey() (*ecdsa.PrivateKey, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("new key: %w", err)
	}
	encoded, err := encodeKey(key)
	return key, encoded, err
}

func encodeKey(key any) ([]byte, error) {
	encoded, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return nil, fmt.Errorf("encode private key: %w", err)
	}
	return encoded, nil
}

func decodeKey(encoded []byte) (*ecdsa.PrivateKey, error) {
	parsed, err := keyutil.ParsePrivateKeyPEM(encoded)
	if err != nil {
		return nil, errors.New("no private key in PEM form")
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok || key.Curve != elliptic.P256() {
		return nil, errors.New("the private key is not an ECDSA key on P-256")
	}
	return key, nil
}

// sameKey reports whether a pair, which may be nil, has this key.
func sameKey(pair *tls.Certificate, key *ecdsa.PrivateKey) bool {
	if pair == nil {
		return false
	}
	signer, ok := pair.PrivateKey.(crypto.Signer)
	return ok && key.PublicKey.Equal(signer.Public())
}

func date(t time.Time) string { return t.UTC().Format(time.RFC3339) }
