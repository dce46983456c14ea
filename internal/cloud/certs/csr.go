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

// A client certificate that somebody else signs: a key of ours, a request for it (PKCS #10), and what came back.

// NewKey makes a private key, PEM.
func NewKey() ([]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	return encodeKey(key)
}

// SigningRequest asks for a client certificate of a user without groups, with this key.
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

// IsSigningRequest returns why a request is not what SigningRequest makes with these arguments, or nil. Only who has the key
// can have made it then.
func IsSigningRequest(request, key []byte, user string) error {
	block, rest := pem.Decode(request)
	if block == nil || block.Type != "CERTIFICATE REQUEST" || len(rest) > 0 {
		return errors.New("it is not one PEM certificate request")
	}
	asked, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return err
	}
	signer, err := parseKey(key)
	if err != nil {
		return fmt.Errorf("the key of the request: %w", err)
	}
	switch {
	case !signer.PublicKey.Equal(asked.PublicKey):
		return errors.New("it is for another key")
	case asked.CheckSignature() != nil:
		return errors.New("it is not signed with its key")
	case asked.Subject.String() != pkix.Name{CommonName: user}.String():
		return fmt.Errorf("it is for %q, not only for %q", asked.Subject, user)
	case len(asked.Extensions)+len(asked.ExtraExtensions) > 0:
		return errors.New("it asks for extensions")
	}
	return nil
}

// Adopt returns what a signer sent for a key, if it is a client certificate of the user that is good at this time.
func Adopt(cert, key []byte, user string, now time.Time) (Pair, error) {
	p := Pair{Cert: Bundle(cert), Key: key}
	why, _ := PlanClient(p, user, now)
	if why != "" {
		return Pair{}, fmt.Errorf("what the signer sent is not what was asked for: %s", why)
	}
	return p, nil
}

// PlanClient returns why a client certificate that somebody else signed must be asked for anew, or nothing and when to look
// again. Who verifies it is not known here.
func PlanClient(have Pair, user string, now time.Time) (why string, again time.Time) {
	cert, err := have.parse()
	switch {
	case err != nil:
		return err.Error(), time.Time{}
	case cert.Subject.CommonName != user || len(cert.Subject.Organization) > 0:
		return fmt.Sprintf("it is of %q, not only of %q", cert.Subject, user), time.Time{}
	case !slices.Contains(cert.ExtKeyUsage, x509.ExtKeyUsageClientAuth):
		return "it is not for clients", time.Time{}
	case now.Before(cert.NotBefore):
		return "it is not valid before " + stamp(cert.NotBefore), time.Time{}
	}
	if again = twoThirds(cert.NotBefore, cert.NotAfter); !now.Before(again) {
		return "it expires at " + stamp(cert.NotAfter), time.Time{}
	}
	return "", again
}
