package upstream

import (
	"crypto/tls"
	"crypto/x509"
	"strings"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"yurtcoordinator/internal/ends"
	"yurtcoordinator/internal/hub/identity"
)

// fileName is the file in NewCertClock's directory. It holds one time, in RFC 3339.
const fileName = "verified-not-before"

// CertClock is the clock by which the hub checks servers' certificates (see the package comment). It is safe for concurrent use.
type CertClock struct {
	dir   identity.KeyDir
	clock ends.Clock

	mu     sync.Mutex
	latest time.Time // zero means that none was verified
	own    time.Time // of the node's own certificate; zero means unknown

	writing sync.Mutex // keeps the file's writes in order; taken before mu
}

// NewCertClock returns a CertClock that has its memory in a file in dir, and reads it now. machine is this machine's clock.
func NewCertClock(dir string, machine ends.Clock) *CertClock {
	c := &CertClock{dir: identity.KeyDir{Path: dir}, clock: machine}
	c.latest = c.load()
	return c
}

// Holds records the node's own certificate, which one of the servers' authorities has signed.
func (c *CertClock) Holds(own *x509.Certificate) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.own = own.NotBefore
}

// Now returns the latest of three times: this machine's clock, the NotBefore of the node's own certificate, and the latest
// NotBefore of a verified server certificate.
func (c *CertClock) Now() time.Time {
	now := c.clock.Wall()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.own.After(now) {
		now = c.own
	}
	if c.latest.After(now) {
		return c.latest
	}
	return now
}

// load reads the file. An unreadable file counts as missing.
func (c *CertClock) load() time.Time {
	content, err := identity.ReadKeyFile(c.dir.File(fileName))
	if err != nil || len(content) == 0 {
		return time.Time{}
	}
	found, err := time.Parse(time.RFC3339, strings.TrimSpace(string(content)))
	if err != nil {
		klog.Background().Error(err, "Not read: the time of the newest certificate of a server; the machine's clock counts",
			"file", c.dir.File(fileName))
		return time.Time{}
	}
	return found
}

// Verified records a verified server's certificate. It serves as tls.Config.VerifyConnection, and never refuses a connection.
func (c *CertClock) Verified(state tls.ConnectionState) error {
	if len(state.VerifiedChains) == 0 || len(state.VerifiedChains[0]) == 0 {
		return nil
	}
	notBefore := state.VerifiedChains[0][0].NotBefore
	c.mu.Lock()
	newer := notBefore.After(c.latest)
	if newer {
		c.latest = notBefore
	}
	c.mu.Unlock()
	if newer {
		c.save()
	}
	return nil
}

func (c *CertClock) save() {
	c.writing.Lock()
	defer c.writing.Unlock()
	c.mu.Lock()
	latest := c.latest
	c.mu.Unlock()
	if err := c.dir.Write(fileName, []byte(latest.UTC().Format(time.RFC3339)+"\n")); err != nil {
		klog.Background().Error(err, "Not kept: the time of the newest certificate of a server", "file", c.dir.File(fileName))
	}
}
