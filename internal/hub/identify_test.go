package hub

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"yurtcoordinator/internal/ends"
)

// A hub that starts with a certificate of its own needs nobody.
func TestAHubHasItsOwnCertificate(t *testing.T) {
	dir := t.TempDir()
	keys := filepath.Join(dir, "pki")
	end := time.Now().Add(365 * 24 * time.Hour).Truncate(time.Second)
	pair := certificate(t, end)
	if err := os.Mkdir(keys, 0o700); err != nil {
		t.Fatal(err)
	}
	authority, _, _ := strings.Cut(string(pair), "-----BEGIN EC")
	for name, content := range map[string][]byte{"client.pem": pair, "ca.crt": []byte(authority)} {
		if err := os.WriteFile(filepath.Join(keys, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	h, err := New(flags(t, "--node-name=n1", "--server-addr=https://10.0.0.1:6443",
		"--bootstrap-file="+filepath.Join(dir, "none"), "--cert-dir="+keys, "--disk-cache-path="), ends.Ends{})
	if err != nil {
		t.Fatal(err)
	}
	own := filepath.Join(keys, "client.pem")
	if ca, cert, key := h.identity.Files(); ca != filepath.Join(keys, "ca.crt") || cert != own || key != own {
		t.Errorf("%s, %s, %s", ca, cert, key)
	}
	if err := h.identity.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s := h.Status(); s.Identity == nil || !s.Identity.Client.NotAfter.Equal(end) || s.Identity.Client.Problem != "" {
		t.Errorf("%+v", s.Identity)
	}
	const metric = "yurthub_certificate_expiration_timestamp_seconds"
	families, err := testutil.GatherAndCount(h.metrics, metric)
	if err != nil || families != 2 {
		t.Errorf("%d, %v", families, err)
	}
}

// certificate is what a signer makes of a request of node n1, with its key.
func certificate(t *testing.T, end time.Time) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Minute), NotAfter: end, BasicConstraintsValid: true,
		Subject:     pkix.Name{CommonName: "system:node:n1", Organization: []string{"system:nodes"}},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: encoded})...)
}
