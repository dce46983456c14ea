package upstream

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"yurtcoordinator/internal/ends"
	"yurtcoordinator/internal/hub/link"
)

// Config says where an API server is and with what credentials to reach it.
type Config struct {
	// Name names the server ("cloud", "coordinator") in logs, metrics and errors. Required.
	Name string
	// Servers are the https addresses of the API server, between 1 and 16. All are equal; the hub begins with the first. If an
	// address has a path, each request's path is appended to it.
	Servers []*url.URL
	// ServerName is the name in the servers' certificates; empty means the host in each one's address.
	ServerName string
	// CAFile, CertFile and KeyFile are PEM files. They hold the authorities that may sign the server's certificate, the node's
	// client certificate, and its key. One file may hold both certificate and key. Run reads the files again when they change.
	// All are required, except CAFile if CA is set.
	CAFile, CertFile, KeyFile string
	// CA, if not nil, returns the PEM bundle to use instead of CAFile. While the bundle is empty, no server is trusted.
	CA func() []byte
	// Address, if not nil, returns the server's present address, HOST:PORT. The address in Servers then only names the server.
	Address func() (string, error)
	// CoreRead is the path of a cheap GET that an API server can answer only if it and its storage work. While a link is
	// failing, the hub repeats this GET to notice when the failure is over. Empty means that links never count as failing.
	CoreRead string
	// Link says how fast links are judged: link.Standard.
	Link link.Timing
	// DialContext opens TCP connections; nil means Dial.
	DialContext func(ctx context.Context, network, addr string) (net.Conn, error)
	// Addresses, if not nil, asks the name server which addresses a server, HOST:PORT, has now. followed is false if the server
	// has no name to follow. Connections to an address that the name has lost are drained and then reset.
	Addresses func(ctx context.Context, server string) (now []netip.Addr, followed bool, err error)
	// Detour, if not nil, is another way to the servers, used while none answers over the node's own line.
	Detour *Detour
	// addresses is the timing for following names; zero means followed.
	addresses addressTiming
	// Ends are this machine's clocks and random numbers.
	Ends ends.Ends
	// CertificateTime, if not nil, is the clock by which servers' certificates are checked; nil means the system's clock. The
	// Upstream tells it the node's own certificate (Holds), and each connection whose server was verified (Verified).
	CertificateTime interface {
		Now() time.Time
		Holds(own *x509.Certificate)
		Verified(state tls.ConnectionState) error
	}
	// Metrics, if not nil, is where metrics are registered, with the constant label upstream=Name.
	Metrics prometheus.Registerer
}

const maxServers = 16

func (c Config) validate() error {
	if c.Name == "" {
		return errors.New("upstream: Config.Name is required")
	}
	if len(c.Servers) == 0 || len(c.Servers) > maxServers {
		return fmt.Errorf("upstream %s: %d server addresses given, want 1 to %d", c.Name, len(c.Servers), maxServers)
	}
	seen := map[string]bool{}
	for _, s := range c.Servers {
		if s == nil || s.Scheme != "https" || s.Hostname() == "" || s.RawQuery != "" || s.Fragment != "" || s.User != nil {
			return fmt.Errorf("upstream %s: server address %v is not of the form https://HOST[:PORT][/PATH]",
				c.Name, s.Redacted())
		}
		at := s.Host + strings.TrimSuffix(s.EscapedPath(), "/")
		if seen[at] {
			return fmt.Errorf("upstream %s: server address %s is given twice", c.Name, at)
		}
		seen[at] = true
	}
	for _, f := range []struct{ name, path string }{
		{"CA", c.CAFile}, {"client certificate", c.CertFile}, {"client key", c.KeyFile},
	} {
		if f.path == "" && (f.name != "CA" || c.CA == nil) {
			return fmt.Errorf("upstream %s: no %s file is given", c.Name, f.name)
		}
	}
	return nil
}
