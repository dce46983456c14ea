package upstream

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"yurtcoordinator/internal/hub/link"
)

// Config says where an API server is and with what credentials to reach it.
type Config struct {
	// Name names the server ("cloud", "coordinator") in logs, metrics and errors. Required.
	Name string
	// Servers are the addresses of the API server, https only and without a path. All are equal; the first is
	// preferred. Between 1 and 16.
	Servers []*url.URL
	// CAFile, CertFile and KeyFile are PEM files: the authorities that may sign the server's certificate, and the
	// node's client certificate with its key (which may be one file). Run reads them again when they change. Required.
	CAFile, CertFile, KeyFile string
	// CA, if not nil, returns the PEM bundle to use instead of CAFile; while that is empty, nothing is trusted.
	CA func() []byte
	// Address, if not nil, returns where the server is now, HOST:PORT. The address in Servers is then only its name.
	Address func() (string, error)
	// CoreRead is the path of a cheap GET that an API server can answer only if it and its storage work. While a link is
	// failing, the hub asks it to find out when that is over. Empty: links are never failing.
	CoreRead string
	// Link says how fast links are judged: link.Standard.
	Link link.Timing
	// DialContext opens TCP connections: a net.Dialer with keep-alive and a bound on unacknowledged data.
	DialContext func(ctx context.Context, network, addr string) (net.Conn, error)
	// Clock is where times come from: the system's clock.
	Clock clock.WithTicker
	// CertificateTime, if not nil, is the time by which the server's certificate is checked, and hears of each connection whose
	// server was verified; nil means the system's clock.
	CertificateTime interface {
		Now() time.Time
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
		if s == nil || s.Scheme != "https" || s.Hostname() == "" || (s.Path != "" && s.Path != "/") ||
			s.RawQuery != "" || s.Fragment != "" || s.User != nil {
			return fmt.Errorf("upstream %s: server address %v is not of the form https://HOST[:PORT]",
				c.Name, s.Redacted())
		}
		if seen[s.Host] {
			return fmt.Errorf("upstream %s: server address %s is given twice", c.Name, s.Host)
		}
		seen[s.Host] = true
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
