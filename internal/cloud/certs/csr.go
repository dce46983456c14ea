package certs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"time"
)

// This file is about client certificates that another signer makes: our key, a request for it (PKCS #10), and the signed result.

// NewKey makes a private key in PEM.
func NewKey() ([]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	return encodeKey(key)
}

// SigningRequest makes a request for a client certificate with this key, for a user without groups.
func SigningRequest(key []byte, user string) ([]byte, error) {
	signer, err := parseKey(key)
	if err != nil {
		return nil, fmt.Errorf("the key of the request: %w", err)
	}
	template := &x509.CertificateRequest{Subject: pkix.Name{CommonName: user}}
	der, err := x509.CreateCertificateRequest(rand.Reader, template, signer)
	if err != nil {
		return nil, fmt.Errorf("make a request for %s: %w", user, err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}), nil
}

// ParseRequest returns a PEM certificate request whose maker has its key, or why it is none.
func ParseRequest(request []byte) (*x509.CertificateRequest, error) {
	block, rest := pem.Decode(request)
	if block == nil || block.Type != "CERTIFICATE REQUEST" || len(rest) > 0 {
		return nil, errors.New("it is not one PEM certificate request")
	}
	asked, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, errors.New("it can't be read")
	}
	if err := asked.CheckSignature(); err != nil {
		return nil, errors.New("it is not signed with its own key")
	}
	return asked, nil
}

// PublicKey returns the public key of a private key in PEM, in DER.
func PublicKey(key []byte) ([]byte, error) {
	signer, err := parseKey(key)
	if err != nil {
		return nil, fmt.Errorf("the key of the request: %w", err)
	}
	return x509.MarshalPKIXPublicKey(signer.Public())
}

// Adopt returns the pair of a key and a signer's answer, if that is a client certificate of the user and valid now.
func Adopt(cert, key []byte, user string, now time.Time) (Pair, error) {
	p := Pair{Cert: Bundle(cert), Key: key}
	if err := CheckClient(p, user, now); err != nil {
		return Pair{}, fmt.Errorf("the signer sent something other than requested: %w", err)
	}
	return p, nil
}

// CheckClient returns nil if a client certificate from another signer can be used now. Otherwise the error says why not. It
// does not check which authority signed the certificate.
func CheckClient(have Pair, user string, now time.Time) error {
	cert, err := have.parse()
	switch {
	case err != nil:
		return err
	case cert.Subject.CommonName != user || len(cert.Subject.Organization) > 0:
		return fmt.Errorf("it is for %q, not only for %q", cert.Subject, user)
	case !slices.Contains(cert.ExtKeyUsage, x509.ExtKeyUsageClientAuth):
		return errors.New("it is not for clients")
	case now.Before(cert.NotBefore):
		return errors.New("it is not valid before " + stamp(cert.NotBefore))
	case !now.Before(cert.NotAfter):
		return errors.New("it has ended at " + stamp(cert.NotAfter))
	}
	return nil
}
