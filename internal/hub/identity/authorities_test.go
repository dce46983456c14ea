package identity

import (
	"context"
	"crypto/x509"
	"encoding/base64"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"yurtcoordinator/internal/live"
)

// follower is a node that has its certificate and follows the cloud's authorities.
type follower struct {
	*node
	link *live.Value[bool]
	stop func()
}

func newFollower(t *testing.T, c *cloud, change func(*Config)) *follower {
	t.Helper()
	f := &follower{node: newNode(t, c, change), link: live.NewValue(true)}
	if err := f.Ensure(f.ctx); err != nil {
		t.Fatal(err)
	}
	f.run()
	return f
}

// run begins, also after a stop.
func (f *follower) run() {
	ctx, cancel := context.WithCancel(f.ctx)
	var running sync.WaitGroup
	running.Go(func() { _ = f.FollowAuthorities(ctx, f.link.Watch) })
	f.stop = func() { cancel(); running.Wait() }
}

// trusts returns the names of the authorities in ca.crt.
func (f *follower) trusts() string {
	set, _, err := f.trusted()
	if err != nil {
		f.t.Fatal(err)
	}
	var names []string
	for _, a := range set.Authorities {
		names = append(names, a.Cert.Subject.CommonName)
	}
	return strings.Join(names, " ")
}

// after waits, and fails if anything else is trusted then.
func (f *follower) after(d time.Duration, want string) {
	f.t.Helper()
	time.Sleep(d)
	if got := f.trusts(); got != want {
		f.t.Fatalf("trusted are %s, want %s; %s", got, want, f.Report().Authorities.Problem)
	}
}

// afterHours is as after, for days: it does what following does, once an hour. Following would read the files 2880 times a day.
func (f *follower) afterHours(n int, want string) {
	f.t.Helper()
	f.stop()
	for range n {
		time.Sleep(time.Hour)
		f.readFiles(f.ctx)
		f.hear(f.ctx)
	}
	f.run()
	f.after(0, want)
}

// TestAuthorityChanges: Kubernetes' own procedure, step by step, with a node that had a hash for the first authority.
func TestAuthorityChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old, next := newAuthority(t, "old"), newAuthority(t, "next")
		c := newCloud(t, old)
		c.root = string(old.pem)
		f := newFollower(t, c, nil)
		defer func() { f.stop() }()
		f.after(askSoon, "old")
		c.change(func() { c.root, c.knows = string(old.pem)+string(next.pem), []*authority{next} })
		f.after(askEvery*11/10, "old next")
		if got := f.Report().Authorities.Trusted[1].Hash; got != next.hash() {
			t.Errorf("status says %s", got)
		}

		// The server and the signer have the new one. A restart, as the server's, has the hub ask again soon.
		c.show(next)
		c.change(func() { c.signer = next })
		f.link.Set(false)
		time.Sleep(time.Second)
		f.link.Set(true)
		f.after(askSoon, "old next")

		// The old one is named no more. It stays for a week, also over restarts, and goes then.
		c.change(func() { c.root = string(next.pem) })
		f.afterHours(6*24, "old next")
		f.stop()
		f.run()
		f.after(21*time.Hour, "old next") // the first answer without it may add a TrustStep for what was an hour
		f.after(6*time.Hour, "next")
		if roots, err := f.knownAuthority(); err != nil || !roots.Equal(pool(next)) {
			t.Errorf("the hash of the first still rules: %v", err)
		}
	})
}

func pool(all ...*authority) *x509.CertPool {
	p := x509.NewCertPool()
	for _, a := range all {
		p.AddCert(a.cert)
	}
	return p
}

// TestClientCertificateFollows: when the signer has a successor, the node's certificate is renewed long before its time.
func TestClientCertificateFollows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old, next := newAuthority(t, "old"), newAuthority(t, "next")
		c := newCloud(t, old)
		c.root = string(old.pem)
		f := newFollower(t, c, nil)
		defer func() { f.stop() }()
		defer f.start()()
		time.Sleep(time.Hour)
		first := f.leaf()
		// Both are trusted, and the old one still signs: one renewal, and another after half a day.
		c.change(func() { c.root, c.knows = string(old.pem)+string(next.pem), []*authority{next} })
		time.Sleep(3 * time.Hour)
		second := f.leaf()
		if second.Equal(first) || second.CheckSignatureFrom(old.cert) != nil || len(c.created()) != 2 {
			t.Fatalf("after a change: %d requests", len(c.created()))
		}
		time.Sleep(9 * time.Hour)
		if !f.leaf().Equal(second) {
			t.Error("it asks more often than twice a day")
		}
		c.change(func() { c.signer = next })
		time.Sleep(3 * time.Hour)
		if err := f.leaf().CheckSignatureFrom(next.cert); err != nil {
			t.Errorf("the successor has not signed: %v", err)
		}
		time.Sleep(30 * time.Hour)
		if n := len(c.created()); n != 3 {
			t.Errorf("%d requests", n)
		}
	})
}

