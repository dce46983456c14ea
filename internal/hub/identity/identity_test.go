package identity

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"

	"yurtcoordinator/internal/live"
	"yurtcoordinator/internal/run"
)

func TestBootstrap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCloud(t, newAuthority(t, "kubernetes"))
		n := newNode(t, c, nil)
		if err := n.Ensure(n.ctx); err != nil {
			t.Fatal(err)
		}
		if got := n.leaf().Subject.String(); got != "CN=system:node:n1,O=system:nodes" {
			t.Errorf("the certificate is for %s", got)
		}
		if got := c.created(); !slices.Equal(got, []string{"system:bootstrap:abcdef"}) {
			t.Errorf("requests by %q", got)
		}
		ca, _, _ := n.Files()
		if content, err := os.ReadFile(ca); err != nil || string(content) != string(c.ca.pem) {
			t.Errorf("ca.crt: %v", err)
		}
		err := filepath.WalkDir(n.cfg.Dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := d.Info()
			want := fs.FileMode(0o600)
			if d.IsDir() {
				want = 0o700
			}
			if err == nil && info.Mode().Perm() != want {
				t.Errorf("%s is %s", path, info.Mode())
			}
			if strings.HasSuffix(path, ".new") || strings.HasSuffix(path, ".request.key") {
				t.Errorf("%s was left", path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		// A second start asks nobody, and needs no token.
		before := c.count(&c.calls)
		c.change(func() { c.cut = true })
		again := newNode(t, c, func(cfg *Config) { cfg.Dir = n.cfg.Dir })
		if err := os.Remove(again.cfg.BootstrapFile); err != nil {
			t.Fatal(err)
		}
		if err := again.Ensure(again.ctx); err != nil || c.count(&c.calls) != before {
			t.Errorf("second start: %v, %d requests", err, c.count(&c.calls)-before)
		}
	})
}

// TestOtherWays: a certificate comes from below a path, from servers with another name, and by whatever way there is.
func TestOtherWays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCloud(t, newAuthority(t, "kubernetes"))
		c.below = "/k8s/clusters/c1"
		var asked []string
		n := newNode(t, c, func(cfg *Config) {
			cfg.Servers = servers("https://10.0.0.9:6443/k8s/clusters/c1")
			cfg.ServerName = "cloud"
			cfg.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
				if until, bounded := ctx.Deadline(); !bounded || time.Until(until) > dialFor {
					t.Errorf("a dial may take until %v", until)
				}
				asked = append(asked, address)
				return c.dial(ctx, network, address)
			}
		})
		other, err := New(n.cfg)
		if err != nil {
			t.Fatal(err)
		}
		n.dial = other.dial
		if err := n.Ensure(n.ctx); err != nil {
			t.Fatal(err)
		}
		if n.leaf() == nil || len(asked) == 0 || asked[0] != "10.0.0.9:6443" {
			t.Errorf("the node was at %v", asked)
		}
	})
}

