package pool

import (
	"crypto/x509/pkix"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/pool/pooltest"
	"yurtcoordinator/internal/pool/succession"
)

// TestAYoungerCoordinatorEndsAnOlderOne, with the certificates that both have, and without a word to it.
func TestAYoungerCoordinatorEndsAnOlderOne(t *testing.T) {
	ca := pooltest.NewAuthority(t, "pool-ca")
	dir := t.TempDir()
	nodes := pooltest.WriteFile(t, dir, "nodes", []byte("127.0.0.1\n"))
	set := func(generation, address string, port int) func(*Config) {
		own := ca.Issue(t, pkix.Name{CommonName: edge.AppCoordinator, SerialNumber: generation}, pooltest.Tomorrow())
		shown := ca.Issue(t, pkix.Name{CommonName: edge.PoolName("p1").CoordinatorUser()}, pooltest.Tomorrow())
		return func(c *Config) {
			c.TLSCertFile = pooltest.WriteFile(t, dir, generation+".crt", own.Cert)
			c.TLSPrivateKeyFile = pooltest.WriteFile(t, dir, generation+".key", own.Key)
			c.KubeletClientCertificate = pooltest.WriteFile(t, dir, generation+"-client.crt", shown.Cert)
			c.KubeletClientKey = pooltest.WriteFile(t, dir, generation+"-client.key", shown.Key)
			c.ClientCAFile = pooltest.WriteFile(t, dir, "ca.crt", ca.Pem)
			c.PoolCAFile, c.PoolAddressesFile = c.ClientCAFile, nodes
			c.BindAddress, c.SecurePort = address, port
		}
	}
	older := start(t, set("0.5", "127.0.0.1", 0))
	older.meant = succession.ErrSucceeded
	_, text, err := net.SplitHostPort(older.address)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	younger := start(t, set("0.6", "127.0.0.2", port))
	younger.ca = ca
	temporary := filepath.Join(dir, "nodes.new")
	if err := os.WriteFile(temporary, []byte("127.0.0.1\n127.0.0.2\n127.0.0.3\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(temporary, nodes); err != nil { // now both know of each other
		t.Fatal(err)
	}
	if err := older.wait(t); !errors.Is(err, succession.ErrSucceeded) || !strings.Contains(err.Error(), "of generation 0.6") {
		t.Errorf("the older one ended with %v", err)
	}
	if code, body := younger.probe(t, "/readyz"); code != 200 {
		t.Errorf("the younger one: %d %s", code, body)
	}
}
