package identity

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"yurtcoordinator/internal/hub/keyfile"
)

const (
	// fileFormer has the certificate of kubernetes.io/kubelet-serving with which hubs of before served, and its key.
	fileFormer = "serving.pem"
	// fileFormerKey is the key of a request for one.
	fileFormerKey = "serving.request.key"
	// fileShown says since when kubelet is shown the hubs' authorities.
	fileShown = "hub.json"
	// shownVersion is that of its format.
	shownVersion = 1
	// shownLag is how long after that a Pod may still start without them: a kubelet that does not watch ConfigMaps reads them
	// each minute.
	shownLag = 2 * time.Minute
)

// Former is what Status says of a former certificate while it is served with.
type Former struct {
	NotAfter time.Time `json:"notAfter"`
	// Why says why it is still in use.
	Why string `json:"why"`
}

// noted is the content of fileShown.
type noted struct {
	Version int       `json:"version"`
	Shown   time.Time `json:"shown"`
}

// serving is all that the choice of a certificate to serve with depends on.
type serving struct {
	// own is by the pool's authority, former by the cluster's; nil means that there is none.
	own, former *x509.Certificate
	// foreign says that the cloud no longer names the authority of former: whoever starts now does not know it.
	foreign bool
	// shown is since when Pods are shown the authority of own.
	shown time.Time
	// pods are those of this node; known says that these are all.
	pods  []*corev1.Pod
	known bool
	now   time.Time
}

// choose says whether to serve with the former certificate, and why; and whether that one is not needed any more.
//
// Pods that run know the authorities that they read when they started: client-go reads the file again from 1.36 on. By the
// handshake, who knows which can't be told.
func (s serving) choose() (former, done bool, why string) {
	usable := func(c *x509.Certificate) bool { return c != nil && !s.now.After(c.NotAfter) }
	switch {
	case s.former == nil:
		return false, false, ""
	case !usable(s.former):
		return s.own == nil, s.own != nil, "there is no other certificate"
	case !usable(s.own):
		return true, false, "the hub has no certificate by its pool's authority"
	case s.foreign:
		return false, false, ""
	case !s.known:
		return true, false, "it is not known yet which Pods run"
	}
	old := slices.DeleteFunc(slices.Clone(s.pods), func(p *corev1.Pod) bool {
		return !verifies(p) || !startOf(p).Before(s.shown.Add(shownLag))
	})
	if len(old) == 0 {
		return false, true, ""
	}
	return true, false, fmt.Sprintf("of its Pods %d started before %s, such as %s/%s, and may not know the authority of the new "+
		"one", len(old), date(s.shown.Add(shownLag)), old[0].Namespace, old[0].Name)
}

// verifies reports whether a Pod that may run is given the authorities by which it verifies the hub.
func verifies(p *corev1.Pod) bool {
	if p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
		return false
	}
	return slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool {
		if v.ConfigMap != nil && v.ConfigMap.Name == rootConfigMap {
			return true
		}
		return v.Projected != nil && slices.ContainsFunc(v.Projected.Sources, func(p corev1.VolumeProjection) bool {
			return p.ConfigMap != nil && p.ConfigMap.Name == rootConfigMap
		})
	})
}

// startOf is when a Pod started, at the earliest.
func startOf(p *corev1.Pod) time.Time {
	if p.Status.StartTime != nil {
		return p.Status.StartTime.Time
	}
	return p.CreationTimestamp.Time // its status may not have arrived
}

// verifiable fails unless one of the authorities that have come with a hub's certificate has signed it, for servers.
func verifiable(pair *tls.Certificate, now time.Time) error {
	roots := x509.NewCertPool()
	if len(pair.Certificate) == 1 {
		return errors.New("no authority has come with the certificate, by which Pods could verify it")
	}
	for _, der := range pair.Certificate[1:] {
		c, err := x509.ParseCertificate(der)
		if err != nil {
			return fmt.Errorf("what has come with the certificate: %w", err)
		}
		if !c.IsCA {
			return fmt.Errorf("%q, which has come with the certificate, is no authority", c.Subject)
		}
		roots.AddCert(c)
	}
	if err := signedFor(pair, roots, now); err != nil {
		return fmt.Errorf("the authorities that have come with the certificate do not verify it: %w", err)
	}
	return nil
}

