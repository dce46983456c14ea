package upstream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
	"k8s.io/klog/v2"

	"yurtcoordinator/internal/hub/link"
)

const (
	// startTimeout is how long a request waits for Run to begin.
	startTimeout = 3 * time.Second
	// untakenMost is after how many refused requests about a Lease, in a row, the hub leaves a server.
	untakenMost = 2
	// leftFor is how long the hub avoids a server after the server's last refusal of a Lease. Only a new try can then show
	// whether the server has recovered.
	leftFor = time.Minute
	// answerWithin is the query of a check. With it, an API server that has lost etcd answers 504 after 5 s, not after a minute.
	// The rest of the check's 10 s (checkTimeout in package link) is for the way.
	answerWithin = "?timeout=5s"
	// maxProbeBody bounds how many bytes of a probe's answer the hub reads before it uses the connection again.
	maxProbeBody = 4 << 10
)

// errSick ends the connections to a server that refuses Leases. errHung ends all connections because one of them is dead.
var (
	errSick = errors.New("the server does not take Leases")
	errHung = errors.New("a connection to the server is dead, and others are not")
)

// server is one address of an upstream.
type server struct {
	cfg     Config
	url     *url.URL
	addr    string // host:port
	name    string // in its certificate
	monitor *link.Monitor
	metrics *metrics

	session *session
	unready atomic.Bool   // the server answers /readyz, but with a failure
	untaken atomic.Uint32 // how many requests about a Lease in a row have failed
	again   atomic.Uint32 // after how many of them all connections are reset next
	refused atomic.Int64  // when the last of them did, as time.Duration since began

	began time.Time
	heard atomic.Int64 // when bytes of the verified server last arrived, as time.Duration since began; 0 means never
}

func newServer(cfg Config, address *url.URL, m *metrics) *server {
	port := address.Port()
	if port == "" {
		port = "443"
	}
	s := &server{
		cfg: cfg, url: address, addr: net.JoinHostPort(address.Hostname(), port),
		name: cmp.Or(cfg.ServerName, address.Hostname()), metrics: m, began: cfg.Ends.Running(),
	}
	s.session = newSession(s)
	judged := link.Config{Timing: cfg.Link, Probe: s.probe, Heard: s.lastHeard, WentDown: s.session.Reset, Ends: cfg.Ends}
	if cfg.CoreRead != "" {
		judged.Check = s.check
	}
	s.monitor = link.NewMonitor(judged)
	return s
}

// address returns the server's present address, HOST:PORT.
func (s *server) address() (string, error) {
	if s.cfg.Address == nil {
		return s.addr, nil
	}
	return s.cfg.Address()
}

// at returns the URL of a path of the API at this server.
func (s *server) at(path string) string { return s.url.JoinPath(path).String() }

func (s *server) state() link.State { return s.monitor.State().Get() }

// serves reports whether the server answers, says that it is ready, and takes Leases.
func (s *server) serves() bool {
	return s.state() == link.Up && !s.unready.Load() &&
		(s.untaken.Load() < untakenMost || s.cfg.Ends.Since(s.began)-time.Duration(s.refused.Load()) >= leftFor)
}

// notTaken records that a request about a Lease has failed, and returns how many have in a row.
func (s *server) notTaken() uint32 {
	s.refused.Store(int64(s.cfg.Ends.Since(s.began)))
	return s.untaken.Add(1)
}

// leaseHung records that a request about a Lease, sent at sentAt, got no answer in time. Either the server has lost its storage,
// or the request's connection is dead. If the server's last answer was a failure, leaseHung suspects the server (leave), and
// otherwise the connection (hung). It also has the link's monitor make a check.
func (s *server) leaseHung(sentAt time.Time) {
	if n := s.notTaken(); s.monitor.Fails() {
		s.leave(n)
	} else {
		s.hung(n, sentAt)
	}
	s.monitor.CoreHung()
}

// leave resets the connections to a server that has not taken n Leases in a row, if n is high enough and the hub has no other
// address. A load balancer at the address may then choose a better server.
func (s *server) leave(n uint32) {
	if len(s.cfg.Servers) == 1 && n >= max(untakenMost, s.again.Load()) {
		s.resetAt(n, errSick)
	}
}