// TestLyingAnswers: what takes no trust away, and what gives none.
func TestLyingAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old, other := newAuthority(t, "old"), newAuthority(t, "other")
		c := newCloud(t, old)
		c.root = string(old.pem)
		f := newFollower(t, c, nil)
		defer func() { f.stop() }()
		f.after(askSoon, "old")
		for _, root := range []string{"rubbish", "-----BEGIN CERTIFICATE-----\nbm9uZQ==\n-----END CERTIFICATE-----\n"} {
			c.change(func() { c.root = root })
			f.after(askEvery*11/10, "old")
			if f.Report().Authorities.Problem == "" {
				t.Errorf("nobody says that %.30q was told", root)
			}
		}
		// A server that nobody trusts is not heard.
		c.change(func() { c.root = string(old.pem) + string(other.pem) })
		c.show(other)
		f.after(12*time.Hour, "old")
		// A trusted one that leaves itself out adds, and takes nothing away.
		c.show(old)
		c.change(func() { c.root = string(other.pem) })
		f.afterHours(8*24, "old other")
		if problem := f.Report().Authorities.Problem; problem != "" {
			t.Errorf("it has got an answer that it believes, and says %q", problem)
		}
	})
}

// TestWithoutRights: where nodes may not read the one ConfigMap, they read the other, as anybody.
func TestWithoutRights(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old, next := newAuthority(t, "old"), newAuthority(t, "next")
		c := newCloud(t, old)
		f := newFollower(t, c, nil)
		defer func() { f.stop() }()
		f.after(askSoon, "old")
		c.change(func() { c.setInfo(append(slices.Clone(old.pem), next.pem...)) })
		f.after(askEvery*11/10, "old next")
	})
}

// TestCutOffMeanwhile: all authorities were replaced while a node was cut off. It comes back by a cross certificate, which the
// old authority has signed for the new one, or by kubelet's kubeconfig.
func TestCutOffMeanwhile(t *testing.T) {
	for _, way := range []string{"cross certificate", "kubeconfig"} {
		t.Run(way, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				old, next := newAuthority(t, "old"), newAuthority(t, "next")
				c := newCloud(t, old)
				c.root = string(old.pem)
				f := newFollower(t, c, func(cfg *Config) {
					cfg.KubeletKubeconfig = filepath.Join(filepath.Dir(cfg.BootstrapFile), "kubelet.conf")
				})
				defer func() { f.stop() }()
				f.after(askSoon, "old")
				f.link.Set(false)
				c.change(func() { c.root, c.knows = string(next.pem), []*authority{next} })
				c.show(next)
				time.Sleep(time.Hour)
				f.link.Set(true)
				f.after(3*askEvery, "old")
				if !strings.Contains(f.Report().Authorities.Problem, "cannot be trusted") {
					t.Errorf("status says %q", f.Report().Authorities.Problem)
				}
				if way == "kubeconfig" {
					write(t, f.cfg.KubeletKubeconfig, kubeconfigOf(next))
					f.after(2*poll, "old next")
					f.afterHours(8*24, "next") // the file does not hold what the cloud has given up
					return
				}
				cross := old.sign(t, &x509.Certificate{
					Subject: next.cert.Subject, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
					NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(year), SubjectKeyId: next.cert.SubjectKeyId,
				}, next.key.Public())
				c.show(next, cross)
				f.after(askEvery, "old next")
			})
		})
	}
}

func kubeconfigOf(a *authority) string {
	return "apiVersion: v1\nkind: Config\ncurrent-context: c\n" +
		"clusters: [{name: c, cluster: {server: 'https://cloud:6443', certificate-authority-data: " +
		base64.StdEncoding.EncodeToString(a.pem) + "}}]\n" +
		"contexts: [{name: c, context: {cluster: c, user: u}}]\nusers: [{name: u, user: {tokenFile: none}}]\n"
}

// TestCrashBetween: at whatever step a write fails, ca.crt is whole and has what was trusted, and the next try succeeds.
func TestCrashBetween(t *testing.T) {
	for fail := range 12 {
		synctest.Test(t, func(t *testing.T) {
			old, next := newAuthority(t, "old"), newAuthority(t, "next")
			c := newCloud(t, old)
			c.root = string(old.pem) + string(next.pem)
			n := newNode(t, c, nil)
			if err := n.Ensure(n.ctx); err != nil {
				t.Fatal(err)
			}
			steps := 0
			n.disk.Before = func(string) error {
				if steps++; steps > fail {
					return os.ErrPermission
				}
				return nil
			}
			f := &follower{node: n}
			heard := n.hear(n.ctx)
			if got := f.trusts(); got != "old" && got != "old next" || heard != (got == "old next" && steps <= fail) {
				t.Errorf("step %d: trusted are %s; heard %v", fail, got, heard)
			}
			n.disk.Before = nil
			if !n.hear(n.ctx) || f.trusts() != "old next" {
				t.Errorf("step %d: then trusted are %s", fail, f.trusts())
			}
		})
	}
}

// TestGivenAuthority: an authority that a person gives stays that person's.
func TestGivenAuthority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old, next := newAuthority(t, "old"), newAuthority(t, "next")
		c := newCloud(t, old)
		c.root = string(old.pem) + string(next.pem)
		var file string
		n := newNode(t, c, func(cfg *Config) {
			file = filepath.Join(filepath.Dir(cfg.BootstrapFile), "given.crt")
			cfg.CAFile, cfg.CACertHashes = file, nil
		})
		write(t, file, string(old.pem))
		f := &follower{node: n, link: live.NewValue(true)}
		if err := f.Ensure(f.ctx); err != nil {
			t.Fatal(err)
		}
		f.run()
		defer func() { f.stop() }()
		time.Sleep(2 * askEvery)
		if content, err := os.ReadFile(file); err != nil || string(content) != string(old.pem) {
			t.Errorf("the file was changed, %v", err)
		}
		if f.Report().Authorities != nil {
			t.Error("status says that authorities are followed")
		}
	})
}
