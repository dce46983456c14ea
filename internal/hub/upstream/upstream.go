package upstream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
	"k8s.io/klog/v2"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/hub/link"
	"yurtcoordinator/internal/live"
	"yurtcoordinator/internal/run"
)

// userAgent is what the hub calls itself in requests of its own.
const userAgent = "yurthub"

// Upstream is one API server at one or several addresses. Safe for concurrent use.
type Upstream struct {
	cfg         Config
	servers     []*server
	current     atomic.Int32 // index of the server that gets the requests while it is up
	credentials atomic.Pointer[Credentials]
	metrics     *metrics

	started atomic.Bool
	ready   chan struct{} // closed when Run has read the credentials
	stopped chan struct{} // closed when Run returns
	moved   chan struct{} // holds a value once Moved was called

	// installing serializes changes of the sessions' credentials.
	installing sync.Mutex

	// own is the best state of the links over the node's own line. link and anyway also take in the detour: link if its Use is
	// ForAll, anyway if it is ForAll or ForSome. anyway is for requests whose context comes from Anyway, link for all others.
	own, link, anyway *live.Value[link.State]
	// detour reaches the same servers by Config.Detour; nil means that no detour is in use.
	detour atomic.Pointer[Upstream]

	mu     sync.Mutex // orders the writers of own, link and anyway, and a new detour with changes of timing
	timing link.Timing
}

// New returns an Upstream. It checks cfg and registers metrics, but reads no files and uses no network.
func New(cfg Config) (*Upstream, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	if cfg.Link == (link.Timing{}) {
		cfg.Link = link.Standard()
	}
	if cfg.addresses == (addressTiming{}) {
		cfg.addresses = followed
	}
	if cfg.DialContext == nil {
		cfg.DialContext = Dial
	}
	u := &Upstream{
		cfg: cfg, ready: make(chan struct{}), stopped: make(chan struct{}), moved: make(chan struct{}, 1),
		own: live.NewValue(link.Unknown), link: live.NewValue(link.Unknown), anyway: live.NewValue(link.Unknown),
		timing: cfg.Link,
	}
	u.metrics = newMetrics(u)
	for _, address := range cfg.Servers {
		s := newServer(cfg, address, u.metrics)
		u.servers = append(u.servers, s)
		u.metrics.follow(s)
	}
	return u, nil
}

// Traffic returns what all connections have carried since New: bytes of TCP's payload, TLS included.
func (u *Upstream) Traffic() edge.Traffic {
	return edge.Traffic{Sent: u.metrics.sent.Load(), Received: u.metrics.received.Load(), Since: u.metrics.began}
}

// Carried returns what Traffic returns, by kind.
func (u *Upstream) Carried() edge.Carried {
	all := edge.Carried{}
	sent, received := u.metrics.spent.shown(0, &u.metrics.sent), u.metrics.spent.shown(1, &u.metrics.received)
	for k := range kinds {
		if b := (edge.Bytes{sent[k], received[k]}); b != (edge.Bytes{}) {
			all[k.String()] = b
		}
	}
	return all
}

// Run reads the credentials, probes every server and follows changes of the credential files, until ctx ends. Then it resets
// all connections. It fails if it cannot read the credentials at the start. It may be called once.
func (u *Upstream) Run(ctx context.Context) error {
	if u.started.Swap(true) {
		return fmt.Errorf("upstream %s: Run was called twice", u.cfg.Name)
	}
	log := klog.FromContext(ctx).WithValues("upstream", u.cfg.Name)
	ctx = klog.NewContext(ctx, log)
	defer func() {
		close(u.stopped)
		for _, s := range u.servers {
			s.session.Close()
		}
	}()
	loaded, err := u.cfg.loadCredentials()
	if err != nil {
		return err
	}
	loaded.log(ctx, u.cfg.Ends.Wall())
	u.install(loaded)
	close(u.ready)

	var group run.Group
	group.Add("credentials", u.followCredentials)
	for _, s := range u.servers {
		if u.cfg.Addresses != nil {
			group.Add("addresses of "+s.addr, func(ctx context.Context) error { return u.followAddresses(ctx, s) })
		}
		group.Add("link to "+s.addr, func(ctx context.Context) error { return u.followLink(ctx, s) })
		group.Add("probes of "+s.addr, func(ctx context.Context) error {
			return s.monitor.Run(klog.NewContext(ctx, log.WithValues("server", s.addr)))
		})
	}
	if u.cfg.Detour != nil {
		group.Add("detour", u.followDetour)
	}
	return group.Run(ctx)
}