// TestRefusals: what must not become a certificate, with words that say what to do.
func TestRefusals(t *testing.T) {
	issues := func(change func(*x509.Certificate)) func(*testing.T, *cloud, *Config) {
		return func(t *testing.T, c *cloud, _ *Config) {
			c.issue = func(_ *certificatesv1.CertificateSigningRequest, x *x509.CertificateRequest) []byte {
				template := nodeCert(time.Now(), time.Now().Add(year))
				change(template)
				return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.ca.sign(t, template, x.PublicKey).Raw})
			}
		}
	}
	for name, tt := range map[string]struct {
		set      func(*testing.T, *cloud, *Config)
		want     string
		requests int // the most that may go to the cloud's API for certificates
		secrets  bool
	}{
		"no token": {func(_ *testing.T, _ *cloud, cfg *Config) { cfg.BootstrapFile += "-none" },
			"kubeadm token create", 0, false},
		"malformed token": {func(t *testing.T, _ *cloud, cfg *Config) { write(t, cfg.BootstrapFile, "abcdef:"+tokenSecret) },
			"neither a bootstrap token", 0, false},
		"unknown token": {func(_ *testing.T, c *cloud, _ *Config) { c.signature = "" },
			"does not know the bootstrap token abcdef", 0, false},
		"wrong token": {func(t *testing.T, _ *cloud, cfg *Config) { write(t, cfg.BootstrapFile, "abcdef.ffffffffffffffff") },
			"not signed with the bootstrap token abcdef", 0, false},
		"wrong signature": {func(_ *testing.T, c *cloud, _ *Config) { c.info += " " },
			"not signed with the bootstrap token", 0, false},
		"expired token": {func(_ *testing.T, c *cloud, _ *Config) { c.tokens = nil },
			"with the bootstrap token abcdef is refused", 0, true},
		"wrong hash": {func(_ *testing.T, _ *cloud, cfg *Config) {
			cfg.CACertHashes = []string{"sha256:" + strings.Repeat("0a", 32)}
		},
			"not among the CA hashes given", 0, false},
		"no hash": {func(_ *testing.T, _ *cloud, cfg *Config) { cfg.CACertHashes = nil }, "no CA hash is given", 0, false},
		"man in the middle who passes on what he reads": {func(t *testing.T, c *cloud, _ *Config) {
			c.show(newAuthority(t, "man in the middle"))
		}, "cannot be trusted", 0, false},
		"man in the middle who knows the token": {func(t *testing.T, c *cloud, _ *Config) {
			other := newAuthority(t, "man in the middle")
			c.setInfo(other.pem)
			c.show(other)
		}, "not among the CA hashes given", 0, false},
		"man in the middle who adds his authority": {func(t *testing.T, c *cloud, _ *Config) {
			other := newAuthority(t, "man in the middle")
			c.setInfo(append(slices.Clone(c.ca.pem), other.pem...))
			c.show(other)
		}, "cannot be trusted", 0, false},
		"denied": {func(_ *testing.T, c *cloud, _ *Config) {
			c.approve = func(*certificatesv1.CertificateSigningRequest) certificatesv1.RequestConditionType {
				return certificatesv1.CertificateDenied
			}
		}, "is denied", ensureTries, true},
		"never approved": {func(_ *testing.T, c *cloud, _ *Config) {
			c.approve = func(*certificatesv1.CertificateSigningRequest) certificatesv1.RequestConditionType { return "" }
		}, "waits for approval: kubectl certificate approve yurthub-client-", 1, true},
		"never signed": {func(_ *testing.T, c *cloud, _ *Config) {
			c.issue = func(*certificatesv1.CertificateSigningRequest, *x509.CertificateRequest) []byte { return nil }
		}, "nobody signs it", 1, true},
		"garbage": {func(_ *testing.T, c *cloud, _ *Config) {
			c.issue = func(*certificatesv1.CertificateSigningRequest, *x509.CertificateRequest) []byte {
				return []byte("garbage")
			}
		}, "no certificate in PEM form", ensureTries, true},
		"another name": {issues(func(x *x509.Certificate) { x.Subject.CommonName = "system:node:n2" }),
			`is for "system:node:n2"`, ensureTries, true},
		"another group": {issues(func(x *x509.Certificate) { x.Subject.Organization = nil }),
			"not for the group", ensureTries, true},
		"an authority": {issues(func(x *x509.Certificate) { x.IsCA = true }),
			"an authority's", ensureTries, true},
		"another use": {issues(func(x *x509.Certificate) {
			x.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
		}), "not for the use", ensureTries, true},
		"expired": {issues(func(x *x509.Certificate) {
			x.NotBefore, x.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(-time.Second)
		}), "ended at", ensureTries, true},
		"begins in an hour": {issues(func(x *x509.Certificate) {
			x.NotBefore = time.Now().Add(time.Hour)
		}), "this node's clock says", ensureTries, true},
		"another's key": {func(t *testing.T, c *cloud, _ *Config) {
			other, _, _ := newKey()
			c.issue = func(*certificatesv1.CertificateSigningRequest, *x509.CertificateRequest) []byte {
				x := c.ca.sign(t, nodeCert(time.Now(), time.Now().Add(year)), other.Public())
				return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: x.Raw})
			}
		}, "for another key", ensureTries, true},
		"signed by another authority": {func(t *testing.T, c *cloud, _ *Config) {
			other := newAuthority(t, "another")
			c.issue = func(_ *certificatesv1.CertificateSigningRequest, x *x509.CertificateRequest) []byte {
				signed := other.sign(t, nodeCert(time.Now(), time.Now().Add(year)), x.PublicKey)
				return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: signed.Raw})
			}
		}, "does not accept the certificate that it issued", ensureTries, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCloud(t, newAuthority(t, "kubernetes"))
				n := newNode(t, c, func(cfg *Config) { tt.set(t, c, cfg) })
				began := time.Now()
				err := n.Ensure(n.ctx)
				if err == nil || !strings.Contains(err.Error(), tt.want) {
					t.Fatalf("Ensure: %v; want %q", err, tt.want)
				}
				n.noSecret("error", err.Error())
				if strings.ContainsAny(err.Error(), "\n") {
					t.Errorf("not one line: %v", err)
				}
				if !strings.Contains(n.Report().Client.Problem, tt.want) {
					t.Errorf("Status says %q", n.Report().Client.Problem)
				}
				if n.content() != "" {
					t.Error("a certificate was written")
				}
				if took := time.Since(began); took > 10*time.Minute {
					t.Errorf("it took %s", took)
				}
				if got := len(c.created()); got > tt.requests {
					t.Errorf("%d requests for a certificate, want at most %d", got, tt.requests)
				}
				if sent := c.count(&c.secrets); sent > 0 != tt.secrets {
					t.Errorf("the token was sent %d times", sent)
				}
			})
		})
	}
}

