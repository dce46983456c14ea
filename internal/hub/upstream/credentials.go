package upstream

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"time"

	"k8s.io/klog/v2"
)

// pollCredentials is the time between two reads of the credential files. A delay of seconds does not matter, because kubelet
// renews its certificate with at least a tenth of its life left.
const pollCredentials = 5 * time.Second

// Credentials are what the hub verifies a server by, and what it shows to the server.
type Credentials struct {
	// Roots are the authorities that may have signed the server's certificate. Now is the clock by which the certificate is
	// checked; nil means the system's clock.
	Roots *x509.CertPool
	Now   func() time.Time
	// Verified is called with each connection whose server was verified, and may refuse it; nil means that nothing is called.
	Verified func(tls.ConnectionState) error
	// Client is the node's certificate with its key.
	Client tls.Certificate

	digest [sha256.Size]byte // of the files
}

// loadCredentials reads the three files. A half-written file does not parse or does not match, which is an error.
func (c Config) loadCredentials() (*Credentials, error) {
	var contents [3][]byte
	sum := sha256.New()
	ca := func() ([]byte, error) { return os.ReadFile(c.CAFile) }
	if c.CA != nil {
		ca = func() ([]byte, error) { return c.CA(), nil }
	}
	for i, read := range []func() ([]byte, error){
		ca, func() ([]byte, error) { return os.ReadFile(c.CertFile) }, func() ([]byte, error) { return os.ReadFile(c.KeyFile) },
	} {
		data, err := read()
		if err != nil {
			return nil, fmt.Errorf("upstream %s: credentials: %w", c.Name, err)
		}
		contents[i] = bytes.TrimSpace(data)
		each := sha256.Sum256(contents[i])
		sum.Write(each[:])
	}
	loaded := &Credentials{Roots: x509.NewCertPool()}
	sum.Sum(loaded.digest[:0])
	if !loaded.Roots.AppendCertsFromPEM(contents[0]) && (c.CA == nil || len(contents[0]) > 0) {
		return nil, fmt.Errorf("upstream %s: CA file %s holds no certificate in PEM form", c.Name, c.CAFile)
	}
	pair, err := tls.X509KeyPair(contents[1], contents[2])
	if err != nil {
		return nil, fmt.Errorf("upstream %s: client certificate %s with key %s: %w", c.Name, c.CertFile, c.KeyFile, err)
	}
	loaded.Client = pair
	if c.CertificateTime != nil {
		c.CertificateTime.Holds(pair.Leaf)
		loaded.Now, loaded.Verified = c.CertificateTime.Now, c.CertificateTime.Verified
	}
	return loaded, nil
}

// tls returns the configuration for connections to host, with the client certificate if asNode.
func (c *Credentials) tls(host string, asNode bool, protocol string) *tls.Config {
	config := &tls.Config{
		MinVersion: tls.VersionTLS12,
		RootCAs:    c.Roots,
		ServerName: host,
		NextProtos: []string{protocol},
		Time:       c.Now, VerifyConnection: c.Verified,
		// Resumption spares a thin link 2 to 4 KB of certificates on every fresh probe.
		ClientSessionCache: tls.NewLRUClientSessionCache(4),
	}
	if protocol == protocolHTTP2 {
		config.NextProtos = append(config.NextProtos, protocolHTTP1)
	}
	if asNode {
		config.Certificates = []tls.Certificate{c.Client}
	}
	return config
}

// log says which certificate is in use; it logs an error if the certificate cannot be valid now.
func (c *Credentials) log(ctx context.Context, now time.Time) {
	leaf := c.Client.Leaf
	log := klog.FromContext(ctx).WithValues("subject", leaf.Subject.String(), "notAfter", leaf.NotAfter)
	switch {
	case now.After(leaf.NotAfter):
		log.Error(nil, "The client certificate has expired: renew it, or set this node's clock")
	case now.Before(leaf.NotBefore):
		log.Error(nil, "The client certificate is not valid yet: check this node's clock", "notBefore", leaf.NotBefore)
	default:
		log.Info("Using client certificate")
	}
}

// followCredentials reads the credential files every pollCredentials, and after a call of Moved, until ctx ends. It installs
// changed credentials. After a call of Moved it also resets all connections.
func (u *Upstream) followCredentials(ctx context.Context) error {
	ticker := time.NewTicker(pollCredentials)
	defer ticker.Stop()
	complaint := ""
	for {
		moved := false
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		case <-u.moved:
			moved = true
		}
		complaint = u.reload(ctx, complaint)
		if moved { // only now: new connections must trust the authority of the new address
			for _, s := range u.servers {
				s.session.Reset(errMoved)
				s.monitor.TrafficFailed(errMoved)
			}
		}
	}
}

// reload installs what has changed. If the files are bad, it keeps the credentials in use and logs each error once.
func (u *Upstream) reload(ctx context.Context, complaint string) string {
	loaded, err := u.cfg.loadCredentials()
	if err != nil {
		if err.Error() != complaint {
			klog.FromContext(ctx).Error(err, "Cannot read changed credentials; the former ones stay in use")
		}
		return err.Error()
	}
	if loaded.digest != u.credentials.Load().digest {
		u.install(loaded)
		loaded.log(ctx, u.cfg.Ends.Wall())
	}
	return ""
}

// install makes later requests use the loaded credentials. Requests in flight stay on their connections until they end.
func (u *Upstream) install(loaded *Credentials) {
	u.installing.Lock()
	defer u.installing.Unlock()
	u.credentials.Store(loaded)
	for _, s := range u.servers {
		s.session.Renew(loaded)
	}
}
