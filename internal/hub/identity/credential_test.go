package identity

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestKubelet: with the kubelet's certificate the hub gets one of its own.
func TestKubelet(t *testing.T) {
	setup := func(t *testing.T, life time.Duration) (*cloud, *node, string) {
		c := newCloud(t, newAuthority(t, "kubernetes"))
		pair := filepath.Join(t.TempDir(), "kubelet-client-current.pem")
		write(t, pair, string(c.ca.pair(t, nodeCert(time.Now(), time.Now().Add(life)))))
		conf := filepath.Join(filepath.Dir(pair), "kubelet.conf")
		write(t, filepath.Join(filepath.Dir(pair), "ca.crt"), string(c.ca.pem))
		write(t, conf, `{apiVersion: v1, kind: Config, current-context: a, contexts: [{name: a, context: {cluster: a, user: a}}],
clusters: [{name: a, cluster: {server: "https://cloud:6443", certificate-authority: ca.crt}}],
users: [{name: a, user: {client-certificate: kubelet-client-current.pem, client-key: kubelet-client-current.pem}}]}`)
		return c, newNode(t, c, func(cfg *Config) {
			cfg.BootstrapFile, cfg.KubeletKubeconfig = "", conf
		}), pair
	}
	t.Run("to ask with", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c, n, pair := setup(t, year)
			if err := n.Ensure(n.ctx); err != nil {
				t.Fatal(err)
			}
			if got := c.created(); !slices.Equal(got, []string{"system:node:n1"}) {
				t.Errorf("requests by %q", got)
			}
			if content, _ := os.ReadFile(pair); string(content) == n.content() {
				t.Error("it is the kubelet's own")
			}
		})
	})
	t.Run("renewed", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			_, n, pair := setup(t, time.Hour)
			linked := strings.Replace(pair, "current", "first", 1)
			if err := errors.Join(os.Rename(pair, linked), os.Symlink(linked, pair)); err != nil {
				t.Fatal(err)
			}
			first, _ := os.ReadFile(pair)
			if err := n.Ensure(n.ctx); err != nil {
				t.Fatal(err)
			}
			stop := n.start()
			defer stop()
			time.Sleep(39 * time.Minute)
			if content, _ := os.ReadFile(pair); string(content) != string(first) {
				t.Error("it was replaced while it was good")
			}
			time.Sleep(20 * time.Minute) // nine tenths of its life
			if content, _ := os.ReadFile(pair); string(content) != n.content() {
				t.Error("it is not the hub's")
			}
			if info, err := os.Stat(pair); err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("%v, %v", info.Mode(), err)
			}
			to, err := os.Readlink(pair)
			if err != nil || to == linked || !strings.HasPrefix(filepath.Base(to), "kubelet-client-2") {
				t.Errorf("the link leads to %s, %v", to, err)
			}
			if content, _ := os.ReadFile(linked); string(content) != string(first) {
				t.Error("the former file is gone")
			}
		})
	})
	t.Run("not replaced by one that ends first", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c, n, pair := setup(t, time.Hour)
			first, _ := os.ReadFile(pair)
			c.life = 2 * time.Minute
			if err := n.Ensure(n.ctx); err != nil {
				t.Fatal(err)
			}
			stop := n.start()
			defer stop()
			time.Sleep(55 * time.Minute) // more than nine tenths of its life
			if content, _ := os.ReadFile(pair); string(content) != string(first) {
				t.Error("it was replaced")
			}
		})
	})
	t.Run("renewed after its end", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			_, n, pair := setup(t, -time.Hour)
			n.cfg.BootstrapFile = filepath.Join(t.TempDir(), "token")
			write(t, n.cfg.BootstrapFile, token)
			n.Manager.cfg.BootstrapFile = n.cfg.BootstrapFile
			if err := n.Ensure(n.ctx); err != nil {
				t.Fatal(err)
			}
			stop := n.start()
			time.Sleep(time.Minute)
			stop()
			if content, _ := os.ReadFile(pair); string(content) != n.content() {
				t.Error("it is not the hub's")
			}
		})
	})
	t.Run("of another node", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c, n, pair := setup(t, year)
			other := nodeCert(time.Now(), time.Now().Add(year))
			other.Subject.CommonName = "system:node:n2"
			write(t, pair, string(c.ca.pair(t, other)))
			if err := n.Ensure(n.ctx); err == nil || !strings.Contains(err.Error(), `is for "system:node:n2"`) {
				t.Errorf("Ensure: %v", err)
			}
		})
	})
}

func TestBootstrapKubeconfig(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCloud(t, newAuthority(t, "kubernetes"))
		n := newNode(t, c, func(cfg *Config) { cfg.CACertHashes = nil })
		write(t, filepath.Join(filepath.Dir(n.cfg.BootstrapFile), "ca"), string(c.ca.pem))
		write(t, n.cfg.BootstrapFile, `{apiVersion: v1, kind: Config, current-context: a,
contexts: [{name: a, context: {cluster: a, user: a}}], users: [{name: a, user: {token: `+token+`}}],
clusters: [{name: a, cluster: {server: "https://cloud:6443", certificate-authority: ca}}]}`)
		if err := n.Ensure(n.ctx); err != nil {
			t.Fatal(err)
		}
		if got := c.created(); !slices.Equal(got, []string{"system:bootstrap:abcdef"}) {
			t.Errorf("requests by %q", got)
		}
	})
}

// TestSecondServer: the first does not answer.
func TestSecondServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCloud(t, newAuthority(t, "kubernetes"))
		n := newNode(t, c, func(cfg *Config) { cfg.Servers = servers("https://dead:6443", "https://cloud:6443") })
		n.dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			if address == "dead:6443" {
				return nil, errors.New("connection refused")
			}
			return c.dial(ctx, network, address)
		}
		if err := n.Ensure(n.ctx); err != nil {
			t.Fatal(err)
		}
		n.leaf()
	})
}
