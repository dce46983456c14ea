package identity

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/klog/v2"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/live"
	"yurtcoordinator/internal/run"
)

const (
	// poll is how often the Manager looks at the files and the clock, because a person may have changed either.
	poll = 30 * time.Second

	// pauseMin is the first pause after a failure; see run.Backoff.
	pauseMin = 2 * time.Second
	// pauseUnreachable is the longest pause while no server answers. It is short, because a node with an expired certificate has
	// no cloud until a try succeeds. pauseAnswered is the longest pause after other failures, most of which a person must mend.
	pauseUnreachable = time.Minute
	pauseAnswered    = 5 * time.Minute
	// pauseDone is the shortest time between two certificates, however short their lives.
	pauseDone = time.Minute

	// ensureTries is how many times Ensure tries to get a certificate, with pauses of at most pauseEnsure. expiredFor is how long
	// Ensure tries to replace an expired certificate.
	ensureTries = 10
	pauseEnsure = 15 * time.Second
	expiredFor  = 5 * time.Second
)

// Manager gets, keeps and renews a node's certificates.
type Manager struct {
	cfg     Config
	dial    func(ctx context.Context, network, address string) (net.Conn, error)
	pins    map[[sha256.Size]byte]bool
	disk    KeyDir
	client  *rotation
	serving *rotation
	// kubeletsTrouble says why the last try to renew kubelet's certificate failed; "" means that it did not fail. Only the
	// goroutine that keeps the client certificate uses it.
	kubeletsTrouble string
	following       following
}

// New returns a Manager. It does nothing until Ensure or Run.
func New(cfg Config) (*Manager, error) {
	pins, err := cfg.validate()
	if err != nil {
		return nil, err
	}
	if cfg.ShowAuthorities == nil {
		cfg.ShowAuthorities = func(string) {}
	}
	if cfg.Dial == nil {
		cfg.Dial = (&net.Dialer{}).DialContext
	}
	m := &Manager{cfg: cfg, pins: pins, disk: KeyDir{Path: cfg.Dir}}
	m.dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, dialFor)
		defer cancel()
		return cfg.Dial(ctx, network, address)
	}
	m.client = &rotation{kind: "client", file: "client", pair: live.NewValue[*tls.Certificate](nil), wanted: request{
		node: cfg.Node, signer: certificatesv1.KubeAPIServerClientKubeletSignerName, use: x509.ExtKeyUsageClientAuth,
		usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth},
	}}
	m.serving = &rotation{kind: "serving", file: "hub", pair: live.NewValue[*tls.Certificate](nil), wanted: request{
		node: cfg.Node, hub: true, signer: edge.SignerHubs, use: x509.ExtKeyUsageServerAuth,
		usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageServerAuth},
	}}
	m.measure()
	return m, nil
}

// Files returns the paths of the cloud's authorities, of the node's certificate and of its key; the last two are one file. The
// files exist once Ensure has returned nil.
func (m *Manager) Files() (ca, cert, key string) {
	ca = m.cfg.CAFile
	if ca == "" {
		ca = m.disk.File(fileCA)
	}
	pair := m.disk.File(m.client.filePair())
	return ca, pair, pair
}

// Ensure returns nil once the files of the method Files exist and the certificate is for this node. If the node has a valid
// certificate, Ensure makes no request. If the certificate has expired, Ensure tries to replace it for 5 seconds and then returns
// nil, because a node must also start while it is cut off; Run goes on trying. If there is no certificate, Ensure tries ten
// times, some minutes in all; its error says what was missing.
//
// Ensure must not be called while Run runs.
func (m *Manager) Ensure(ctx context.Context) error {
	logger := klog.FromContext(ctx)
	hubs, _ := m.load(m.serving) // if there is none, Run says why
	m.serving.adopt(hubs)
	m.showAuthorities() // before kubelet is served
	pause := run.Backoff{Min: pauseMin, Max: pauseEnsure}
	for try := 1; ; try++ {
		present, reason := m.load(m.client)
		m.client.adopt(present)
		if reason != nil && !errors.Is(reason, fs.ErrNotExist) {
			logger.Error(reason, "The certificate on disk is useless; getting another")
		}
		_, unknown := m.knownAuthority()
		switch usable := present != nil && unknown == nil; {
		case usable && !m.cfg.Ends.Wall().After(present.Leaf.NotAfter):
			return nil
		case usable:
			brief, cancel := context.WithTimeout(ctx, expiredFor)
			err := m.attempt(brief, m.client)
			cancel()
			m.report(ctx, m.client, err)
			return context.Cause(ctx)
		}
		err := m.attempt(ctx, m.client)
		m.report(ctx, m.client, err)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("no certificate for node %s: %w", m.cfg.Node, context.Cause(ctx))
		}
		if try == ensureTries {
			return fmt.Errorf("no certificate for node %s after %d tries: %w", m.cfg.Node, try, err)
		}
		_ = run.Pause(ctx, pause.Next(m.cfg.Ends.Float64())) // the next try sees that ctx has ended
	}
}