// TestExpiredWhileCut: a node starts with what it has, and comes back by itself or with a new token.
func TestExpiredWhileCut(t *testing.T) {
	for name, tokenThere := range map[string]bool{"with a token": true, "without one": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCloud(t, newAuthority(t, "kubernetes"))
				n := newNode(t, c, nil)
				if err := n.Ensure(n.ctx); err != nil {
					t.Fatal(err)
				}
				if !tokenThere {
					if err := os.Remove(n.cfg.BootstrapFile); err != nil {
						t.Fatal(err)
					}
				}
				c.change(func() { c.cut = true })
				time.Sleep(2 * year)
				began, old := time.Now(), n.content()
				if err := n.Ensure(n.ctx); err != nil || time.Since(began) > expiredFor+time.Second {
					t.Fatalf("Ensure: %v after %s", err, time.Since(began))
				}
				if n.content() != old {
					t.Error("the old certificate has gone")
				}
				stop := n.start()
				defer stop()
				before := c.count(&c.dials)
				time.Sleep(8 * time.Hour)
				if dials := c.count(&c.dials) - before; dials < 8*20 || dials > 8*130 {
					t.Errorf("%d connections tried in eight hours", dials)
				}
				if problem := n.Report().Client.Problem; !strings.HasPrefix(problem, "the certificate expired at 2000-12-31") ||
					!strings.Contains(problem, "cannot be reached") && !strings.Contains(problem, "timeout") {
					t.Errorf("Status says %q", problem)
				}
				c.change(func() { c.cut = false })
				if !tokenThere {
					time.Sleep(8 * time.Hour)
					problem := n.Report().Client.Problem
					if !strings.Contains(problem, "present certificate is refused") ||
						!strings.Contains(problem, "kubeadm token create and put it there") {
						t.Errorf("Status says %q", problem)
					}
					if n.content() != old || len(c.created()) != 1 {
						t.Error("something was written without a token")
					}
					write(t, n.cfg.BootstrapFile, token)
				}
				time.Sleep(pauseUnreachable + poll)
				if left := time.Until(n.leaf().NotAfter); left < year/2 {
					t.Errorf("%s left of the certificate; status %+v", left, n.Report().Client)
				}
				if s := n.Report().Client; s.Problem != "" || !s.Since.IsZero() || s.Waiting != "" {
					t.Errorf("Status %+v", s)
				}
			})
		})
	}
}

