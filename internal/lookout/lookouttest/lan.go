// Package lookouttest is a LAN for tests on which coordinators serve.
package lookouttest

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"sync"
	"testing"
	"time"

	"yurtcoordinator/internal/edge"
)

// Authority signs what serves on a LAN. Its certificates hold from 1970 on, for centuries.
type Authority struct {
	t    testing.TB
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
}

var (
	beginning = time.Unix(0, 0)
	end       = time.Unix(1<<33, 0)
)

// NewAuthority returns a new one.
func NewAuthority(t testing.TB) *Authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "pool"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: beginning, NotAfter: end,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &Authority{t, key, cert}
}

// PEM is its certificate.
func (a *Authority) PEM() string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw}))
}

// Pool verifies what it has signed.
func (a *Authority) Pool() *x509.CertPool {
	roots := x509.NewCertPool()
	roots.AddCert(a.cert)
	return roots
}

// Sign signs a certificate for a coordinator of the pool, with a serial number in its subject.
func (a *Authority) Sign(pool edge.PoolName, number string, use x509.ExtKeyUsage) tls.Certificate {
	a.t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "c", SerialNumber: number},
		DNSNames: []string{pool.CoordinatorServerName()}, ExtKeyUsage: []x509.ExtKeyUsage{use},
		NotBefore: beginning, NotAfter: end,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, a.key.Public(), a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: a.key}
}

// Coordinator is what a coordinator of the pool serves with. It wants a client certificate, as a real one does.
func (a *Authority) Coordinator(pool edge.PoolName, generation string) *tls.Config {
	a.t.Helper()
	return &tls.Config{
		Certificates: []tls.Certificate{a.Sign(pool, generation, x509.ExtKeyUsageServerAuth)},
		ClientAuth:   tls.RequireAnyClientCert, MinVersion: tls.VersionTLS12,
	}
}

// LAN is what serves at which address. The zero LAN has nothing.
type LAN struct {
	mu     sync.Mutex
	serves map[string]*tls.Config
	dialed []string
	open   int
	most   int
}

// Set has servers serve, and nothing else, and forgets what was dialed. A nil server answers nothing.
func (l *LAN) Set(servers map[string]*tls.Config) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.serves, l.dialed, l.most = servers, nil, 0
}

// Dialed returns the addresses that were dialed since Set, and how many connections were open at once.
func (l *LAN) Dialed() (addresses []string, most int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dialed, l.most
}

// Dial connects to what serves at an address.
func (l *LAN) Dial(ctx context.Context, _, address string) (net.Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dialed = append(l.dialed, address)
	config, ok := l.serves[address]
	if !ok {
		return nil, errors.New("connection refused")
	}
	l.open++
	l.most = max(l.most, l.open)
	near, far := net.Pipe()
	go func() {
		defer far.Close()
		if config == nil {
			<-ctx.Done()
		} else if tls.Server(far, config).HandshakeContext(ctx) == nil {
			_, _ = far.Read(make([]byte, 1))
		}
	}()
	return &conn{Conn: near, closed: sync.OnceFunc(func() {
		l.mu.Lock()
		l.open--
		l.mu.Unlock()
	})}, nil
}

// conn tells when it is closed.
type conn struct {
	net.Conn
	closed func()
}

func (c *conn) Close() error {
	c.closed()
	return c.Conn.Close()
}
