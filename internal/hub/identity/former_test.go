package identity

import (
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yurtcoordinator/internal/edge"
)

// formerOf is what hubs of before served node n1's Pods with.
func formerOf(t testing.TB, a *authority, life time.Duration) []byte {
	t.Helper()
	template := nodeCert(time.Now().Add(-time.Hour), time.Now().Add(life))
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	template.IPAddresses = []net.IP{net.IPv4(10, 0, 0, 1)}
	return a.pair(t, template)
}

// pod is one that started at a time, with a token and what verifies the API server.
func pod(name string, start time.Time) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, CreationTimestamp: metav1.NewTime(start)}}
	p.Spec.Volumes = []corev1.Volume{{}, {VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
		Sources: []corev1.VolumeProjection{{}, {ConfigMap: &corev1.ConfigMapProjection{
			LocalObjectReference: corev1.LocalObjectReference{Name: rootConfigMap},
		}}},
	}}}}
	return p
}

func TestChoose(t *testing.T) {
	now := time.Now()
	good, ended := &x509.Certificate{NotAfter: now.Add(time.Hour)}, &x509.Certificate{NotAfter: now.Add(-time.Hour)}
	shown := now.Add(-24 * time.Hour)
	old, young := pod("old", shown.Add(shownLag-time.Second)), pod("young", shown.Add(shownLag))
	finished, static, direct := old.DeepCopy(), old.DeepCopy(), pod("direct", shown)
	finished.Status.Phase, static.Spec.Volumes = corev1.PodSucceeded, nil
	direct.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
		LocalObjectReference: corev1.LocalObjectReference{Name: rootConfigMap},
	}}}}
	late := old.DeepCopy()
	late.Status.StartTime = &metav1.Time{Time: shown.Add(time.Hour)}
	pods := func(all ...*corev1.Pod) []*corev1.Pod { return all }
	on := func(all []*corev1.Pod) serving { return serving{own: good, former: good, known: true, pods: all} }
	gone := on(pods(old))
	gone.foreign = true
	for name, c := range map[string]struct {
		serving
		former, done bool
		why          string
	}{
		"a new node":                           {serving{own: good}, false, false, ""},
		"a new node, nobody signs":             {serving{}, false, false, ""},
		"nobody has signed yet":                {serving{former: good}, true, false, "by its pool's authority"},
		"nobody has signed in time":            {serving{own: ended, former: good}, true, false, "by its pool's authority"},
		"Pods are not known":                   {serving{own: good, former: good}, true, false, "not known yet"},
		"no Pods":                              {on(nil), false, true, ""},
		"Pods from before":                     {on(pods(young, old)), true, false, "such as shop/old"},
		"Pods since":                           {on(pods(young)), false, true, ""},
		"made before, started since":           {on(pods(late)), false, true, ""},
		"from before, and at their end":        {on(pods(finished)), false, true, ""},
		"from before, without a token":         {on(pods(static)), false, true, ""},
		"from before, with the ConfigMap only": {on(pods(direct)), true, false, "shop/direct"},
		"the former one has ended": {
			serving{own: good, former: ended, known: true, pods: pods(old)}, false, true, "no other",
		},
		"both have ended":                    {serving{own: ended, former: ended}, false, true, "no other"},
		"the former one has ended, no other": {serving{former: ended}, true, false, "no other"},
		"its authority is gone":              {gone, false, false, ""},
		"its authority is gone, no other":    {serving{former: good, foreign: true}, true, false, "by its pool's authority"},
	} {
		c.now, c.shown = now, shown
		former, done, why := c.choose()
		if former != c.former || done != c.done || !strings.Contains(why, c.why) || (why == "") != (c.why == "") {
			t.Errorf("%s: the former one: %t, it is not needed: %t, %q", name, former, done, why)
		}
	}
}

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

// world is what a hub is told, and tells.
type world struct {
	mu    sync.Mutex
	pods  []*corev1.Pod
	known bool
	shown []string
}

// has sets what the node's Pods are, and whether that is known.
func (w *world) has(known bool, pods ...*corev1.Pod) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pods, w.known = pods, known
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
	cfg.Pods = func(context.Context) ([]*corev1.Pod, bool) {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.pods, w.known
	}
	cfg.ShowAuthorities = func(all string) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.shown = append(w.shown, all)
	}
}

