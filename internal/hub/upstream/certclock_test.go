package upstream

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"yurtcoordinator/internal/ends"
)

var trueTime = time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)

// serverFrom is a TLS server's certificate, self-signed and valid from then on for a day.
func serverFrom(t *testing.T, notBefore time.Time) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "s"}, DNSNames: []string{"s"}, IsCA: true,
		BasicConstraintsValid: true, NotBefore: notBefore, NotAfter: notBefore.Add(24 * time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

// connectTo reports how a real handshake with the server ends.
func connectTo(t *testing.T, c *CertClock, s tls.Certificate) error {
	t.Helper()
	near, far := net.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer far.Close()
		_ = tls.Server(far, &tls.Config{Certificates: []tls.Certificate{s}, MinVersion: tls.VersionTLS13}).Handshake()
	}()
	roots := x509.NewCertPool()
	roots.AddCert(s.Leaf)
	err := tls.Client(near, &tls.Config{
		RootCAs: roots, ServerName: "s", MinVersion: tls.VersionTLS13, Time: c.Now, VerifyConnection: c.Verified,
	}).Handshake()
	near.Close()
	<-done
	return err
}

// A machine whose clock goes back an hour still talks to a server that it has talked to, also after a restart.
func TestClockThatGoesBack(t *testing.T) {
	dir := t.TempDir()
	now := trueTime
	machine := ends.Clock{OfDay: func() time.Time { return now }}
	c := NewCertClock(dir, machine)
	fresh := serverFrom(t, trueTime.Add(-10*time.Minute))
	if err := connectTo(t, c, fresh); err != nil {
		t.Fatal(err)
	}
	now = trueTime.Add(-time.Hour)
	for what, c := range map[string]*CertClock{"running": c, "restarted": NewCertClock(dir, machine)} {
		if err := connectTo(t, c, fresh); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := connectTo(t, NewCertClock(t.TempDir(), machine), fresh); err == nil {
		t.Error("a hub that has never verified it believes in a certificate from the future: the test shows nothing")
	}
	now = trueTime.Add(23*time.Hour + 51*time.Minute)
	if err := connectTo(t, c, fresh); err == nil {
		t.Error("an expired certificate is believed")
	}
}

// What was not verified is not noted, and a certificate from the future is not verified.
func TestNothingFromTheFuture(t *testing.T) {
	now := trueTime
	machine := ends.Clock{OfDay: func() time.Time { return now }}
	c := NewCertClock(t.TempDir(), machine)
	if err := connectTo(t, c, serverFrom(t, trueTime.Add(time.Hour))); err == nil {
		t.Error("a certificate from the future is believed")
	}
	if err := c.Verified(tls.ConnectionState{}); err != nil || !c.Now().Equal(trueTime) {
		t.Errorf("the time is %v, %v", c.Now(), err)
	}
	if err := connectTo(t, c, serverFrom(t, trueTime.Add(-time.Hour))); err != nil || !c.Now().Equal(trueTime) {
		t.Errorf("the time is %v, %v; want the machine's", c.Now(), err)
	}
}

// TestTheNodesOwnCertificate: a machine that has lost its file, and starts in 1970, can reach servers by the time that its own
// certificate proves. That ends when the certificate is replaced.
func TestTheNodesOwnCertificate(t *testing.T) {
	c := NewCertClock(t.TempDir(), ends.Clock{OfDay: func() time.Time { return time.Unix(0, 0) }})
	c.Holds(serverFrom(t, trueTime.Add(-time.Minute)).Leaf)
	if err := connectTo(t, c, serverFrom(t, trueTime)); err == nil {
		t.Error("a server's certificate from after the node's own is believed")
	}
	if err := connectTo(t, c, serverFrom(t, trueTime.Add(-time.Hour))); err != nil {
		t.Error(err)
	}
	c.Holds(serverFrom(t, trueTime.Add(-2*time.Hour)).Leaf)
	if want := trueTime.Add(-time.Hour); !c.Now().Equal(want) {
		t.Errorf("the time is %v; want %v, of the certificate that was verified", c.Now(), want)
	}
}

// A file that is damaged or can't be written leaves the machine's clock.
func TestBadFile(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, fileName), []byte("2099"), 0o600); err != nil {
		t.Fatal(err)
	}
	now := trueTime
	machine := ends.Clock{OfDay: func() time.Time { return now }}
	for _, c := range []*CertClock{NewCertClock(dir, machine), NewCertClock(filepath.Join(dir, "missing"), machine)} {
		if !c.Now().Equal(trueTime) {
			t.Errorf("the time is %v", c.Now())
		}
		if err := connectTo(t, c, serverFrom(t, trueTime.Add(-time.Minute))); err != nil {
			t.Error(err)
		}
	}
}
