package relay

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"k8s.io/klog/v2"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/ends"
	"yurtcoordinator/internal/hub/link"
	"yurtcoordinator/internal/live"
)

// openTimeout bounds the opening of a connection to an API server.
const openTimeout = 10 * time.Second

// ServerConfig is what a Server needs. All fields but Metrics are required.
type ServerConfig struct {
	Credentials Credentials
	// Lends says whether this hub relays at all.
	Lends *live.Value[bool]
	// Link is the state of this hub's link to the cloud. The Server relays only while it is up.
	Link *live.Value[link.State]
	// Targets are the API servers to which tunnels may lead, HOST:PORT.
	Targets []string
	// Dial opens a connection to one of the Targets, by this hub's own way.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Node is this hub's own node. Nodes returns the pool's nodes, as the cloud last listed them; nil means that the cloud has
	// not listed them yet. Denied returns the users and credential ids whose certificates are no longer valid in the pool, as the
	// cloud last said.
	Node   edge.NodeName
	Nodes  func() []edge.NodeName
	Denied func() []string
	// Limits bound what is relayed. They may change.
	Limits func() Limits
	// Metrics registers the metrics; nil means that they are not exported.
	Metrics prometheus.Registerer
	// Clock is this machine's clock.
	Clock ends.Clock
}

// refusal is the reason for refusing a request, as metrics name it.
type refusal string

const (
	stranger refusal = "unknown"    // no hub of this pool
	denied   refusal = "denied"     // its node was denied or is gone, by the cloud's word
	notLent  refusal = "off"        // this hub relays for nobody
	noTunnel refusal = "no-connect" // not a request for a tunnel
	noTarget refusal = "target"     // a tunnel to something other than an API server of this hub
	noLink   refusal = "no-link"    // this hub has no line of its own
	overDay  refusal = "day"        // the day's bytes are spent
	tooMany  refusal = "too-many"   // too many tunnels
	noAnswer refusal = "unreached"  // the API server can't be reached
)

// Server opens tunnels for the pool's other hubs. It is an http.Handler, to be served with Credentials.Serving.
type Server struct {
	cfg     ServerConfig
	targets map[string]bool
	use     *borrowers
	word    *live.Value[*word]

	refused *prometheus.CounterVec
	opened  prometheus.Counter
	carried *prometheus.CounterVec
}

// NewServer returns a Server. It registers its metrics.
func NewServer(c ServerConfig) *Server {
	m := promauto.With(c.Metrics)
	s := &Server{
		cfg: c, targets: map[string]bool{}, use: newBorrowers(c.Limits()), word: live.NewValue(&word{}),
		refused: m.NewCounterVec(prometheus.CounterOpts{
			Name: "yurthub_relay_refused_total",
			Help: "What this hub did not relay, by the reason: connections that were not let in (no-certificate; unknown, of " +
				"no hub of this pool; slow; broken; too-many of their address), and requests (denied, or of a node that is " +
				"gone, by the cloud's word; off, by this hub's settings; no-connect; target, to no API server of this hub's; " +
				"no-link of its own; day, whose bytes are spent; too-many tunnels; unreached, the API server).",
		}, []string{"reason"}),
		opened: m.NewCounter(prometheus.CounterOpts{
			Name: "yurthub_relay_tunnels_total", Help: "Tunnels that this hub opened for neighbours.",
		}),
		carried: m.NewCounterVec(prometheus.CounterOpts{
			Name: "yurthub_relay_bytes_total", Help: "Bytes that this hub carried for neighbours, by the direction: up, down.",
		}, []string{"direction"}),
	}
	for _, why := range []refusal{stranger, denied, notLent, noTunnel, noTarget, noLink, overDay, tooMany, noAnswer} {
		s.refused.WithLabelValues(string(why))
	}
	for _, way := range []direction{upwards, downwards} {
		s.carried.WithLabelValues(string(way))
	}
	m.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "yurthub_relay_tunnels", Help: "Tunnels that are open for neighbours.",
	}, func() float64 { n, _ := s.use.count(); return float64(n) })
	m.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "yurthub_relay_peers", Help: "Neighbours for whom tunnels are open.",
	}, func() float64 { _, n := s.use.count(); return float64(n) })
	for _, target := range c.Targets {
		s.targets[target] = true
	}
	return s
}

// NotLetIn counts a connection that was closed before it made a request, by the reason.
func (s *Server) NotLetIn(why string) { s.refused.WithLabelValues(why).Inc() }

