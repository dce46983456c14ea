package succession

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"yurtcoordinator/internal/ends"
	"yurtcoordinator/internal/lookout"
	"yurtcoordinator/internal/lookout/lookouttest"
)

// machine has a coordinator of pool p1 on it, at 10.0.0.2.
type machine struct {
	t     *testing.T
	pool  *lookouttest.Authority
	lan   lookouttest.LAN
	led   atomic.Bool
	said  []netip.Addr // by nodes
	mute  error
	cfg   Config
	ended chan error
}

func newMachine(t *testing.T, generation string) *machine {
	t.Helper()
	dir := t.TempDir()
	m := &machine{t: t, pool: lookouttest.NewAuthority(t)}
	client := m.pool.Sign("p1", "", x509.ExtKeyUsageClientAuth)
	m.cfg = Config{
		CertFile: filepath.Join(dir, "tls.crt"), CAFile: filepath.Join(dir, "ca.crt"),
		AddressesFile: filepath.Join(dir, "nodes"), Port: 10270,
		Nodes:       func(context.Context) ([]netip.Addr, error) { return m.said, m.mute },
		Certificate: func() (*tls.Certificate, error) { return &client, nil },
		Led:         func(context.Context) bool { return m.led.Load() }, Dial: m.lan.Dial,
	}
	m.is(generation)
	m.write(m.cfg.CAFile, m.pool.PEM())
	m.write(m.cfg.AddressesFile, "10.0.0.2\n10.0.0.3\nno address\nfd00::4\n")
	return m
}

func (m *machine) write(file, content string) {
	m.t.Helper()
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		m.t.Fatal(err)
	}
}

// is gives the coordinator a certificate.
func (m *machine) is(generation string) {
	m.t.Helper()
	pair := m.pool.Sign("p1", generation, x509.ExtKeyUsageServerAuth)
	m.write(m.cfg.CertFile, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: pair.Certificate[0]})))
}

// runs has the Succession run until the test ends.
func (m *machine) runs() {
	ctx, cancel := context.WithCancel(m.t.Context())
	m.ended = make(chan error, 1)
	go func() { m.ended <- New(m.cfg).Run(ctx) }()
	m.t.Cleanup(func() {
		cancel()
		synctest.Wait()
	})
}

// after returns what the Succession has ended with after some time, and whether it has.
func (m *machine) after(d time.Duration) (err error, over bool) {
	time.Sleep(d) // of the bubble's clock
	synctest.Wait()
	select {
	case err := <-m.ended:
		return err, true
	default:
		return nil, false
	}
}

func TestASuccessorEndsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t, "0.5")
		m.lan.Set(map[string]*tls.Config{"10.0.0.2:10270": m.pool.Coordinator("p1", "0.5"), "10.0.0.3:10270": nil})
		m.runs()
		if err, over := m.after(time.Minute); over {
			t.Fatalf("it ended by itself: %v", err)
		}
		m.lan.Set(map[string]*tls.Config{
			"10.0.0.2:10270": m.pool.Coordinator("p1", "0.5"), "10.0.0.3:10270": nil,
			"[fd00::4]:10270": m.pool.Coordinator("p1", "0.6"),
		})
		err, over := m.after(3 * lookout.Pause(3, ends.Chance{}))
		if !over || !errors.Is(err, ErrSucceeded) || !strings.Contains(err.Error(), "[fd00::4]:10270, of generation 0.6") {
			t.Fatalf("%v, %v", over, err)
		}
		m.runs() // kubelet starts it again: it ends before it serves for long
		if err, over := m.after(0); !over || !errors.Is(err, ErrSucceeded) {
			t.Errorf("started again: %v, %v", over, err)
		}
		m.lan.Set(nil) // the younger one is dead: better an old one than none
		m.runs()
		if err, over := m.after(time.Minute); over {
			t.Errorf("after the younger one's death: %v", err)
		}
	})
}

// TestASuccessorOnANewNode, which no list of the cloud's names here: the node says where it is. Nodes that can't be read hide
// nobody.
func TestASuccessorOnANewNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, said := range []struct {
			nodes []netip.Addr
			mute  error
			at    string
		}{
			{[]netip.Addr{netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("10.0.0.9")}, nil, "10.0.0.9:10270"},
			{nil, errors.New("the store takes nothing"), "10.0.0.3:10270"},
		} {
			m := newMachine(t, "0.5")
			m.said, m.mute = said.nodes, said.mute
			m.lan.Set(map[string]*tls.Config{said.at: m.pool.Coordinator("p1", "0.6")})
			m.runs()
			if err, over := m.after(3 * lookout.Pause(4, ends.Chance{})); !over || !errors.Is(err, ErrSucceeded) {
				t.Errorf("at %s: %v, %v", said.at, over, err)
			}
		}
	})
}