// followLink judges the upstream's link again whenever one server's link changes, until ctx ends.
func (u *Upstream) followLink(ctx context.Context, s *server) error {
	for {
		_, changed := s.monitor.State().Watch()
		u.setState()
		select {
		case <-changed:
		case <-ctx.Done():
			return nil
		}
	}
}

// setState sets the upstream's link state: the best of its servers' states, or relayed if the detour answers.
func (u *Upstream) setState() {
	u.mu.Lock()
	defer u.mu.Unlock()
	best := link.Down
	for _, s := range u.servers {
		if state := s.state(); better(state, best) {
			best = state
		}
	}
	u.own.Set(best)
	forAll, forSome := best, best
	if best == link.Down && u.detourAnswers() {
		if forSome = link.Relayed; u.cfg.Detour.Use.Get() == ForAll {
			forAll = link.Relayed
		}
	}
	u.anyway.Set(forSome)
	u.link.Set(forAll)
}

// better reports whether a request has better chances over a link in state a than over one in state b. Unknown is better than
// failing, because an unknown link may be up.
func better(a, b link.State) bool {
	rank := [...]int{link.Down: 0, link.Failing: 1, link.Relayed: 1, link.Unknown: 2, link.Up: 3}
	return rank[a] > rank[b]
}

// Moved says that Config.Address and Config.CA return new values from now on. Run then resets every connection. It also hastens
// the next probe, unless a probe is unanswered or the link is down. While the link is down, Timing.DownInterval decides when the
// next probe comes.
func (u *Upstream) Moved() {
	select {
	case u.moved <- struct{}{}:
	default: // Run has yet to act on an earlier call
	}
}

// Link is the best state of the servers' links, in the order up, unknown, failing, down. If all are down, it is relayed while the
// detour works and its Use is ForAll.
func (u *Upstream) Link() *live.Value[link.State] { return u.link }

// Doubtful reports whether each server whose link is up has left a probe unanswered for longer than its answers usually take. It
// is false if no link is up.
func (u *Upstream) Doubtful() bool {
	doubtful := false
	for _, s := range u.servers {
		if s.state() == link.Up {
			if !s.monitor.Doubtful() {
				return false
			}
			doubtful = true
		}
	}
	return doubtful
}

// Servers returns the servers' addresses, HOST:PORT.
func (u *Upstream) Servers() (all []string) {
	for _, s := range u.servers {
		all = append(all, s.addr)
	}
	return all
}

// NotDown waits until the link is not down, or until ctx ends; then it returns the cause.
func (u *Upstream) NotDown(ctx context.Context) error {
	_, err := u.link.Wait(ctx, func(s link.State) bool { return s != link.Down })
	return err
}

// servesTime bounds the core read of Serves.
const servesTime = 5 * time.Second

// Serves makes a core read as the node. It reports whether an API server has answered, with no failure.
func (u *Upstream) Serves(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, servesTime)
	defer cancel()
	at := url.URL{Scheme: "https", Host: u.cfg.Servers[0].Host, Path: cmp.Or(u.cfg.CoreRead, "/readyz")}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), http.NoBody)
	if err != nil {
		return false
	}
	response, err := u.AsHub().RoundTrip(request)
	if err != nil {
		return false
	}
	_, _ = io.CopyN(io.Discard, response.Body, maxProbeBody) // only to leave the connection clean
	_ = response.Body.Close()
	return response.StatusCode < http.StatusInternalServerError
}

// AsNode returns a RoundTripper that presents the node's client certificate. It sets the scheme and host of requests, and waits
// up to startTimeout for Run to begin. While the link is down, it fails with a DownError (see NotSent).
func (u *Upstream) AsNode() http.RoundTripper { return &asker{upstream: u, asNode: true} }

// AsHub returns a RoundTripper like AsNode's for the hub's own requests, which name the hub as their user agent.
func (u *Upstream) AsHub() http.RoundTripper {
	return transport.NewUserAgentRoundTripper(userAgent, u.AsNode())
}

// AsCaller is AsNode without the client certificate, for requests that carry credentials of their own.
func (u *Upstream) AsCaller() http.RoundTripper { return &asker{upstream: u} }