// ServeHTTP opens a tunnel, and returns when it has ended.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.TLS == nil {
		s.refuse(w, http.StatusForbidden, stranger, "only over TLS")
		return
	}
	peer, err := s.cfg.Credentials.verify(*r.TLS)
	if err != nil {
		s.refuse(w, http.StatusForbidden, stranger, "only for hubs of this pool")
		return
	}
	shown := r.TLS.PeerCertificates[0].Raw
	if err := s.refuses(peer, shown, s.lastWord()); err != nil {
		s.refuse(w, http.StatusForbidden, denied, err.Error())
		return
	}
	switch {
	case !s.cfg.Lends.Get():
		s.refuse(w, http.StatusServiceUnavailable, notLent, errOff.Error())
		return
	case r.Method != http.MethodConnect:
		s.refuse(w, http.StatusMethodNotAllowed, noTunnel, "want CONNECT")
		return
	case !s.targets[r.Host]:
		s.refuse(w, http.StatusForbidden, noTarget, "this hub relays to its own API servers only")
		return
	}
	switch s.use.acquire(peer, s.cfg.Limits(), s.cfg.Clock.Running()) {
	case overDay:
		s.refuse(w, http.StatusServiceUnavailable, overDay, errDay.Error())
		return
	case tooMany:
		s.refuse(w, http.StatusTooManyRequests, tooMany, "too many tunnels")
		return
	}
	defer s.use.leave(peer)
	ctx, stop := s.cfg.Link.While(r.Context(), func(state link.State) bool { return state == link.Up }, errOwnLine)
	defer stop()
	ctx, leave := s.cfg.Lends.While(ctx, func(lends bool) bool { return lends }, errOff)
	defer leave()
	ctx, out := s.word.While(ctx, func(now *word) bool { return s.refuses(peer, shown, now) == nil }, errWithdrawn)
	defer out()
	if s.cfg.Link.Get() != link.Up {
		s.refuse(w, http.StatusServiceUnavailable, noLink, errOwnLine.Error())
		return
	}
	up, err := s.open(ctx, r.Host)
	if err != nil {
		s.refuse(w, http.StatusBadGateway, noAnswer, err.Error())
		return
	}
	defer func() { _ = up.Close() }() // its end says nothing more
	down, early, err := taken(w)
	if err != nil {
		klog.FromContext(ctx).V(1).Info("A neighbour left before its tunnel was open", "of", peer, "err", err)
		return
	}
	defer func() { _ = down.Close() }()
	s.opened.Inc()
	err = carry(ctx, down, early, up, fare{s, peer}, s.cfg.Clock)
	klog.FromContext(ctx).V(2).Info("A tunnel for a neighbour has ended", "of", peer, "to", r.Host, "why", err)
}

var (
	errOwnLine = errors.New("this hub's own line to the cloud is not up")
	errOff     = errors.New("this hub relays for nobody: its settings say so")
	errDay     = errors.New("this hub has relayed all that it may for this node, or for all, in a day")
)

func (s *Server) refuse(w http.ResponseWriter, code int, why refusal, text string) {
	s.refused.WithLabelValues(string(why)).Inc()
	w.Header().Set("Connection", "close")
	http.Error(w, "yurthub: "+text, code)
}

// open reaches an API server.
func (s *Server) open(ctx context.Context, target string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	return s.cfg.Dial(ctx, "tcp", target)
}

// taken takes a connection over from the HTTP server, and answers that the tunnel is open. The returned Reader has what the
// client sent before the answer.
func taken(w http.ResponseWriter) (net.Conn, io.Reader, error) {
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return nil, nil, err
	}
	if _, err := io.WriteString(conn, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		_ = conn.Close() // the error says it all
		return nil, nil, err
	}
	return conn, io.LimitReader(buffered.Reader, int64(buffered.Reader.Buffered())), nil
}

// fare is the toll of one neighbour.
type fare struct {
	*Server
	of edge.NodeName
}

// wait implements toll.
func (f fare) wait(ctx context.Context, n int) error {
	return f.use.wait(ctx, f.of, n, f.cfg.Limits(), f.cfg.Clock)
}

// paid implements toll.
func (f fare) paid(way direction, n int) error {
	f.carried.WithLabelValues(string(way)).Add(float64(n))
	if !f.use.spend(f.of, n, f.cfg.Limits(), f.cfg.Clock.Running()) {
		return errDay
	}
	return nil
}

// Neighbours returns for how many nodes tunnels are open now.
func (s *Server) Neighbours() int {
	_, peers := s.use.count()
	return peers
}

// Relays reports whether this hub would relay now.
func (s *Server) Relays() bool {
	return s.cfg.Lends.Get() && s.cfg.Link.Get() == link.Up && s.cfg.Credentials.Own() != nil &&
		s.use.lasts(s.cfg.Limits(), s.cfg.Clock.Running())
}