// TestNobodyElseEndsIt: neither a liar nor a thief, nor a coordinator of another slot, nor itself with a new certificate.
func TestNobodyElseEndsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t, "1.5")
		stranger := lookouttest.NewAuthority(t)
		m.runs()
		for name, server := range map[string]*tls.Config{
			"of another slot": m.pool.Coordinator("p1", "0.9"), "another pool's": m.pool.Coordinator("p2", "1.9"),
			"forged": stranger.Coordinator("p1", "1.9"), "stolen long ago": m.pool.Coordinator("p1", "1.4"),
			"stolen from here": m.pool.Coordinator("p1", "1.5"), "malformed": m.pool.Coordinator("p1", "six"), "silent": nil,
			"of before": m.pool.Coordinator("p1", ""),
		} {
			m.lan.Set(map[string]*tls.Config{
				"10.0.0.3:10270": server, "10.0.0.9:10270": m.pool.Coordinator("p1", "1.9"), // and where no node of the pool is
			})
			if err, over := m.after(3 * lookout.Pause(3, ends.Chance{})); over {
				t.Fatalf("%s: %v", name, err)
			}
			if dialed, _ := m.lan.Dialed(); len(dialed) == 0 {
				t.Errorf("%s: nobody looked", name)
			}
		}
		m.is("1.6")
		m.lan.Set(map[string]*tls.Config{"10.0.0.2:10270": m.pool.Coordinator("p1", "1.6")})
		if err, over := m.after(3 * lookout.Pause(3, ends.Chance{})); over {
			t.Errorf("it takes itself for younger: %v", err)
		}
	})
}

// TestOneOfBefore there were generations has a successor as any other.
func TestOneOfBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t, "")
		m.lan.Set(map[string]*tls.Config{"10.0.0.3:10270": m.pool.Coordinator("p1", "0.1")})
		m.runs()
		if err, over := m.after(lookout.Patience); !over || !errors.Is(err, ErrSucceeded) {
			t.Errorf("%v, %v", over, err)
		}
	})
}

// TestWhoIsLedLooksSeldom, and still looks.
func TestWhoIsLedLooksSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t, "0.5")
		m.led.Store(true)
		m.runs()
		if _, over := m.after(time.Second); over {
			t.Fatal("it ended")
		}
		m.lan.Set(map[string]*tls.Config{"10.0.0.3:10270": m.pool.Coordinator("p1", "0.6")})
		if err, over := m.after(whileLed - 2*time.Second); over {
			t.Errorf("it looked too early: %v", err)
		}
		if err, over := m.after(4 * time.Second); !over || !errors.Is(err, ErrSucceeded) {
			t.Errorf("%v, %v", over, err)
		}
	})
}

// TestFilesThatComeLater: without one it goes on, and looks once it is there.
func TestFilesThatComeLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, missing := range []func(*machine) string{
			func(m *machine) string { return m.cfg.AddressesFile },
			func(m *machine) string { return m.cfg.CAFile },
			func(m *machine) string { return m.cfg.CertFile },
		} {
			m := newMachine(t, "0.5")
			m.lan.Set(map[string]*tls.Config{"10.0.0.3:10270": m.pool.Coordinator("p1", "0.6")})
			content, err := os.ReadFile(missing(m))
			if err := errors.Join(err, os.Remove(missing(m))); err != nil {
				t.Fatal(err)
			}
			m.runs()
			if err, over := m.after(time.Minute); over {
				t.Errorf("without %s: %v", missing(m), err)
			}
			m.write(missing(m), string(content))
			if err, over := m.after(2 * lookout.Pause(3, ends.Chance{})); !over || !errors.Is(err, ErrSucceeded) {
				t.Errorf("with %s: %v, %v", missing(m), over, err)
			}
		}
		m := newMachine(t, "0.5") // the list may be missing: nodes say where they are
		m.said = []netip.Addr{netip.MustParseAddr("10.0.0.9")}
		m.lan.Set(map[string]*tls.Config{"10.0.0.9:10270": m.pool.Coordinator("p1", "0.6")})
		if err := os.Remove(m.cfg.AddressesFile); err != nil {
			t.Fatal(err)
		}
		m.runs()
		if err, over := m.after(2 * lookout.Pause(1, ends.Chance{})); !over || !errors.Is(err, ErrSucceeded) {
			t.Errorf("without a list of addresses that nodes name: %v, %v", over, err)
		}
		m = newMachine(t, "0.5")
		m.cfg.AddressesFile = ""
		m.lan.Set(map[string]*tls.Config{"10.0.0.3:10270": m.pool.Coordinator("p1", "0.6")})
		m.runs()
		if err, over := m.after(time.Minute); over {
			t.Errorf("without a list of addresses: %v", err)
		}
	})
}