// Run keeps and renews the certificates until ctx ends. It retries failures, shows them in Status, and returns nil.
func (m *Manager) Run(ctx context.Context) error {
	var keeping sync.WaitGroup
	keeping.Go(func() { m.keep(ctx, m.client) })
	keeping.Go(func() { m.keep(ctx, m.serving) })
	keeping.Wait()
	return nil
}

// Serving returns the certificate with which the hub serves at Config.Serve; use it as tls.Config.GetCertificate. Run gets and
// renews that certificate. Without our chart in the cloud nobody signs it. Until there is a certificate, handshakes fail with an
// error that says why.
func (m *Manager) Serving(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if pair := m.serving.pair.Get(); pair != nil {
		// Without the authorities, which whoever trusts them has.
		return &tls.Certificate{Certificate: pair.Certificate[:1], PrivateKey: pair.PrivateKey, Leaf: pair.Leaf}, nil
	}
	if state := m.serving.state(); state.Problem != "" {
		return nil, fmt.Errorf("no certificate to serve with: %s", state.Problem)
	}
	return nil, errors.New("no certificate to serve with yet")
}

// Served has the hub's certificate for Config.Serve, followed by the authorities that verify it; nil means none yet.
func (m *Manager) Served() *live.Value[*tls.Certificate] { return m.serving.pair }

// Status is the state of a node's certificates.
type Status struct {
	Client  State `json:"client"`
	Serving State `json:"serving"`
	// Authorities are the cloud's; nil means that a person gives them in a file.
	Authorities *Authorities `json:"authorities,omitempty"`
}

// State is the state of one certificate.
type State struct {
	// NotBefore and NotAfter are the present certificate's; zero means that there is none.
	NotBefore time.Time `json:"notBefore,omitzero"`
	NotAfter  time.Time `json:"notAfter,omitzero"`
	// RenewAt is when the Manager will renew it.
	RenewAt time.Time `json:"renewAt,omitzero"`
	// Problem says in plain words what is wrong and what to do about it; Since is when the trouble began.
	Problem string    `json:"problem,omitempty"`
	Since   time.Time `json:"since,omitzero"`
	// Waiting is the name of the CertificateSigningRequest that is under way.
	Waiting string `json:"waiting,omitempty"`
}

// Report returns the present state. For a Given it returns nil.
func (m *Manager) Report() *Status {
	s := &Status{Client: m.client.state(), Serving: m.serving.state()}
	if m.cfg.CAFile == "" {
		s.Authorities = m.authorities()
	}
	return s
}

// measure registers metrics that say when the certificates end, for alerts.
func (m *Manager) measure() {
	for kind, end := range map[string]func() time.Time{
		m.client.kind:  func() time.Time { return m.client.state().NotAfter },
		m.serving.kind: func() time.Time { return m.serving.state().NotAfter },
	} {
		promauto.With(m.cfg.Metrics).NewGaugeFunc(prometheus.GaugeOpts{
			Name: "yurthub_certificate_expiration_timestamp_seconds",
			Help: "When a certificate that the hub got by itself ends, in Unix time, by which it is (client, serving); 0: " +
				"there is none.",
			ConstLabels: prometheus.Labels{"certificate": kind},
		}, func() float64 {
			if end := end(); !end.IsZero() {
				return float64(end.Unix())
			}
			return 0
		})
	}
	if m.cfg.CAFile == "" {
		m.measureAuthorities()
	}
}

// keep renews one certificate when its time comes, until ctx ends.
func (m *Manager) keep(ctx context.Context, k *rotation) {
	var next time.Time // by the running clock, which nobody sets
	pause, seen := run.Backoff{Min: pauseMin, Max: pauseAnswered}, m.bootstrapDigest()
	for {
		at := m.serveAt()
		present, _ := m.load(k)
		k.adopt(present)
		wait := poll
		now := m.cfg.Ends.Wall()
		switch m.lacking(k, present, now) {
		case "":
			m.report(ctx, k, nil)
			pause.Reset()
			if present != nil {
				wait = min(wait, renewAt(present.Leaf).Sub(now))
			}
		default:
			if digest := m.bootstrapDigest(); digest != seen {
				// A person has acted, and waits for the effect.
				pause.Reset()
				seen, next = digest, time.Time{}
			}
			if m.cfg.Ends.Running().Before(next) {
				wait = min(wait, m.cfg.Ends.Until(next))
				break
			}
			err := m.attempt(ctx, k)
			if ctx.Err() != nil {
				return
			}
			m.report(ctx, k, err)
			if err == nil {
				pause.Reset()
				next = m.cfg.Ends.Running().Add(pauseDone)
				break
			}
			pause.Max = pauseAnswered
			if errors.Is(err, errUnreachable) || errors.Is(err, ErrLocked) {
				pause.Max = pauseUnreachable
			}
			wait = pause.Next(m.cfg.Ends.Float64())
			next = m.cfg.Ends.Running().Add(wait)
			wait = min(wait, poll)
		}
		if k == m.client {
			m.renewKubelets(ctx)
		} else {
			m.showAuthorities()
		}
		if m.rest(ctx, k, at, max(wait, time.Second)) {
			pause.Reset()
			next = time.Time{}
		}
		if ctx.Err() != nil {
			return
		}
	}
}

