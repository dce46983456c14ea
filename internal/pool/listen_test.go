package pool

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestSpread: connections to any of a node's addresses are accepted, and to no other.
func TestSpread(t *testing.T) {
	stays, err := listen(t.Context(), "bind-address", "127.0.0.1", "secure-port", 0)
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(stays.Addr().String())
	s := newSpread(stays)
	reached := func(host string) bool {
		t.Helper()
		c, err := net.Dial("tcp", net.JoinHostPort(host, port))
		if err != nil {
			return false
		}
		defer c.Close()
		accepted, err := s.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer accepted.Close()
		return accepted.RemoteAddr().String() == c.LocalAddr().String()
	}
	at := func(hosts ...string) error {
		var all []netip.Addr
		for _, h := range hosts {
			all = append(all, netip.MustParseAddr(h))
		}
		return s.listenAt(t.Context(), all)
	}
	for _, step := range []struct {
		at      []string
		fails   bool
		reached []string
		unheard []string
	}{
		{nil, false, []string{"127.0.0.1"}, []string{"127.0.0.2", "127.0.0.3"}},
		{[]string{"127.0.0.1", "127.0.0.2"}, false, []string{"127.0.0.1", "127.0.0.2"}, []string{"127.0.0.3"}},
		{[]string{"127.0.0.2", "127.0.0.3"}, false, []string{"127.0.0.1", "127.0.0.2", "127.0.0.3"}, nil},
		{[]string{"192.0.2.1", "127.0.0.3"}, true, []string{"127.0.0.1", "127.0.0.3"}, []string{"127.0.0.2"}},
		// another machine's
		{nil, false, []string{"127.0.0.1"}, []string{"127.0.0.3"}},
	} {
		if err := at(step.at...); (err != nil) != step.fails {
			t.Errorf("at %v: %v", step.at, err)
		}
		if got := len(s.further()); got != len(step.reached)-1 {
			t.Errorf("at %v: %v are further addresses", step.at, s.further())
		}
		for _, host := range step.reached {
			if !reached(host) {
				t.Errorf("at %v: %s is not reached", step.at, host)
			}
		}
		for _, host := range step.unheard {
			if reached(host) {
				t.Errorf("at %v: %s is reached", step.at, host)
			}
		}
	}
	if err := at("127.0.0.2"); err != nil {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	for _, host := range []string{"127.0.0.1", "127.0.0.2"} {
		if c, err := net.Dial("tcp", net.JoinHostPort(host, port)); err == nil {
			c.Close()
			t.Errorf("%s is reached after the end", host)
		}
	}
	if _, err := s.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept after the end: %v", err)
	}
	if err := s.Close(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a second end: %v", err)
	}
	if err := at("127.0.0.2"); err != nil {
		t.Error(err)
	}
}

// fixed is a listener that accepts nobody.
type fixed struct{ closed chan struct{} }

func (f fixed) Accept() (net.Conn, error) { <-f.closed; return nil, net.ErrClosed }
func (f fixed) Close() error              { close(f.closed); return nil }
func (f fixed) Addr() net.Addr            { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }

// TestSpreadFollowsItsFile: an address that is no address of this machine does not end the coordinator.
func TestSpreadFollowsItsFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "addresses")
	synctest.Test(t, func(t *testing.T) {
		s := newSpread(fixed{make(chan struct{})})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- s.follow(ctx, file) }()
		for _, content := range []string{"", "192.0.2.1\n", "no address\n", strings.Repeat("1.1.1.1\n", maxAddresses+1)} {
			if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * lookForAddresses) // the bubble's time
			select {
			case err := <-ended:
				t.Fatalf("%q ends it: %v", content, err)
			default:
			}
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestAddressesIn(t *testing.T) {
	dir := t.TempDir()
	for content, want := range map[string]int{"": 0, "10.0.0.7\n": 1, "10.0.0.7\nfd00::7\n": 2, "x": -1,
		strings.Repeat("1.1.1.1 ", maxAddresses+1): -1} {
		file := filepath.Join(dir, "file")
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if all, err := addressesIn(file); (err != nil) != (want < 0) || err == nil && len(all) != want {
			t.Errorf("%q: %v, %v", content, all, err)
		}
	}
	if all, err := addressesIn(filepath.Join(dir, "none")); all != nil || err != nil {
		t.Errorf("no file: %v, %v", all, err)
	}
}
