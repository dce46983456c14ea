package relay

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
	"time"

	"yurtcoordinator/internal/edge"
)

// Credentials are how a hub and its neighbours verify each other. All fields are required.
type Credentials struct {
	// Own returns the certificate that the pool's authority has signed for this hub, followed by all authorities that the pool's
	// hubs trust. It returns nil while there is no certificate.
	Own func() *tls.Certificate
	// Now is the time by which certificates are checked.
	Now func() time.Time
}

// ErrNoCertificate says that a hub has no certificate of its pool's authority yet.
var ErrNoCertificate = errors.New("this hub has no certificate of its pool's authority: see --secure-bind-address")

// own returns the certificate to show, without the authorities.
func (c Credentials) own() (*tls.Certificate, error) {
	pair := c.Own()
	if pair == nil {
		return nil, ErrNoCertificate
	}
	return &tls.Certificate{Certificate: pair.Certificate[:1], PrivateKey: pair.PrivateKey, Leaf: pair.Leaf}, nil
}

// verify returns the node whose hub is the other end. The pool's authority signs only for hubs of its pool, so its signature
// proves that the other end is a neighbour. Both ends of the connection show a server certificate.
func (c Credentials) verify(state tls.ConnectionState) (edge.NodeName, error) {
	pair := c.Own()
	switch {
	case pair == nil:
		return "", ErrNoCertificate
	case len(state.PeerCertificates) == 0:
		return "", errors.New("it shows no certificate")
	}
	roots := x509.NewCertPool()
	for _, der := range pair.Certificate[1:] {
		authority, err := x509.ParseCertificate(der)
		if err != nil {
			return "", fmt.Errorf("the pool's authority: %w", err)
		}
		roots.AddCert(authority)
	}
	leaf := state.PeerCertificates[0]
	if _, err := leaf.Verify(x509.VerifyOptions{
		Roots: roots, CurrentTime: c.Now(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}); err != nil {
		return "", err
	}
	name, isHub := strings.CutPrefix(leaf.Subject.CommonName, edge.NodeName("").HubUser())
	if !isHub || name == "" {
		return "", fmt.Errorf("%.100q is no hub", leaf.Subject.CommonName)
	}
	return edge.NodeName(name), nil
}

// Serving returns the TLS configuration for serving neighbours: only neighbours pass the handshake.
func (c Credentials) Serving() *tls.Config {
	return &tls.Config{
		MinVersion:             tls.VersionTLS13,
		ClientAuth:             tls.RequireAnyClientCert, // VerifyConnection looks at it
		SessionTicketsDisabled: true,
		GetCertificate:         func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.own() },
		VerifyConnection: func(state tls.ConnectionState) error {
			_, err := c.verify(state)
			return unverified(state, err)
		},
	}
}

// unverified returns err in the form in which crypto/tls returns errors of its own verification.
func unverified(state tls.ConnectionState, err error) error {
	if err == nil {
		return nil
	}
	return &tls.CertificateVerificationError{UnverifiedCertificates: state.PeerCertificates, Err: err}
}

// asking returns the TLS configuration for asking one neighbour.
func (c Credentials) asking(of edge.NodeName) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		// The neighbour is known by its name in the certificate, not by its address. VerifyConnection verifies it in full.
		InsecureSkipVerify:   true, //nolint:gosec // see above
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return c.own() },
		VerifyConnection: func(state tls.ConnectionState) error {
			name, err := c.verify(state)
			if err == nil && name != of {
				err = fmt.Errorf("it is the hub of %s, want that of %s", name, of)
			}
			return unverified(state, err)
		},
	}
}
