package identity

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"

	"yurtcoordinator/internal/edge"
)

// asked are the requests for what the hub serves with.
func (n *node) asked(c *cloud) (names []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, r := range c.requests {
		if r.Spec.SignerName == edge.SignerHubs {
			names = append(names, name)
		}
		if r.Spec.SignerName == certificatesv1.KubeletServingSignerName {
			n.t.Errorf("the cluster's authority was asked: %s", name)
		}
	}
	return names
}

// world is what a hub shows.
type world struct {
	mu    sync.Mutex
	shown []string
}

// told takes what Pods were shown since the last call.
func (w *world) told() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := w.shown
	w.shown = nil
	return all
}

func (w *world) config(cfg *Config) {
	cfg.Serve = at("10.0.0.1")
	cfg.ShowAuthorities = func(all string) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.shown = append(w.shown, all)
	}
}

// TestPodsAreShownTheAuthority: a hub serves with the certificate that it gets, and shows Pods the authority that verifies it,
// even after a restart without the cloud.
func TestPodsAreShownTheAuthority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCloud(t, newAuthority(t, "kubernetes"))
		c.approve = func(*certificatesv1.CertificateSigningRequest) certificatesv1.RequestConditionType {
			return certificatesv1.CertificateApproved
		}
		w := &world{}
		n := newNode(t, c, w.config)
		if err := n.Ensure(n.ctx); err != nil {
			t.Fatal(err)
		}
		if len(w.told()) > 0 {
			t.Error("authorities are shown before there are any")
		}
		serves := func() {
			t.Helper()
			pair, err := n.Serving(nil)
			if err != nil || pair.Leaf.CheckSignatureFrom(c.hubs.cert) != nil || len(pair.Certificate) != 1 {
				t.Fatalf("served by %v, %v; want %v", pair, err, c.hubs.cert.Subject)
			}
		}
		stop := n.start()
		time.Sleep(time.Minute)
		serves()
		if shown := w.told(); len(shown) == 0 || shown[len(shown)-1] != string(c.hubs.pem) {
			t.Fatalf("shown: %q", shown)
		}
		stop()

		c.change(func() { c.cut = true })
		time.Sleep(time.Hour)
		n = newNode(t, c, func(cfg *Config) { cfg.Dir = n.cfg.Dir; w.config(cfg) })
		err := n.Ensure(n.ctx)
		if shown := w.told(); err != nil || len(shown) == 0 || shown[0] != string(c.hubs.pem) {
			t.Fatalf("after a restart: %v, shown %q", err, shown)
		}
		serves()
		if names := n.asked(c); len(names) != 1 {
			t.Errorf("asked for %v", names)
		}
	})
}

// TestNobodySigns: where the cloud is older than the hub, or has none of our programs, the state says what is missing.
func TestNobodySigns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCloud(t, newAuthority(t, "kubernetes"))
		w := &world{}
		n := newNode(t, c, w.config)
		if err := n.Ensure(n.ctx); err != nil {
			t.Fatal(err)
		}
		defer n.start()()
		time.Sleep(20 * time.Hour)
		if s := n.Report().Serving; !strings.Contains(s.Problem, "as new as this hub") || s.Waiting == "" {
			t.Errorf("%+v", s)
		}
		if pair, err := n.Serving(nil); err == nil || !strings.Contains(err.Error(), "as new as this hub") {
			t.Errorf("a handshake: %v, %v", pair, err)
		}
		// Somebody approves it, and nobody signs.
		c.change(func() {
			c.approve = func(*certificatesv1.CertificateSigningRequest) certificatesv1.RequestConditionType {
				return certificatesv1.CertificateApproved
			}
			c.issue = func(*certificatesv1.CertificateSigningRequest, *x509.CertificateRequest) []byte { return nil }
		})
		time.Sleep(time.Hour)
		if s := n.Report(); !strings.Contains(s.Serving.Problem, "nobody signs it") {
			t.Errorf("%+v", s.Serving)
		}
		if names := n.asked(c); len(names) != 1 {
			t.Errorf("asked for %v", names)
		}
	})
}

