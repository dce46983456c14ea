package pool

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"yurtcoordinator/internal/pool/pooltest"
)

// TestTheHandshakeFollowsTheAuthorities: a new authority's clients come in without a restart, and those of one that is gone do
// not.
func TestTheHandshakeFollowsTheAuthorities(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "clients")
	tell := func(authorities ...*pooltest.Authority) {
		t.Helper()
		var bundle []byte
		for _, a := range authorities {
			bundle = slices.Concat(bundle, a.Pem)
		}
		if err := errors.Join(os.WriteFile(file+".new", bundle, 0o600), os.Rename(file+".new", file)); err != nil {
			t.Fatal(err)
		}
	}
	before, after := pooltest.NewAuthority(t, "before"), pooltest.NewAuthority(t, "after")
	tell(before)
	c := start(t, func(config *Config) { config.ClientCAFile = file })
	asks := func(of *pooltest.Authority) error {
		client := c.http(t, of.Issue(t, pooltest.Node("n1"), pooltest.Tomorrow()).TLS(t))
		defer client.CloseIdleConnections()
		code, _, err := getAt(t, client, c.address, "/api")
		if err == nil && code != http.StatusOK {
			err = fmt.Errorf("code %d", code)
		}
		return err
	}
	comesIn := func(what string, of *pooltest.Authority) {
		t.Helper()
		allowed(t, what, eventually(t.Context(), func() error { return asks(of) }))
	}
	comesIn("a client of the first authority", before)
	c.shutOut(t, "a client of the next", badCertificate, after.Issue(t, pooltest.Node("n1"), pooltest.Tomorrow()).TLS(t))
	tell(before, after)
	comesIn("a client of the next", after)
	comesIn("a client of the first, beside the next", before)
	tell(after)
	allowed(t, "the first authority's end", eventually(t.Context(), func() error {
		if asks(before) == nil {
			return errors.New("its clients still come in")
		}
		return nil
	}))
	c.shutOut(t, "a client of the first", badCertificate, before.Issue(t, pooltest.Node("n1"), pooltest.Tomorrow()).TLS(t))
	comesIn("a client of the next, alone", after)
}

// TestStrangersHoldNothing opens more connections than may wait, from several addresses, and on the port for probes: at all times
// a node and a probe are served, and when the strangers' time is up, nothing is left of them. It is not parallel, since it counts
// goroutines.
func TestStrangersHoldNothing(t *testing.T) {
	c := start(t, nil)
	good := c.ca.Issue(t, pooltest.Node("n1"), pooltest.Tomorrow()).TLS(t)
	served := func(when string) {
		t.Helper()
		began := time.Now()
		client := c.http(t, good)
		defer client.CloseIdleConnections()
		if code, body := c.get(t, client, "/api"); code != http.StatusOK {
			t.Errorf("a node, %s: %d %s", when, code, body)
		}
		if code, body := c.probe(t, "/livez"); code != http.StatusOK {
			t.Errorf("a probe, %s: %d %s", when, code, body)
		}
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("it took %s %s", took, when)
		}
	}
	served("before")
	before := runtime.NumGoroutine()
	var idle []net.Conn
	for i := range 12 {
		dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 1, byte(i+1))}}
		for j := range 100 {
			conn, err := dialer.DialContext(t.Context(), "tcp", c.address)
			if err != nil {
				t.Fatal(err)
			}
			if j%2 == 0 { // the beginning of a handshake
				_, _ = io.WriteString(conn, "\x16\x03\x01\x02\x00\x01")
			}
			idle = append(idle, conn)
		}
	}
	for range 2 * maxProbes {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", c.probes)
		if err != nil {
			t.Fatal(err)
		}
		idle = append(idle, conn)
	}
	// A handshake has two goroutines. Those on the port for probes come from this process itself, which is not bounded.
	if n, most := runtime.NumGoroutine()-before, 2*maxHandshakes+2*2*maxProbes+50; n > most {
		t.Errorf("%d goroutines more, of %d strangers; want at most %d", n, len(idle), most)
	}
	served("beside strangers")
	allowed(t, "the strangers' end", eventually(t.Context(), func() error {
		if n := runtime.NumGoroutine() - before; n > 2*2*maxProbes+50 {
			return fmt.Errorf("%d goroutines more", n)
		}
		return nil
	}))
	for _, conn := range idle {
		_ = conn.Close()
	}
}