// TestRenewal: by the present certificate, with a new key, in time, while others read the file.
func TestRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCloud(t, newAuthority(t, "kubernetes"))
		c.life = 6 * time.Hour
		n := newNode(t, c, nil)
		if err := n.Ensure(n.ctx); err != nil {
			t.Fatal(err)
		}
		write(t, n.cfg.BootstrapFile, "")
		stop := n.start()
		ctx, cancel := context.WithCancel(t.Context())
		var reading sync.WaitGroup
		reading.Go(func() {
			_, cert, key := n.Files()
			for run.Pause(ctx, time.Minute) == nil {
				if _, err := tls.LoadX509KeyPair(cert, key); err != nil {
					t.Error(err)
				}
			}
		})
		first := n.leaf()
		life := first.NotAfter.Sub(first.NotBefore)
		time.Sleep(time.Until(first.NotBefore.Add(life*2/3 - time.Minute)))
		if !n.leaf().Equal(first) {
			t.Error("renewed before 2/3 of its life")
		}
		time.Sleep(time.Until(first.NotBefore.Add(life*9/10 + time.Minute)))
		second := n.leaf()
		if second.Equal(first) {
			t.Error("not renewed at 9/10 of its life")
		}
		if string(first.RawSubjectPublicKeyInfo) == string(second.RawSubjectPublicKeyInfo) {
			t.Error("the key is the same")
		}
		time.Sleep(18 * time.Hour)
		cancel()
		reading.Wait()
		stop()
		users := c.created()
		if len(users) < 4 || len(users) > 7 {
			t.Errorf("%d requests in 24 hours of certificates of six", len(users))
		}
		for _, user := range users[1:] {
			if user != "system:node:n1" {
				t.Errorf("renewed by %s", user)
			}
		}
	})
}

// TestClocksApart: nobody dates back, and the node's clock is off.
func TestClocksApart(t *testing.T) {
	for _, by := range []time.Duration{-5 * time.Minute, 5 * time.Minute} {
		t.Run(by.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCloud(t, newAuthority(t, "kubernetes"))
				c.issue = func(_ *certificatesv1.CertificateSigningRequest, x *x509.CertificateRequest) []byte {
					issued := c.ca.sign(t, nodeCert(time.Now(), time.Now().Add(time.Hour)), x.PublicKey)
					return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: issued.Raw})
				}
				n := newNode(t, c, func(c *Config) {
					c.Ends.OfDay = func() time.Time { return time.Now().Add(by) }
				})
				if err := n.Ensure(n.ctx); err != nil {
					t.Fatal(err)
				}
				stop := n.start()
				time.Sleep(24 * time.Hour)
				stop()
				for i, user := range c.created() {
					if i > 0 && user != "system:node:n1" {
						t.Errorf("request %d by %s: a certificate expired", i, user)
					}
				}
				if got := len(c.created()); got < 24 || got > 24*2 {
					t.Errorf("%d requests in a day of certificates of an hour", got)
				}
			})
		})
	}
}

// TestBrokenDisk: whatever step fails, the old certificate stays or the new one is whole, and the cloud is not asked twice.
func TestBrokenDisk(t *testing.T) {
	for _, step := range []string{"create", "write", "sync", "rename", "sync directory"} {
		for skip := range 3 { // writing the key of the request, the certificate, and taking the key away
			t.Run(fmt.Sprintf("%s %d", step, skip), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c := newCloud(t, newAuthority(t, "kubernetes"))
					n := newNode(t, c, nil)
					if err := n.Ensure(n.ctx); err != nil {
						t.Fatal(err)
					}
					old, seen := n.content(), 0
					time.Sleep(year * 95 / 100)
					n.disk.Before = func(s string) error {
						if s != step {
							return nil
						}
						if seen++; seen > skip {
							return syscall.ENOSPC
						}
						return nil
					}
					err := n.attempt(n.ctx, n.client)
					if seen <= skip {
						if err != nil || n.content() == old {
							t.Fatalf("nothing was broken: %v", err)
						}
						return
					}
					if !errors.Is(err, syscall.ENOSPC) {
						t.Fatalf("attempt: %v", err)
					}
					if n.content() != old && step != "sync directory" {
						t.Error("the old certificate has gone")
					}
					n.leaf()
					if step != "sync directory" {
						if err := n.attempt(n.ctx, n.client); !errors.Is(err, syscall.ENOSPC) {
							t.Errorf("again: %v", err)
						}
					}
					n.disk.Before = nil
					if err := n.attempt(n.ctx, n.client); err != nil {
						t.Fatal(err)
					}
					if n.content() == old || len(c.created()) != 2 {
						t.Errorf("%d requests", len(c.created()))
					}
				})
			})
		}
	}
}