// RESTConfig returns a configuration for client-go. Its requests are made as the node, in protobuf where the server supports
// that, and without a client-side rate limit. Writes tell the server a timeout. To act as another user, set Impersonate on a copy
// (rest.CopyConfig).
func (u *Upstream) RESTConfig() *rest.Config {
	return &rest.Config{
		Host:      "https://" + u.cfg.Servers[0].Host,
		Transport: timed{u.AsNode()},
		UserAgent: userAgent,
		QPS:       -1,
		ContentConfig: rest.ContentConfig{
			ContentType:        runtime.ContentTypeProtobuf,
			AcceptContentTypes: runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON,
		},
	}
}

// timed tells the server the client's deadline for each write, as the timeout in the query. Otherwise a server that hangs could
// carry out the write long after the client has given up. The write could then be a heartbeat of a dead node.
type timed struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper. It rounds timeouts up to a multiple of half a second, so that paths repeat. HTTP/2
// sends a repeated path as one byte.
func (t timed) RoundTrip(req *http.Request) (*http.Response, error) {
	if deadline, has := req.Context().Deadline(); has && req.Method != http.MethodGet {
		left := time.Until(deadline) //nolint:forbidigo // contexts end by package time
		query := req.URL.Query()
		query.Set("timeout", max(left+roundedTo-1, roundedTo).Truncate(roundedTo).String())
		req = req.Clone(req.Context())
		req.URL.RawQuery = query.Encode()
	}
	return t.RoundTripper.RoundTrip(req)
}

const roundedTo = time.Second / 2

// running waits until Run has begun; it fails once Run has returned.
func (u *Upstream) running(ctx context.Context) error {
	select {
	case <-u.stopped:
		return fmt.Errorf("upstream %s: %w: it has stopped", u.cfg.Name, ErrNotRunning)
	default:
	}
	select {
	case <-u.ready:
		return nil
	default:
	}
	// Not a hot path: only the first requests of a program that is starting come here.
	timer := time.NewTimer(startTimeout)
	defer timer.Stop()
	select {
	case <-u.ready:
		return nil
	case <-u.stopped:
		return fmt.Errorf("upstream %s: %w: it has stopped", u.cfg.Name, ErrNotRunning)
	case <-timer.C:
		return fmt.Errorf("upstream %s: %w: it has not started", u.cfg.Name, ErrNotRunning)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// pick returns the server for the next attempt; nil means that all are down or tried. Bit i of tried is for server i.
func (u *Upstream) pick(tried uint32) (s *server, index int) {
	current := int(u.current.Load())
	if tried&(1<<current) == 0 && u.servers[current].serves() {
		return u.servers[current], current
	}
	index = -1
	best := link.Down
	for i, candidate := range u.servers {
		if tried&(1<<i) != 0 {
			continue
		}
		state := candidate.state()
		if better(state, best) || s != nil && state == best && candidate.serves() && !s.serves() {
			s, index, best = candidate, i, state
		}
	}
	return s, index
}

// settle makes servers[index], which has just answered, the current server. It does so if the current server has failed this
// request, or if the current server does not serve and its link is not Unknown.
func (u *Upstream) settle(index int, tried uint32) {
	current := u.current.Load()
	s := u.servers[current]
	if int(current) != index && (tried&(1<<current) != 0 || s.state() != link.Unknown && !s.serves()) {
		u.current.CompareAndSwap(current, int32(index))
	}
}

// Retime changes the timing by which all links are judged.
func (u *Upstream) Retime(timing link.Timing) {
	u.mu.Lock()
	u.timing = timing
	u.mu.Unlock()
	if d := u.detour.Load(); d != nil {
		d.Retime(timing)
	}
	for _, s := range u.servers {
		s.monitor.Retime(timing)
	}
}

// down returns the error of a request that found every link down.
func (u *Upstream) down() error {
	var since time.Time
	var causes []error
	for _, s := range u.servers {
		began, err := s.monitor.Last()
		if began.After(since) {
			since = began // when the last one went down
		}
		if err == nil {
			err = errors.New("it has just come up")
		}
		causes = append(causes, fmt.Errorf("%s: %w", s.addr, err))
	}
	return &DownError{Name: u.cfg.Name, Since: since, Err: errors.Join(causes...)}
}
