package front

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"net/http"
	"slices"
	"time"

	"k8s.io/client-go/transport"
	"k8s.io/client-go/util/keyutil"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/hub/identity"
)

// Names of the files.
const (
	FileCertificate = "local.crt"
	FilePair        = "local.pem"
	FileToken       = "kubelet.token"
	fileLock        = "local.lock"
)

// tokenBytes is how much of a token is random.
const tokenBytes = 32

// The certificate is valid at any time that a clock can show.
var (
	notBefore = time.Unix(0, 0).UTC()
	notAfter  = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC) // RFC 5280, 4.1.2.5: it does not end
)

// ProofConfig configures a Proof.
type ProofConfig struct {
	// Dir is the directory of the hub's certificates.
	Dir string
	// Node is named in the certificate, for people.
	Node edge.NodeName
	// Address and Port are where the hub serves.
	Address net.IP
	Port    int
}

// Proof has the secrets by which kubelet and the hub authenticate each other. Make one with KeepProof; with the zero Proof, no
// client is kubelet.
type Proof struct {
	pair  *tls.Certificate
	token []byte
	hosts []string
}

// TLS returns the TLS configuration of the port.
func (p *Proof) TLS() *tls.Config {
	return &tls.Config{Certificates: []tls.Certificate{*p.pair}, MinVersion: tls.VersionTLS13}
}

// Asks returns a function that reads a path of the hub's port as kubelet does, over connections from dial. Any answer is a
// success.
func (p *Proof) Asks(
	dial func(ctx context.Context, network, address string) (net.Conn, error), path string,
) func(ctx context.Context) error {
	roots := x509.NewCertPool()
	roots.AddCert(p.pair.Leaf)
	rt := transport.NewBearerAuthRoundTripper(string(p.token), &http.Transport{
		DialContext: dial, TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS13},
		IdleConnTimeout: time.Minute,
	})
	return func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+p.hosts[0]+path, nil)
		if err != nil {
			return err
		}
		res, err := rt.RoundTrip(req)
		if err != nil {
			return err
		}
		return res.Body.Close()
	}
}

// KeepProof returns the proof in the directory. It creates files that are missing, damaged, or for another address.
func KeepProof(cfg ProofConfig) (*Proof, error) {
	dir := &identity.KeyDir{Path: cfg.Dir}
	unlock, err := dir.Lock(fileLock)
	if err != nil {
		return nil, fmt.Errorf("kubelet's proof: %w", err)
	}
	defer unlock()
	pair, err := keepPair(dir, cfg)
	if err != nil {
		return nil, fmt.Errorf("the certificate of kubelet's port: %w", err)
	}
	token, err := keepToken(dir)
	if err != nil {
		return nil, fmt.Errorf("kubelet's token: %w", err)
	}
	return &Proof{pair, token, hosts(cfg.Address, cfg.Port)}, nil
}

// keepPair returns the certificate with its key. It also keeps FileCertificate, which has the certificate alone, equal to it.
func keepPair(dir *identity.KeyDir, cfg ProofConfig) (*tls.Certificate, error) {
	content, err := identity.ReadKeyFile(dir.File(FilePair))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	pair, err := tls.X509KeyPair(content, content)
	if err != nil || !slices.ContainsFunc(pair.Leaf.IPAddresses, cfg.Address.Equal) {
		if content, err = newPair(cfg); err != nil {
			return nil, err
		}
		if err = dir.Write(FilePair, content); err != nil {
			return nil, err
		}
		if pair, err = tls.X509KeyPair(content, content); err != nil {
			return nil, err
		}
	}
	certificate := encode(pair.Certificate[0])
	if known, err := identity.ReadKeyFile(dir.File(FileCertificate)); err == nil && slices.Equal(known, certificate) {
		return &pair, nil
	}
	return &pair, dir.Write(FileCertificate, certificate)
}

// newPair returns a self-signed certificate, which can't sign others, and its key.
func newPair(cfg ProofConfig) ([]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "yurthub of " + string(cfg.Node)},
		NotBefore: notBefore, NotAfter: notAfter, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames: []string{localName}, IPAddresses: []net.IP{cfg.Address},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	secret, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return nil, err
	}
	return append(encode(der), secret...), nil
}

func encode(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// keepToken returns the token in the file, or makes a new one if the file has no whole token.
func keepToken(dir *identity.KeyDir) ([]byte, error) {
	token, err := identity.ReadKeyFile(dir.File(FileToken))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if err == nil && isToken(token) {
		return token, nil
	}
	random := make([]byte, tokenBytes)
	_, _ = rand.Read(random) // it never fails
	token = base64.RawURLEncoding.AppendEncode(nil, random)
	return token, dir.Write(FileToken, token)
}

func isToken(text []byte) bool {
	random, err := base64.RawURLEncoding.Strict().AppendDecode(nil, text)
	return err == nil && len(random) == tokenBytes
}

// is reports whether a text is the token.
func (p *Proof) is(text string) bool { return subtle.ConstantTimeCompare([]byte(text), p.token) == 1 }
