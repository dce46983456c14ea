package identity

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
)

const (
	// askEvery is the mean time between two requests for the cloud's authorities. Each request costs 8 KB, because it opens a
	// connection of its own, to see which authority verifies the server. askSoon is the longest wait after a start and after the
	// link has come back, when the API server may have a new certificate. askAgain is the pause after a failure.
	askEvery, askSoon, askAgain = time.Hour, time.Minute, 5 * time.Minute

	// fileNotes holds the notes about the authorities in fileCA.
	fileNotes = "ca.json"
	// rootConfigMap holds the authorities in every namespace; kube-controller-manager writes it. rootKey is its key.
	rootConfigMap, rootKey = "kube-root-ca.crt", "ca.crt"
)

// Authorities is a node's knowledge of the cloud's authorities.
type Authorities struct {
	Trusted []Trusted `json:"trusted"`
	// Heard is when the cloud named them last.
	Heard time.Time `json:"heard,omitzero"`
	// Problem says why the hub could not ask for them, or did not believe the answer.
	Problem string `json:"problem,omitempty"`
}

// Trusted is one trusted authority.
type Trusted struct {
	Subject string `json:"subject"`
	// Hash is the hash of its public key, in the form of kubeadm's --discovery-token-ca-cert-hash.
	Hash     string    `json:"hash"`
	NotAfter time.Time `json:"notAfter"`
	// Since is when the node learned of it; zero means that it is one of the first.
	Since time.Time `json:"since,omitzero"`
	// Missing is for how long the cloud has not named it.
	Missing string `json:"missing,omitempty"`
}

// following is what FollowAuthorities has to show in Status.
type following struct {
	mu   sync.Mutex
	said Authorities
	file string // what was wrong with a file, last
}

// FollowAuthorities keeps the trusted authorities up to date, by the rules of TrustSet, until ctx ends. It asks the cloud about
// once an hour, and soon after the function reachable reports that the link is back. It also reads the node's kubeconfigs when
// they change. If Config.CAFile is set, it only waits for ctx to end, because a person then replaces the authorities.
func (m *Manager) FollowAuthorities(ctx context.Context, reachable func() (bool, <-chan struct{})) error {
	if m.cfg.CAFile != "" {
		<-ctx.Done()
		return nil
	}
	var due time.Time // by the running clock
	was := false
	for {
		m.readFiles(ctx)
		is, changed := reachable()
		if soon := m.cfg.Ends.Running().Add(m.cfg.Ends.Below(askSoon)); is && !was && (due.IsZero() || soon.Before(due)) {
			due = soon
		}
		was = is
		if is && !m.cfg.Ends.Running().Before(due) {
			wait := askEvery*9/10 + m.cfg.Ends.Below(askEvery/5)
			if !m.hear(ctx) {
				wait = askAgain
			}
			due = m.cfg.Ends.Running().Add(wait)
		}
		wait := poll
		if is {
			wait = min(wait, m.cfg.Ends.Until(due))
		}
		timer := time.NewTimer(max(wait, 0))
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-changed:
			timer.Stop()
		case <-timer.C:
		}
	}
}

// hear asks the cloud once, and reports whether it has named authorities.
func (m *Manager) hear(ctx context.Context) bool {
	named, by, err := m.askAuthorities(ctx)
	if err == nil {
		err = m.change(ctx, "the cloud", func(s TrustSet, n *Notes) (TrustSet, []Change, error) {
			next, changes, err := s.Heard(named, by, m.cfg.Ends.Wall())
			if errors.Is(err, ErrNothing) {
				err = fmt.Errorf("what the cloud names as its authorities is not believed: %w", err)
			}
			return next, changes, err
		})
	}
	if ctx.Err() != nil {
		return false
	}
	f := &m.following
	f.mu.Lock()
	before := f.said.Problem
	if f.said.Problem = ""; err == nil {
		f.said.Heard = m.cfg.Ends.Wall()
	} else {
		f.said.Problem = err.Error()
	}
	f.mu.Unlock()
	if err != nil && err.Error() != before {
		klog.FromContext(ctx).Error(nil, "Cannot find out whether the cloud's authorities change", "problem", err.Error())
	}
	return err == nil
}

// askAuthorities returns the authorities that the cloud names, in PEM, and the trusted authorities that verified the server. It
// reads the ConfigMap kube-root-ca.crt as the node. If that is refused or missing, it reads the ConfigMap cluster-info, which
// kubeadm makes public.
func (m *Manager) askAuthorities(ctx context.Context) (named []byte, by []*x509.Certificate, err error) {
	ctx, cancel := context.WithTimeout(klog.NewContext(ctx, logr.Discard()), attemptFor)
	defer cancel()
	roots, err := m.knownAuthority()
	if err != nil {
		return nil, nil, err
	}
	err = m.each(func(server *url.URL) error {
		named, by, err = m.asNode(ctx, server, roots)
		if errors.Is(err, errRefused) {
			refused := err
			if named, by, err = m.asAnybody(ctx, server, roots); err != nil && !errors.Is(err, errUnreachable) {
				err = fmt.Errorf("%w; %w: let nodes read ConfigMap %s/%s, as our chart does", refused, err,
					metav1.NamespacePublic, rootConfigMap)
			}
		}
		return err
	})
	return named, by, err
}

