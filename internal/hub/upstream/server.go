package upstream

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"

	"yurtcoordinator/internal/hub/link"
)

const (
	protocolHTTP1 = "http/1.1"
	protocolHTTP2 = "h2"

	// dialTimeout and handshakeTimeout bound the steps of connecting: each outlasts a full queue of 4 s, and a packet that is
	// lost in it. A link that is called down ends both.
	dialTimeout      = 10 * time.Second
	handshakeTimeout = 10 * time.Second
	// startTimeout is how long a request waits for Run to begin.
	startTimeout = 3 * time.Second
	// unackedTimeout is how long TCP keeps a connection that nothing is acknowledged on. A link that is called down ends all of
	// them before; this is for one that is stuck alone.
	unackedTimeout = 12 * time.Second
	// nearTimeout is the same on a LAN, where an acknowledgement takes a millisecond and is the kernel's, however busy a
	// program is.
	nearTimeout = 3 * time.Second
	// pingAfter is how long an HTTP/2 connection may be quiet before it is pinged, pingTimeout how long the answer may take.
	// They find a connection that is stuck alone while nothing is sent over it. One with a watch has a bookmark each minute, so
	// it is pinged when one is missing.
	pingAfter   = 75 * time.Second
	pingTimeout = 15 * time.Second
	// idleTimeout is how long an unused connection is kept: about as long as its pings cost less than a new connection.
	idleTimeout = 90 * time.Second
	// maxProbeBody bounds how much of a probe's answer is read, which must be read for the connection to be reused.
	maxProbeBody = 4 << 10
)

// server is one address of an upstream.
type server struct {
	cfg     Config
	url     *url.URL
	addr    string // host:port
	monitor *link.Monitor
	metrics *metrics

	transports atomic.Pointer[transports]
	http1Only  atomic.Bool // found while connecting; found out anew after each time down
	unready    atomic.Bool // it answers /readyz, with a failure

	began time.Time
	heard atomic.Int64 // time.Duration since began when bytes of the verified server last arrived; 0: never

	mu       sync.Mutex
	conns    map[*conn]struct{}
	epoch    context.Context // ends when the link goes down, and all dials with it
	endEpoch context.CancelCauseFunc
	stopped  bool
}

func newServer(cfg Config, address *url.URL, m *metrics) *server {
	port := address.Port()
	if port == "" {
		port = "443"
	}
	s := &server{
		cfg: cfg, url: address, addr: net.JoinHostPort(address.Hostname(), port), metrics: m,
		conns: map[*conn]struct{}{}, began: cfg.Ends.Running(),
	}
	s.epoch, s.endEpoch = context.WithCancelCause(context.Background())
	judged := link.Config{Timing: cfg.Link, Probe: s.probe, Heard: s.lastHeard, WentDown: s.reset, Ends: cfg.Ends}
	if cfg.CoreRead != "" {
		judged.Check = s.check
	}
	s.monitor = link.NewMonitor(judged)
	return s
}

// name is the one in the server's certificate.
func (s *server) name() string { return cmp.Or(s.cfg.ServerName, s.url.Hostname()) }

// at returns the URL of a path of the API at this server.
func (s *server) at(path string) string { return s.url.JoinPath(path).String() }

func (s *server) state() link.State { return s.monitor.State().Get() }

// serves reports whether the server answers, and says that it is ready.
func (s *server) serves() bool { return s.state() == link.Up && !s.unready.Load() }

// hears notes that something of the verified server has just arrived.
func (s *server) hears() { s.heard.Store(int64(max(s.cfg.Ends.Since(s.began), 1))) }

// lastHeard returns when something of the verified server last arrived; zero if never.
func (s *server) lastHeard() time.Time {
	if since := time.Duration(s.heard.Load()); since > 0 {
		return s.began.Add(since)
	}
	return time.Time{}
}

// dial opens a TLS connection. Its errors are connectErrors, with a DownError inside if the link is down.
func (s *server) dial(ctx context.Context, config *tls.Config, multiplexed, probe bool) (*tls.Conn, error) {
	c, err := s.connect(ctx, config, multiplexed, probe)
	if err == nil {
		return c, nil
	}
	err = &connectError{server: s.addr, err: s.cfg.explain(err)}
	if !probe && !errors.Is(err, ErrDown) && !errors.Is(err, ErrNotRunning) && !errors.Is(err, context.Canceled) {
		s.suspect(err)
	}
	return nil, err
}

func (s *server) connect(ctx context.Context, config *tls.Config, multiplexed, probe bool) (*tls.Conn, error) {
	s.mu.Lock()
	epoch := s.epoch
	s.mu.Unlock()
	dialing, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	if !probe {
		defer context.AfterFunc(epoch, cancel)()
	}
	address := s.addr
	var err error
	if s.cfg.Address != nil {
		address, err = s.cfg.Address()
	}
	var raw net.Conn
	if err == nil {
		raw, err = s.cfg.DialContext(dialing, "tcp", address)
	}
	if err != nil {
		if epoch.Err() != nil && !probe {
			return nil, s.down(false, err)
		}
		return nil, err
	}
	c := newConn(raw, s, multiplexed, probe)
	if err := s.keep(c, probe); err != nil {
		return nil, errors.Join(err, c.reset())
	}
	shaking, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	secured := tls.Client(c, config)
	if err := secured.HandshakeContext(shaking); err != nil {
		_ = c.reset() // the handshake's error says it all
		if ctx.Err() == nil && shaking.Err() != nil {
			err = fmt.Errorf("no TLS handshake within %v: %w", handshakeTimeout, err)
		}
		return nil, err
	}
	c.connected()
	c.verified.Store(true)
	s.hears()
	return secured, nil
}