// serveAt returns the address at which Pods are served. It is invalid if Pods are not served or the address is not known.
func (m *Manager) serveAt() netip.Addr {
	if m.cfg.Serve == nil {
		return netip.Addr{}
	}
	return m.cfg.Serve.Get()
}

// wanted returns what certificate is wanted now.
func (m *Manager) wanted(k *rotation) request {
	wanted := k.wanted
	if at := m.serveAt(); k == m.serving && at.IsValid() {
		wanted.ips = []net.IP{at.AsSlice()}
	}
	return wanted
}

// errMoved says that the address at which Pods are served has changed.
var errMoved = errors.New("the address is another")

// rest pauses. It returns true early if another certificate is wanted because the address has changed.
func (m *Manager) rest(ctx context.Context, k *rotation, at netip.Addr, pause time.Duration) (moved bool) {
	if k != m.serving || m.cfg.Serve == nil {
		_ = run.Pause(ctx, pause) // the caller sees that ctx has ended
		return false
	}
	same, stop := m.cfg.Serve.While(ctx, func(now netip.Addr) bool { return now == at }, errMoved)
	defer stop()
	return run.Pause(same, pause) != nil && ctx.Err() == nil
}

// lacking says why a certificate needs to be replaced; "" means that it need not.
func (m *Manager) lacking(k *rotation, present *tls.Certificate, now time.Time) string {
	if k == m.serving && !m.serveAt().IsValid() {
		return "" // nobody needs it, or it is not known yet for which address
	}
	why := m.wanted(k).lacking(present, now)
	if why == "" && k == m.client {
		why = m.early(present, now)
	}
	return why
}

// report shows an attempt's outcome in Status, and logs it if it differs from the one before.
func (m *Manager) report(ctx context.Context, k *rotation, err error) {
	logger := klog.FromContext(ctx).WithValues("certificate", k.kind)
	now := m.cfg.Ends.Wall()
	k.mu.Lock()
	before := k.said
	if err == nil {
		k.said.Problem, k.said.Since, k.said.Waiting = "", time.Time{}, ""
	} else {
		k.said.Problem = err.Error()
		if pair := k.pair.Get(); pair != nil && now.After(pair.Leaf.NotAfter) {
			k.said.Problem = "the certificate expired at " + date(pair.Leaf.NotAfter) + ": " + k.said.Problem
		}
		if k.said.Since.IsZero() {
			k.said.Since = now
		}
		if !errors.Is(err, errWaiting) {
			k.said.Waiting = ""
		}
	}
	after := k.said
	k.mu.Unlock()
	if after.Problem == before.Problem {
		return
	}
	if err == nil {
		logger.Info("The node has its certificate", "notAfter", k.state().NotAfter)
		return
	}
	logger.Error(nil, "Cannot get a certificate, trying again", "problem", after.Problem)
}

// load reads a certificate and its key. It fails if they do not match or are not for this node.
func (m *Manager) load(k *rotation) (*tls.Certificate, error) {
	path := m.disk.File(k.filePair())
	content, err := ReadKeyFile(path)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(content)
	k.mu.Lock()
	same, pair := sum == k.loaded, k.last
	k.mu.Unlock()
	if same {
		return pair, nil
	}
	read, err := tls.X509KeyPair(content, content)
	if err != nil {
		return nil, fmt.Errorf("certificate and key in %s: %w", path, err)
	}
	pair = &read
	wanted := k.wanted
	wanted.ips = nil // a certificate for other addresses is better than none
	err = wanted.matches(pair.Leaf)
	if err == nil && wanted.hub {
		err = verifiable(pair, m.cfg.Ends.Wall())
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	k.mu.Lock()
	k.loaded, k.last = sum, pair
	k.mu.Unlock()
	return pair, nil
}

// rotation is what the Manager knows about one certificate.
type rotation struct {
	kind   string
	file   string // begins the names of its files
	wanted request
	pair   *live.Value[*tls.Certificate]

	mu   sync.Mutex
	said State
	// loaded is the digest of the file from which last was read: an unchanged file is not parsed again.
	loaded [sha256.Size]byte
	last   *tls.Certificate
}

func (k *rotation) filePair() string { return k.file + ".pem" }
func (k *rotation) fileKey() string  { return k.file + ".request.key" }

// adopt puts a pair into use. A nil pair changes nothing, because a file that can't be read for a while must not cost the node
// its identity.
func (k *rotation) adopt(pair *tls.Certificate) {
	if pair != nil {
		k.pair.Set(pair)
	}
}

// waits shows in Status which request waits.
func (k *rotation) waits(name string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.said.Waiting = name
}

func (k *rotation) state() State {
	k.mu.Lock()
	state := k.said
	k.mu.Unlock()
	if pair := k.pair.Get(); pair != nil {
		state.NotBefore, state.NotAfter, state.RenewAt = pair.Leaf.NotBefore, pair.Leaf.NotAfter, renewAt(pair.Leaf)
	}
	return state
}
