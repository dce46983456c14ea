// Package certclock tells the time by which a hub checks servers' certificates: the latest of this machine's clock, the NotBefore
// of the node's own certificate, and the latest NotBefore of a server's certificate that it has verified, which it keeps on disk.
//
// A machine without a clock of its own starts where it once was. A certificate that its server got since would then be "not yet
// valid", though this hub has verified it before. A certificate's authority does not sign for the future, so its NotBefore is a
// lower bound of the true time.
//
// Invariants: the time never lies after this machine's clock by more than what a verified certificate, or the node's own, proves.
// A server's certificate is noted only after it was verified by this time, so one from the future is never noted. The node's own
// is not kept: what comes in its place counts. The file is read once and written when a newer certificate was seen; if it can't
// be read or written, the machine's clock counts.
package certclock

import (
	"crypto/tls"
	"crypto/x509"
	"strings"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"yurtcoordinator/internal/ends"
	"yurtcoordinator/internal/hub/keyfile"
)

// fileName is in the directory that Config names. It holds one time, in RFC 3339.
const fileName = "verified-not-before"

// Clock tells that time. It is safe for concurrent use. Make one with New.
type Clock struct {
	dir   keyfile.Dir
	clock ends.Clock

	mu     sync.Mutex
	read   bool
	latest time.Time // zero: none was verified
	own    time.Time // of the node's own certificate; zero: not known

	writing sync.Mutex // keeps the file's writes in order; never taken together with mu
}

// New returns a Clock that keeps what it learns in a directory. c is this machine's clock.
func New(dir string, c ends.Clock) *Clock {
	return &Clock{dir: keyfile.Dir{Path: dir}, clock: c}
}

// Holds takes note of the node's own certificate, which one of the servers' authorities has signed.
func (c *Clock) Holds(own *x509.Certificate) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.own = own.NotBefore
}

// Now returns the latest of this machine's clock, the NotBefore of the node's own certificate, and the latest that was verified.
func (c *Clock) Now() time.Time {
	now := c.clock.Wall()
	c.mu.Lock()
	if c.own.After(now) {
		now = c.own
	}
	c.mu.Unlock()
	if latest := c.known(); latest.After(now) {
		return latest
	}
	return now
}

// known returns the latest NotBefore; the first call reads the file.
func (c *Clock) known() time.Time {
	c.mu.Lock()
	read, latest := c.read, c.latest
	c.mu.Unlock()
	if read {
		return latest
	}
	found := c.load()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.read = true
	if found.After(c.latest) {
		c.latest = found
	}
	return c.latest
}

// load reads the file. What can't be read is as good as nothing.
func (c *Clock) load() time.Time {
	content, err := keyfile.Read(c.dir.File(fileName))
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

// Verified takes note of a connection whose server was verified by this Clock. It is a tls.Config.VerifyConnection, and never
// refuses one.
func (c *Clock) Verified(state tls.ConnectionState) error {
	if len(state.VerifiedChains) == 0 || len(state.VerifiedChains[0]) == 0 {
		return nil
	}
	notBefore := state.VerifiedChains[0][0].NotBefore
	c.known()
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

func (c *Clock) save() {
	c.writing.Lock()
	defer c.writing.Unlock()
	if err := c.dir.Write(fileName, []byte(c.known().UTC().Format(time.RFC3339)+"\n")); err != nil {
		klog.Background().Error(err, "Not kept: the time of the newest certificate of a server", "file", c.dir.File(fileName))
	}
}