// TestReadOnlyDirectory: the error says what prevents writing, and the cloud is asked nothing.
func TestReadOnlyDirectory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCloud(t, newAuthority(t, "kubernetes"))
		n := newNode(t, c, nil)
		if err := n.Ensure(n.ctx); err != nil {
			t.Fatal(err)
		}
		old := n.content()
		time.Sleep(year * 95 / 100)
		// Root may write anywhere; but nobody can write where a directory with something in it stands.
		write(t, filepath.Join(n.cfg.Dir, "client.request.key.new", "x"), "")
		if err := n.attempt(n.ctx, n.client); err == nil || !strings.Contains(err.Error(), "client.request.key") {
			t.Errorf("attempt: %v", err)
		}
		if n.content() != old || len(c.created()) != 1 {
			t.Error("it went on")
		}
		if err := os.Chmod(n.cfg.Dir, 0o777); err != nil {
			t.Fatal(err)
		}
		if err := n.attempt(n.ctx, n.client); err == nil || !strings.Contains(err.Error(), "chmod 0700") {
			t.Errorf("a directory that anyone may write to: %v", err)
		}
	})
}

// TestNeverApproved: one request, for however long, seldom looked at. Once approved it counts, even after a restart.
func TestNeverApproved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCloud(t, newAuthority(t, "kubernetes"))
		approve := c.approve
		c.approve = func(*certificatesv1.CertificateSigningRequest) certificatesv1.RequestConditionType { return "" }
		n := newNode(t, c, nil)
		stop := n.start()
		time.Sleep(time.Hour)
		name := n.Report().Client.Waiting
		c.change(func() {
			if c.requests[name] == nil {
				t.Errorf("Status names the request %q", name)
			}
		})
		before := c.count(&c.calls)
		time.Sleep(24 * time.Hour)
		if calls := c.count(&c.calls) - before; calls < 24*10 || calls > 24*30 {
			t.Errorf("%d calls in a day", calls)
		}
		stop()
		again := newNode(t, c, func(cfg *Config) { cfg.Dir, cfg.BootstrapFile = n.cfg.Dir, n.cfg.BootstrapFile })
		stop = again.start()
		defer stop()
		time.Sleep(time.Minute)
		if got := again.Report().Client.Waiting; got != name || len(c.created()) != 1 {
			t.Errorf("after a restart %q, %d requests", got, len(c.created()))
		}
		// The cloud deletes what nobody approves in a day; then the hub makes another request.
		c.change(func() { clear(c.requests) })
		time.Sleep(2 * pauseAnswered)
		if got := len(c.created()); got != 2 {
			t.Errorf("%d requests after the cloud forgot the first", got)
		}
		c.change(func() { c.approve = approve })
		time.Sleep(pauseAnswered)
		again.leaf()
		if s := again.Report().Client; s.Problem != "" || s.Waiting != "" {
			t.Errorf("Status %+v", s)
		}
	})
}

// TestTwoHubs: two processes on one directory make one request at a time and agree.
func TestTwoHubs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCloud(t, newAuthority(t, "kubernetes"))
		c.life = 6 * time.Hour
		one := newNode(t, c, nil)
		two := newNode(t, c, func(cfg *Config) { cfg.Dir = one.cfg.Dir })
		stopOne, stopTwo := one.start(), two.start()
		time.Sleep(2 * time.Minute)
		first := one.leaf()
		time.Sleep(time.Until(first.NotBefore.Add(first.NotAfter.Sub(first.NotBefore)*9/10 + 2*time.Minute)))
		stopOne()
		stopTwo()
		if got := len(c.created()); got != 2 {
			t.Errorf("%d requests for two certificates", got)
		}
		if a, b := one.Report().Client, two.Report().Client; !a.NotAfter.Equal(b.NotAfter) || a.Problem != "" || b.Problem != "" {
			t.Errorf("they do not agree: %+v %+v", a, b)
		}
		unlock, err := one.disk.Lock("client.lock")
		if err != nil {
			t.Fatal(err)
		}
		defer unlock()
		if err := two.attempt(two.ctx, two.client); !errors.Is(err, ErrLocked) {
			t.Errorf("while another asks: %v", err)
		}
	})
}

