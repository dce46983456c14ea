package certs

import (
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"testing"
)

// signRequest is a signer of somebody else: it makes a certificate for six hours, which began two hours ago.
func signRequest(t *testing.T, request []byte, by *x509.Certificate, key *ecdsa.PrivateKey,
	change func(*x509.Certificate),
) []byte {
	t.Helper()
	block, _ := pem.Decode(request)
	asked, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(7), Subject: asked.Subject,
		NotBefore: start.Add(-2 * hour), NotAfter: start.Add(7 * hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	change(template)
	der, err := x509.CreateCertificate(rand.Reader, template, by, asked.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return encodeCert(der)
}