// signedFor fails unless a pair's certificate is for servers by one of the roots, whether or not it has begun or ended: clocks
// may be slow, and a node may have been off for long.
func signedFor(pair *tls.Certificate, roots *x509.CertPool, now time.Time) error {
	between := x509.NewCertPool()
	for _, der := range pair.Certificate[1:] {
		if c, err := x509.ParseCertificate(der); err == nil {
			between.AddCert(c)
		}
	}
	if now.Before(pair.Leaf.NotBefore) {
		now = pair.Leaf.NotBefore
	}
	if now.After(pair.Leaf.NotAfter) {
		now = pair.Leaf.NotAfter
	}
	_, err := pair.Leaf.Verify(x509.VerifyOptions{
		Roots: roots, Intermediates: between, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	return err
}

// named returns the authorities that the cloud names now; nil means that they are not known.
func (m *Manager) named() *x509.CertPool {
	if m.cfg.CAFile != "" {
		roots, _ := m.knownAuthority()
		return roots
	}
	set, _, err := m.trusted()
	if err != nil {
		return nil
	}
	roots := x509.NewCertPool()
	for _, a := range set.Authorities {
		if a.Missing == 0 {
			roots.AddCert(a.Cert)
		}
	}
	return roots
}

// settle shows the authorities that have come with the hub's certificate, and decides which one to serve with.
func (m *Manager) settle(ctx context.Context) {
	if m.cfg.Serve == nil {
		return
	}
	now, own := m.clock.Now(), m.serving.pair.Get()
	s := serving{now: now}
	if own != nil {
		s.own, s.shown = own.Leaf, m.showAuthorities(ctx, own, now)
	}
	former, err := m.loadFormer()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		klog.FromContext(ctx).V(1).Info("The former certificate on disk is useless", "err", err)
	}
	if former != nil {
		s.former = former.Leaf
		if roots := m.named(); roots != nil {
			s.foreign = signedFor(former, roots, now) != nil
		}
		s.pods, s.known = m.cfg.Pods(ctx)
	}
	use, done, why := s.choose()
	if done {
		err := errors.Join(m.disk.Remove(fileFormer), m.disk.Remove(fileFormerKey))
		klog.FromContext(ctx).Info("Pods are served with the certificate by the pool's authority from now on", "err", err)
	}
	m.formerMu.Lock()
	defer m.formerMu.Unlock()
	if m.former = nil; use {
		m.former = &inUse{former, Former{NotAfter: former.Leaf.NotAfter, Why: why}}
	}
}

// inUse is a former certificate that is served with.
type inUse struct {
	pair *tls.Certificate
	said Former
}

func (m *Manager) formerInUse() *inUse {
	m.formerMu.Lock()
	defer m.formerMu.Unlock()
	return m.former
}

// showAuthorities has kubelet shown the authorities of the hub's certificate, and returns since when it is.
func (m *Manager) showAuthorities(ctx context.Context, own *tls.Certificate, now time.Time) (since time.Time) {
	var all []byte
	for _, der := range own.Certificate[1:] {
		all = append(all, encodeCerts(&x509.Certificate{Raw: der})...)
	}
	m.cfg.ShowAuthorities(string(all))
	encoded, err := keyfile.Read(m.disk.File(fileShown))
	var n noted
	if err == nil {
		err = json.Unmarshal(encoded, &n)
	}
	if err == nil && n.Version == shownVersion && !n.Shown.IsZero() && !n.Shown.After(now) {
		return n.Shown
	}
	if encoded, err = json.Marshal(noted{shownVersion, now}); err == nil {
		err = m.disk.Write(fileShown, encoded)
	}
	if err != nil { // then it counts from the next time on
		klog.FromContext(ctx).Error(err, "Cannot note since when the hubs' authorities are shown")
	}
	return now
}

// loadFormer reads the former certificate, if it is for this node and the address at which Pods come.
func (m *Manager) loadFormer() (*tls.Certificate, error) {
	content, err := keyfile.Read(m.disk.File(fileFormer))
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(content, content)
	if err != nil {
		return nil, fmt.Errorf("certificate and key in %s: %w", fileFormer, err)
	}
	wanted := m.wanted(m.serving)
	wanted.hub = false
	if err := wanted.matches(pair.Leaf); err != nil {
		return nil, fmt.Errorf("%s: %w", fileFormer, err)
	}
	return &pair, nil
}