// TestMigration: a hub that served with a certificate of the cluster's goes on with that, shows Pods the new authority, also
// after a restart without the cloud, and changes over when no Pod from before is left.
func TestMigration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCloud(t, newAuthority(t, "kubernetes"))
		c.approve = func(*certificatesv1.CertificateSigningRequest) certificatesv1.RequestConditionType {
			return certificatesv1.CertificateApproved
		}
		old := pod("old", time.Now().Add(-time.Hour))
		w := &world{pods: []*corev1.Pod{old}}
		n := newNode(t, c, w.config)
		write(t, filepath.Join(n.cfg.Dir, fileFormer), string(formerOf(t, c.ca, year)))
		write(t, filepath.Join(n.cfg.Dir, fileFormerKey), "left over")
		if err := n.Ensure(n.ctx); err != nil {
			t.Fatal(err)
		}
		servedBy := func(want *authority) {
			t.Helper()
			pair, err := n.Serving(nil)
			if err != nil || pair.Leaf.CheckSignatureFrom(want.cert) != nil || len(pair.Certificate) != 1 {
				t.Fatalf("served by %v, %v; want %v", pair, err, want.cert.Subject)
			}
		}
		servedBy(c.ca)
		if len(w.told()) > 0 {
			t.Error("authorities are shown before there are any")
		}
		stop := n.start()
		time.Sleep(time.Minute)
		servedBy(c.ca)
		if shown := w.told(); len(shown) == 0 || shown[len(shown)-1] != string(c.hubs.pem) {
			t.Fatalf("shown: %q", shown)
		}
		if s := n.Report(); s.Former == nil || !strings.Contains(s.Former.Why, "not known") || s.Serving.Problem != "" {
			t.Errorf("%+v", s)
		}
		stop()

		// Cut off, and started anew: what is shown stays, and since when.
		c.change(func() { c.cut = true })
		time.Sleep(time.Hour)
		w.told()
		since := pod("since", time.Now().Add(-50*time.Minute))
		w.has(true, old, since)
		n = newNode(t, c, func(cfg *Config) { cfg.Dir = n.cfg.Dir; w.config(cfg) })
		err := n.Ensure(n.ctx)
		if shown := w.told(); err != nil || len(shown) == 0 || shown[0] != string(c.hubs.pem) {
			t.Fatalf("after a restart: %v, shown %q", err, shown)
		}
		stop = n.start()
		time.Sleep(time.Minute)
		servedBy(c.ca)
		if s := n.Report(); s.Former == nil || !strings.Contains(s.Former.Why, "1 started before") ||
			!strings.Contains(s.Former.Why, "shop/old") {
			t.Errorf("%+v", s.Former)
		}
		w.has(true, since)
		time.Sleep(time.Minute)
		servedBy(c.hubs)
		if s := n.Report(); s.Former != nil {
			t.Errorf("%+v", s.Former)
		}
		for _, name := range []string{fileFormer, fileFormerKey} {
			if _, err := os.Stat(filepath.Join(n.cfg.Dir, name)); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s is left: %v", name, err)
			}
		}
		stop()
		if names := n.asked(c); len(names) != 1 {
			t.Errorf("asked for %v", names)
		}
	})
}

// TestNobodySigns: where the cloud is older than the hub, or has none of our programs, the former certificate serves while it is
// valid, and the state says what is missing.
func TestNobodySigns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCloud(t, newAuthority(t, "kubernetes"))
		w := &world{known: true}
		n := newNode(t, c, w.config)
		write(t, filepath.Join(n.cfg.Dir, fileFormer), string(formerOf(t, c.ca, 24*time.Hour)))
		if err := n.Ensure(n.ctx); err != nil {
			t.Fatal(err)
		}
		defer n.start()()
		time.Sleep(20 * time.Hour)
		pair, err := n.Serving(nil)
		s := n.Report()
		if err != nil || pair.Leaf.CheckSignatureFrom(c.ca.cert) != nil || s.Former == nil ||
			!strings.Contains(s.Serving.Problem, "as new as this hub") || s.Serving.Waiting == "" {
			t.Errorf("%v, %+v, %+v", err, s.Serving, s.Former)
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
