package identity

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"time"
)

// showAuthorities calls Config.ShowAuthorities with the authorities that have come with the hub's certificate.
func (m *Manager) showAuthorities() {
	own := m.serving.pair.Get()
	if m.cfg.Serve == nil || own == nil {
		return
	}
	var all []byte
	for _, der := range own.Certificate[1:] {
		all = append(all, encodeCerts(&x509.Certificate{Raw: der})...)
	}
	m.cfg.ShowAuthorities(string(all))
}

// verifiable returns an error unless one of the authorities that came with a hub's certificate has signed it for servers. An
// expired certificate is accepted, and one that is not valid yet, because a clock may be wrong and a node may have been off for
// long.
func verifiable(pair *tls.Certificate, now time.Time) error {
	roots := x509.NewCertPool()
	if len(pair.Certificate) == 1 {
		return errors.New("no authority has come with the certificate, by which Pods could verify it")
	}
	for _, der := range pair.Certificate[1:] {
		c, err := x509.ParseCertificate(der)
		if err != nil {
			return fmt.Errorf("what has come with the certificate: %w", err)
		}
		if !c.IsCA {
			return fmt.Errorf("%q, which has come with the certificate, is no authority", c.Subject)
		}
		roots.AddCert(c)
	}
	if now.Before(pair.Leaf.NotBefore) {
		now = pair.Leaf.NotBefore
	}
	if now.After(pair.Leaf.NotAfter) {
		now = pair.Leaf.NotAfter
	}
	_, err := pair.Leaf.Verify(x509.VerifyOptions{
		Roots: roots, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	if err != nil {
		return fmt.Errorf("the authorities that have come with the certificate do not verify it: %w", err)
	}
	return nil
}