// suspect counts err, and tells the monitor that the link may have caused it.
func (s *server) suspect(err error) {
	s.metrics.failures.WithLabelValues(s.addr).Inc()
	s.monitor.TrafficFailed(err)
}

// keep adds a connection to conns, or refuses it if the server is stopped or its link is down.
func (s *server) keep(c *conn, probe bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return ErrNotRunning
	}
	if !probe && s.state() == link.Down {
		return s.down(false, errors.New("it went down while connecting"))
	}
	s.conns[c] = struct{}{}
	return nil
}

func (s *server) forget(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
}

// reset ends every connection and every dial in progress. The link is already down when it is called, so keep lets no
// new one in.
func (s *server) reset(cause error) {
	s.mu.Lock()
	s.endEpoch(cause)
	s.epoch, s.endEpoch = context.WithCancelCause(context.Background())
	open := make([]*conn, 0, len(s.conns))
	for c := range s.conns {
		open = append(open, c)
	}
	s.mu.Unlock()
	s.http1Only.Store(false)
	for _, c := range open {
		_ = c.reset() // it fails only if the connection is closed already
	}
}

// stop ends every connection for good.
func (s *server) stop() {
	s.mu.Lock()
	s.stopped = true
	s.mu.Unlock()
	s.reset(ErrNotRunning)
	if t := s.transports.Load(); t != nil {
		t.closeIdle()
	}
}

// down returns the error of a request that this server's link failed.
func (s *server) down(sent bool, cause error) error {
	since, err := s.monitor.Last()
	if err == nil {
		err = cause
	}
	return &DownError{Name: s.cfg.Name, Since: since, Sent: sent, Err: fmt.Errorf("%s: %w", s.addr, err)}
}

// probe asks the server whether it is there. Any answer shows that it is: one that is not ready is asked only if no other is.
func (s *server) probe(ctx context.Context, ask link.Ask) (err error) {
	start := s.cfg.Ends.Running()
	defer func() { s.metrics.probed(s.addr, ask, err == nil, s.cfg.Ends.Since(start)) }()
	t := s.transports.Load()
	if small := ask == link.Ping || ask == link.Knock; small && len(s.cfg.Servers) == 1 { // of several, which are ready?
		if c := t.node.any(); c.ClientConn != nil && !s.http1Only.Load() {
			return s.askOn(ctx, c, ask)
		}
	}
	var via http.RoundTripper = t.probe
	if ask != link.Fresh {
		via = t.node.plain(s)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.at("/readyz"), nil)
	if err != nil {
		return fmt.Errorf("probe: %w", err)
	}
	request.Header.Set("User-Agent", userAgent)
	response, err := via.RoundTrip(request)
	if errors.Is(err, errNoHTTP2) {
		s.http1Only.Store(true)
		response, err = t.node.http1.RoundTrip(request)
	}
	if err != nil {
		err = s.cfg.explain(err)
		if wrong := (*CertificateError)(nil); errors.As(err, &wrong) && s.state() != link.Down {
			klog.FromContext(ctx).Error(err, "The server and this node do not trust each other's certificates")
		}
		return fmt.Errorf("probe: %w", err)
	}
	_, _ = io.CopyN(io.Discard, response.Body, maxProbeBody) // only to leave the connection clean
	_ = response.Body.Close()
	unready := response.StatusCode >= http.StatusInternalServerError
	if s.unready.Swap(unready) != unready {
		klog.FromContext(ctx).Info("The server answers otherwise whether it is ready", "ready", !unready,
			"status", response.Status)
	}
	return nil
}

// askOn asks the other end of a connection by a ping, after a knock that was not answered, or alone.
func (s *server) askOn(ctx context.Context, c carried, ask link.Ask) error {
	knocked := false
	if ask == link.Knock {
		var came bool
		if came, knocked = c.knock(ctx); came {
			return nil
		}
	}
	start := s.cfg.Ends.Running()
	if err := c.Ping(ctx); err != nil {
		return fmt.Errorf("probe: %w", err)
	}
	c.pinged(s.cfg.Ends.Since(start), knocked)
	s.metrics.spent.pinged()
	return nil
}

// check makes a core read as the node, and reports the answer's status.
func (s *server) check(ctx context.Context) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.at(s.cfg.CoreRead), nil)
	if err != nil {
		return
	}
	request.Header.Set("User-Agent", userAgent)
	sentAt := s.cfg.Ends.Running()
	response, err := s.transports.Load().node.plain(s).RoundTrip(request)
	if err != nil {
		return // no answer: probes find out what that says about the link
	}
	_, _ = io.CopyN(io.Discard, response.Body, maxProbeBody) // only to leave the connection clean
	_ = response.Body.Close()
	s.monitor.CoreAnswered(response.StatusCode, sentAt)
}

// transports are the connections to one server with one set of credentials.
type transports struct {
	node, caller *lanes
	probe        *http.Transport // a new connection for each request, as the node
}

func (s *server) newTransports(c *credentials) *transports {
	t := &transports{node: s.newLanes(c, true), caller: s.newLanes(c, false)}
	t.probe = s.newHTTP1(c.tls(s.name(), true, protocolHTTP1), true)
	return t
}

func (s *server) newHTTP1(config *tls.Config, probe bool) *http.Transport {
	t := &http.Transport{
		DialTLSContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return s.dial(ctx, config, false, probe)
		},
		DisableCompression:  true,
		DisableKeepAlives:   probe,
		MaxIdleConnsPerHost: 64,
		IdleConnTimeout:     idleTimeout,
		Protocols:           new(http.Protocols),
	}
	t.Protocols.SetHTTP1(true)
	return t
}

func (t *transports) closeIdle() {
	t.node.closeIdle()
	t.caller.closeIdle()
	t.probe.CloseIdleConnections()
}