// TestEnsureStops: the caller's context ends it at once.
func TestEnsureStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCloud(t, newAuthority(t, "kubernetes"))
		c.cut = true
		n := newNode(t, c, nil)
		ctx, cancel := context.WithTimeout(n.ctx, time.Second)
		defer cancel()
		began := time.Now()
		if err := n.Ensure(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) > time.Second {
			t.Errorf("Ensure: %v after %s", err, time.Since(began))
		}
	})
}

func TestConfig(t *testing.T) {
	good := Config{Node: "n1", Dir: "/x", Servers: servers("https://cloud:6443")}
	if _, err := New(good); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*Config){
		"relative":     func(c *Config) { c.Dir = "pki" },
		"short hash":   func(c *Config) { c.CACertHashes = []string{"sha256:00"} },
		"another hash": func(c *Config) { c.CACertHashes = []string{"md5:" + strings.Repeat("00", sha256.Size)} },
	} {
		bad := good
		change(&bad)
		if _, err := New(bad); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// TestRenewAt: within the bounds, and not all at once.
func TestRenewAt(t *testing.T) {
	from := time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
	low, high := 1.0, 0.0
	for i := range 200 {
		leaf := &x509.Certificate{Raw: fmt.Append(nil, i), NotBefore: from, NotAfter: from.Add(year)}
		at := float64(renewAt(leaf).Sub(from)) / float64(year)
		low, high = min(low, at), max(high, at)
		if !renewAt(leaf).Equal(renewAt(leaf)) {
			t.Fatal("drawn anew")
		}
	}
	if low < 2.0/3 || low > 0.7 || high > 0.9 || high < 0.87 {
		t.Errorf("between %.3f and %.3f of a life", low, high)
	}
}

// FuzzBootstrapFile: any content is taken or refused, and no error quotes it.
func FuzzBootstrapFile(f *testing.F) {
	f.Add(token)
	f.Add("abcdef:" + tokenSecret)
	f.Add("apiVersion: v1\nkind: Config\nusers: [{name: a, user: {token: " + token + "}}]\n")
	f.Add("users: " + tokenSecret)
	f.Fuzz(func(t *testing.T, content string) {
		path := filepath.Join(t.TempDir(), "token")
		write(t, path, content)
		m, err := New(Config{Node: "n1", Dir: "/x", Servers: servers("https://cloud:6443"), BootstrapFile: path})
		if err != nil {
			t.Fatal(err)
		}
		s, err := m.bootstrap()
		if err == nil && s.token == "" && s.pair == nil {
			t.Error("neither a credential nor an error")
		}
		if err != nil && strings.Contains(err.Error(), tokenSecret) {
			t.Error(err)
		}
	})
}

// TestNewPins: an authority that is kept but no longer pinned is discovered anew.
func TestNewPins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old := newCloud(t, newAuthority(t, "old"))
		n := newNode(t, old, nil)
		if err := n.Ensure(n.ctx); err != nil {
			t.Fatal(err)
		}
		c := newCloud(t, newAuthority(t, "new"))
		again := newNode(t, c, func(cfg *Config) { cfg.Dir = n.cfg.Dir })
		if err := again.Ensure(again.ctx); err != nil {
			t.Fatal(err)
		}
		ca, _, _ := again.Files()
		if content, err := os.ReadFile(ca); err != nil || string(content) != string(c.ca.pem) {
			t.Errorf("the old authority is still there, %v", err)
		}
	})
}

// TestKilledAfterWriting: a crash left the key of a request that is done; the next certificate has another key.
func TestKilledAfterWriting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCloud(t, newAuthority(t, "kubernetes"))
		n := newNode(t, c, nil)
		if err := n.Ensure(n.ctx); err != nil {
			t.Fatal(err)
		}
		first := n.leaf()
		write(t, n.disk.File("client.request.key"), n.content())
		time.Sleep(year * 95 / 100)
		if err := n.attempt(n.ctx, n.client); err != nil {
			t.Fatal(err)
		}
		if string(n.leaf().RawSubjectPublicKeyInfo) == string(first.RawSubjectPublicKeyInfo) {
			t.Error("the key is the old one")
		}
	})
}