func (m *Manager) asNode(ctx context.Context, server *url.URL, roots *x509.CertPool) ([]byte, []*x509.Certificate, error) {
	pair := m.client.pair.Get()
	if pair == nil {
		return nil, nil, &classified{errRefused, "the node has no certificate"}
	}
	s, err := m.open(server, roots, credential{what: "the node's certificate", pair: pair})
	if err != nil {
		return nil, nil, err
	}
	defer s.close()
	const doing = "reading the cloud's authorities"
	found, err := s.CoreV1().ConfigMaps(metav1.NamespacePublic).Get(ctx, rootConfigMap, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil, &classified{errRefused, fmt.Sprintf("%s: there is no ConfigMap %s/%s", doing, metav1.NamespacePublic,
			rootConfigMap)}
	}
	if err != nil {
		return nil, nil, s.failed(ctx, doing, err)
	}
	return []byte(found.Data[rootKey]), s.verifiedBy(), nil
}

func (m *Manager) asAnybody(ctx context.Context, server *url.URL, roots *x509.CertPool) ([]byte, []*x509.Certificate, error) {
	s, err := m.open(server, roots, credential{})
	if err != nil {
		return nil, nil, err
	}
	defer s.close()
	info, err := s.clusterInfo(ctx)
	if err != nil {
		return nil, nil, err
	}
	named, err := namedIn(info)
	return named, s.verifiedBy(), err
}

// readFiles adds authorities that a person has put into kubelet's kubeconfig or the bootstrap kubeconfig. It needs no link. So it
// helps a node that was cut off while the cloud replaced all its authorities.
func (m *Manager) readFiles(ctx context.Context) {
	named := m.inKubeconfigs()
	sum := sha256.Sum256(named)
	digest := hex.EncodeToString(sum[:])
	if _, notes, err := m.trusted(); err != nil || notes.File == digest {
		return
	}
	err := m.change(ctx, "a kubeconfig of this node", func(s TrustSet, n *Notes) (TrustSet, []Change, error) {
		first := n.File == ""
		n.File = digest
		if len(named) == 0 || first && len(m.pins) > 0 {
			return s, nil, nil // there is none, or it was there when the pins chose from it
		}
		return s.Given(named, m.cfg.Ends.Wall())
	})
	said := ""
	if err != nil {
		said = err.Error()
	}
	m.following.mu.Lock()
	before := m.following.file
	m.following.file = said
	m.following.mu.Unlock()
	if said != "" && said != before {
		klog.FromContext(ctx).Error(nil, "Cannot take the cloud's authorities from a kubeconfig", "problem", said)
	}
}

// inKubeconfigs returns the authorities in the node's kubeconfigs, whatever credentials these contain.
func (m *Manager) inKubeconfigs() []byte {
	var all [][]byte
	for _, path := range []string{m.cfg.KubeletKubeconfig, m.cfg.BootstrapFile} {
		if path == "" {
			continue
		}
		content, err := ReadKeyFile(path)
		if err != nil {
			continue
		}
		config, err := clientcmd.Load(content)
		if err != nil || config.Contexts[config.CurrentContext] == nil {
			continue
		}
		if cluster := config.Clusters[config.Contexts[config.CurrentContext].Cluster]; cluster != nil {
			named, err := inline(path, cluster.CertificateAuthorityData, cluster.CertificateAuthority)
			if err == nil && len(named) > 0 {
				all = append(all, named)
			}
		}
	}
	return bytes.Join(all, []byte("\n"))
}

// trusted returns the authorities on disk, or errUnknown. The notes beside them (Notes) say with which pins (Config.CACertHashes)
// they were made. If those are the present pins, all authorities on disk count, otherwise only the pinned ones.
func (m *Manager) trusted() (TrustSet, Notes, error) {
	kept, err := ReadKeyFile(m.disk.File(fileCA))
	if errors.Is(err, fs.ErrNotExist) {
		return TrustSet{}, Notes{}, errUnknown
	}
	if err != nil {
		return TrustSet{}, Notes{}, fmt.Errorf("the cloud's authority: %w", err)
	}
	noted, err := ReadKeyFile(m.disk.File(fileNotes))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return TrustSet{}, Notes{}, fmt.Errorf("notes about the cloud's authority: %w", err)
	}
	set, notes, err := ReadNotes(kept, noted)
	if err != nil {
		return TrustSet{}, Notes{}, errUnknown
	}
	if now := m.pinsDigest(); notes.Version == 0 || notes.Pins != now {
		// An authority that is no longer pinned does not count: the operator has said that the cloud now has another.
		_, pinned, err := m.pinned(kept)
		if err != nil {
			return TrustSet{}, Notes{}, errUnknown
		}
		if set, notes, err = ReadNotes(pinned, noted); err != nil {
			return TrustSet{}, Notes{}, errUnknown
		}
		notes.Pins = now
	}
	return set, notes, nil
}