// hung judges a request about a Lease, or a check, that was sent at sentAt and timed out. It is the last of n in a row that
// failed. If the server was heard since sentAt, only this request's connection seems dead, for example because a middlebox has
// forgotten it. Then hung resets all connections. The link's monitor would not notice, because it acts only if all connections
// are silent.
func (s *server) hung(n uint32, sentAt time.Time) {
	if s.lastHeard().After(sentAt) && n >= s.again.Load() {
		s.resetAt(n, errHung)
	}
}

// resetAt resets the connections after n failures in a row. The next reset needs twice as many, because all servers may be sick.
func (s *server) resetAt(n uint32, cause error) {
	s.again.Store(2 * n)
	s.session.Reset(cause)
}

// leaseAnswered records the status of an answer to a request about a Lease. 429 and 5xx are refusals. After untakenMost refusals
// in a row, pick prefers another server, and leave resets the connections if there is no other address. A busy server (429) keeps
// its connections, because new ones would add load. Only a write that is taken ends the count, because a server that can't write
// may still read.
func (s *server) leaseAnswered(status int, write bool) {
	if status < http.StatusInternalServerError && status != http.StatusTooManyRequests {
		if write {
			s.untaken.Store(0)
			s.again.Store(0)
		}
		return
	}
	if n := s.notTaken(); status != http.StatusTooManyRequests {
		s.leave(n)
	}
}

// hears records that bytes of the verified server have just arrived.
func (s *server) hears() { s.heard.Store(int64(max(s.cfg.Ends.Since(s.began), 1))) }

// lastHeard returns when something of the verified server last arrived; zero if never.
func (s *server) lastHeard() time.Time {
	if since := time.Duration(s.heard.Load()); since > 0 {
		return s.began.Add(since)
	}
	return time.Time{}
}

// suspect counts err, and tells the monitor that the link may have caused it.
func (s *server) suspect(err error) {
	s.metrics.failures.WithLabelValues(s.addr).Inc()
	s.monitor.TrafficFailed(err)
}

// down returns the error of a request that this server's link failed.
func (s *server) down(sent bool, cause error) error {
	since, err := s.monitor.Last()
	if err == nil {
		err = cause
	}
	return &DownError{Name: s.cfg.Name, Since: since, Sent: sent, Err: fmt.Errorf("%s: %w", s.addr, err)}
}

// probe asks the server for any answer. A server that answers "not ready" is reachable, but the hub uses it only if no other
// server is ready.
func (s *server) probe(ctx context.Context, ask link.Ask) (err error) {
	start := s.cfg.Ends.Running()
	defer func() { s.metrics.probed(s.addr, ask, err == nil, s.cfg.Ends.Since(start)) }()
	if small := ask == link.Ping || ask == link.Knock; small && len(s.cfg.Servers) == 1 { // of several, which are ready?
		if there, err := s.session.Ask(ctx, ask); there {
			return probeError(err)
		}
	}
	by := Fresh
	if ask != link.Fresh {
		by = Node
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.at("/readyz"), nil)
	if err != nil {
		return fmt.Errorf("probe: %w", err)
	}
	request.Header.Set("User-Agent", userAgent)
	response, err := s.session.RoundTrip(by, urgent, request)
	if err != nil {
		err = s.cfg.explain(err)
		if wrong := (*CertificateError)(nil); errors.As(err, &wrong) && s.state() != link.Down {
			klog.FromContext(ctx).Error(err, "The server and this node do not trust each other's certificates")
		}
		return probeError(err)
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

func probeError(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("probe: %w", err)
}

// check makes a core read as the node, and reports the answer's status. It asks for an answer within answerWithin.
func (s *server) check(ctx context.Context) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.at(s.cfg.CoreRead)+answerWithin, nil)
	if err != nil {
		return
	}
	request.Header.Set("User-Agent", userAgent)
	sentAt := s.cfg.Ends.Running()
	response, err := s.session.RoundTrip(Node, urgent, request)
	switch broken := (http2.StreamError{}); {
	case err == nil:
		_, _ = io.CopyN(io.Discard, response.Body, maxProbeBody) // only to leave the connection clean
		_ = response.Body.Close()
		s.monitor.CoreAnswered("", response.StatusCode, sentAt)
	case errors.As(err, &broken) && broken.Code == http2.ErrCodeInternal:
		// An API server whose time is over sends 504, or breaks the request off like this.
		s.monitor.CoreAnswered("", http.StatusGatewayTimeout, sentAt)
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		s.hung(s.notTaken(), sentAt)
	default: // no answer: probes find out what that says about the link
	}
}