// TestServing: none until it is approved, and Status says which; then kept, renewed, and replaced for other addresses.
func TestServing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCloud(t, newAuthority(t, "kubernetes"))
		c.life = 12 * time.Hour
		client := c.approve
		n := newNode(t, c, func(cfg *Config) { cfg.Serve = at("10.0.0.1") })
		if _, err := n.Serving(nil); err == nil {
			t.Error("there is a certificate before there is one")
		}
		if err := n.Ensure(n.ctx); err != nil {
			t.Fatal(err)
		}
		stop := n.start()
		time.Sleep(time.Hour)
		s := n.Report().Serving
		if _, err := n.Serving(nil); err == nil || s.Waiting == "" ||
			!strings.Contains(err.Error(), "kubectl describe csr "+s.Waiting) {
			t.Errorf("handshake: %v; status %+v", err, s)
		}
		c.change(func() {
			c.approve = func(*certificatesv1.CertificateSigningRequest) certificatesv1.RequestConditionType {
				return certificatesv1.CertificateApproved
			}
		})
		time.Sleep(pauseAnswered)
		first, err := n.Serving(nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := first.Leaf.VerifyHostname("10.0.0.1"); err != nil {
			t.Error(err)
		}
		if got := c.created()[1]; got != "system:node:n1" {
			t.Errorf("asked for by %s", got)
		}
		stop()
		moved := newNode(t, c, func(cfg *Config) { cfg.Dir, cfg.Serve = n.cfg.Dir, at("10.0.0.2") })
		stop = moved.start()
		time.Sleep(time.Minute)
		second, err := moved.Serving(nil)
		if err != nil || second.Leaf.VerifyHostname("10.0.0.2") != nil {
			t.Fatalf("after the address changed: %v", err)
		}
		time.Sleep(12 * time.Hour)
		third, err := moved.Serving(nil)
		if err != nil || !third.Leaf.NotAfter.After(second.Leaf.NotAfter) {
			t.Errorf("not renewed: %v", err)
		}
		stop()
		// A restart serves what it has; approval is not needed again.
		c.change(func() { c.approve = client })
		again := newNode(t, c, func(cfg *Config) { cfg.Dir, cfg.Serve = n.cfg.Dir, at("10.0.0.2") })
		stop = again.start()
		synctest.Wait()
		if kept, err := again.Serving(nil); err != nil || !kept.Leaf.Equal(third.Leaf) {
			t.Errorf("after a restart: %v", err)
		}
		stop()
	})
}

// TestServingFollowsTheAddress: while the address is not known, no certificate is requested. A new address is requested at
// once, and until its certificate comes the hub serves with the present one.
func TestServingFollowsTheAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCloud(t, newAuthority(t, "kubernetes"))
		c.approve = func(*certificatesv1.CertificateSigningRequest) certificatesv1.RequestConditionType {
			return certificatesv1.CertificateApproved
		}
		address := live.NewValue(netip.Addr{})
		n := newNode(t, c, func(cfg *Config) { cfg.Serve = address })
		if err := n.Ensure(n.ctx); err != nil {
			t.Fatal(err)
		}
		defer n.start()()
		time.Sleep(time.Hour)
		if _, err := n.Serving(nil); err == nil || len(c.created()) != 1 || n.Served().Get() != nil {
			t.Errorf("no address is known: %v, requests by %v", err, c.created())
		}
		for i, at := range []string{"10.0.0.1", "10.0.0.2", "fd00::2"} {
			address.Set(netip.MustParseAddr(at))
			time.Sleep(time.Second)
			pair, err := n.Serving(nil)
			if err != nil || pair.Leaf.VerifyHostname(at) != nil || len(c.created()) != 2+i {
				t.Fatalf("%s: %v, requests by %v", at, err, c.created())
			}
			if served := n.Served().Get(); served == nil || !served.Leaf.Equal(pair.Leaf) || len(served.Certificate) < 2 {
				t.Errorf("%s: the certificate has come without the authorities that verify it", at)
			}
		}
	})
}