// pinsDigest returns a digest of the pins, or "none" without pins, but never "", which unreadable notes have.
func (m *Manager) pinsDigest() string {
	if len(m.pins) == 0 {
		return "none"
	}
	sum := sha256.New()
	pins := slices.SortedFunc(maps.Keys(m.pins), func(a, b [sha256.Size]byte) int { return bytes.Compare(a[:], b[:]) })
	for _, p := range pins {
		sum.Write(p[:])
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// change saves what the function decide makes of the present authorities. The parameter who is the source of the change, for the
// log. The notes are written first, because without them an authority that has no pin does not count.
func (m *Manager) change(ctx context.Context, who string,
	decide func(TrustSet, *Notes) (TrustSet, []Change, error),
) error {
	unlock, err := m.disk.Lock(m.client.kind + ".lock")
	if err != nil {
		return err
	}
	defer unlock()
	set, notes, err := m.trusted()
	if err != nil {
		return err
	}
	next, changes, wrong := decide(set, &notes)
	// The time of the cloud's answer matters only while an authority is missing, so it is not written every hour.
	missing := slices.ContainsFunc(next.Authorities, func(a Authority) bool { return a.Missing > 0 })
	if !missing && !set.Asked.IsZero() {
		next.Asked = set.Asked
	}
	encoded, err := notes.Encode(next)
	if err != nil {
		return err
	}
	if noted, err := ReadKeyFile(m.disk.File(fileNotes)); err != nil || !bytes.Equal(noted, encoded) {
		if err := m.disk.Write(fileNotes, encoded); err != nil {
			return err
		}
	}
	if len(changes) > 0 {
		if err := m.disk.Write(fileCA, next.PEM()); err != nil {
			return err
		}
	}
	for _, c := range changes {
		logger := klog.FromContext(ctx).WithValues("subject", c.Cert.Subject.String(), "hash", hashOf(c.Cert),
			"notAfter", c.Cert.NotAfter)
		if c.Added {
			logger.Info("The cloud has one more authority", "said", who)
		} else {
			logger.Info("The cloud has one authority less", "why", c.Why)
		}
	}
	return wrong
}

// early says why a certificate is to be renewed before its time; "" means that it is not.
func (m *Manager) early(pair *tls.Certificate, now time.Time) string {
	if pair == nil || m.cfg.CAFile != "" {
		return ""
	}
	set, _, err := m.trusted()
	if err != nil {
		return ""
	}
	if at := set.Early(pair.Leaf); at.IsZero() || now.Before(at) {
		return ""
	}
	return "the authority that signed the certificate has a successor"
}

// authorities returns what is known, for Status.
func (m *Manager) authorities() *Authorities {
	m.following.mu.Lock()
	said := m.following.said
	m.following.mu.Unlock()
	set, _, err := m.trusted()
	if err != nil {
		return &said
	}
	said.Trusted = trustedOf(set)
	return &said
}

func trustedOf(set TrustSet) (all []Trusted) {
	for _, a := range set.Authorities {
		t := Trusted{Subject: a.Cert.Subject.String(), Hash: hashOf(a.Cert), NotAfter: a.Cert.NotAfter, Since: a.Since}
		if a.Missing > 0 {
			t.Missing = a.Missing.Round(time.Second).String()
		}
		all = append(all, t)
	}
	return all
}

func hashOf(c *x509.Certificate) string {
	return fmt.Sprintf("sha256:%x", sha256.Sum256(c.RawSubjectPublicKeyInfo))
}

// measureAuthorities registers metrics that say whether a change of the authorities has arrived.
func (m *Manager) measureAuthorities() {
	register := promauto.With(m.cfg.Metrics)
	register.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "yurthub_cloud_authorities",
		Help: "Authorities by which the hub verifies the cloud: more than one while the cloud replaces them.",
	}, func() float64 {
		set, _, err := m.trusted()
		if err != nil {
			return 0
		}
		return float64(len(set.Authorities))
	})
	register.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "yurthub_cloud_authorities_heard_timestamp_seconds",
		Help: "When the cloud last told the hub its authorities, in Unix time; 0 means not since the hub's start.",
	}, func() float64 {
		m.following.mu.Lock()
		defer m.following.mu.Unlock()
		if m.following.said.Heard.IsZero() {
			return 0
		}
		return float64(m.following.said.Heard.Unix())
	})
}