// TestRefused: the signer's reason is in the state, and the hub asks again, with another request.
func TestRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCloud(t, newAuthority(t, "kubernetes"))
		signs := c.approve
		c.approve = func(r *certificatesv1.CertificateSigningRequest) certificatesv1.RequestConditionType {
			if r.Spec.SignerName == edge.SignerHubs {
				return certificatesv1.CertificateFailed
			}
			return signs(r)
		}
		w := &world{}
		n := newNode(t, c, w.config)
		if err := n.Ensure(n.ctx); err != nil {
			t.Fatal(err)
		}
		defer n.start()()
		time.Sleep(time.Hour)
		if s := n.Report().Serving; !strings.Contains(s.Problem, "is failed") {
			t.Errorf("%+v", s)
		}
		if _, err := n.Serving(nil); err == nil || !strings.Contains(err.Error(), "is failed") {
			t.Errorf("a handshake: %v", err)
		}
		if names := n.asked(c); len(names) < 2 || len(names) > 30 {
			t.Errorf("asked %d times in an hour", len(names))
		}
	})
}

// TestUselessHubs: what a signer may return, and what the hub takes.
func TestUselessHubs(t *testing.T) {
	ours, other := newAuthority(t, "ours"), newAuthority(t, "other")
	now := time.Now()
	key, _, err := newKey()
	if err != nil {
		t.Fatal(err)
	}
	r := request{node: "n1", hub: true, use: x509.ExtKeyUsageServerAuth, ips: []net.IP{net.IPv4(10, 0, 0, 1)}}
	leaf := func(change func(*x509.Certificate)) []byte {
		c := &x509.Certificate{
			Subject: pkix.Name{CommonName: "openyurt:hub:n1"}, NotBefore: now, NotAfter: now.Add(time.Hour),
			BasicConstraintsValid: true, IPAddresses: r.ips, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		}
		if change != nil {
			change(c)
		}
		return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ours.sign(t, c, key.Public()).Raw})
	}
	called := func(name string) func(*x509.Certificate) {
		return func(c *x509.Certificate) { c.Subject.CommonName = name }
	}
	with := func(leaf []byte, all ...[]byte) []byte {
		for _, each := range all {
			leaf = append(leaf, each...)
		}
		return leaf
	}
	for name, c := range map[string]struct {
		issued []byte
		why    string
	}{
		"good":                 {with(leaf(nil), ours.pem), ""},
		"two authorities":      {with(leaf(nil), other.pem, ours.pem), ""},
		"a clock that is slow": {with(leaf(func(c *x509.Certificate) { c.NotBefore = now.Add(5 * time.Minute) }), ours.pem), ""},
		"no authority":         {leaf(nil), "no authority has come"},
		"another authority":    {with(leaf(nil), other.pem), "do not verify it"},
		"a leaf as authority":  {with(leaf(nil), leaf(nil)), "is no authority"},
		"the node's name":      {with(leaf(called("system:node:n1")), ours.pem), "not for"},
		"another hub's name":   {with(leaf(called("openyurt:hub:n2")), ours.pem), "not for"},
		"in a group": {
			with(leaf(func(c *x509.Certificate) { c.Subject.Organization = []string{"system:nodes"} }), ours.pem), "not for none",
		},
		"for clients": {with(leaf(func(c *x509.Certificate) {
			c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
		}), ours.pem), "use"},
		"another address": {with(leaf(func(c *x509.Certificate) { c.IPAddresses = nil }), ours.pem), "address"},
	} {
		_, pair, err := r.accept(c.issued, key, now)
		if c.why == "" && (err != nil || pair == nil) || c.why != "" && (err == nil || !strings.Contains(err.Error(), c.why)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
