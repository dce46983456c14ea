package relay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"golang.org/x/time/rate"
	"k8s.io/klog/v2"

	"yurtcoordinator/internal/hub/link"
	"yurtcoordinator/internal/live"
	"yurtcoordinator/internal/run"
)

const (
	// openTimeout bounds the way to an API server.
	openTimeout = 10 * time.Second
	// idleTimeout is how long a tunnel may carry nothing. The hubs' connections carry pings each 30 s.
	idleTimeout = 2 * time.Minute
	// chunk is how much is read at once, and the least that the rate lets through in one go.
	chunk = 16 << 10
)

// ServerConfig is what a Server needs. All fields but Metrics are required.
type ServerConfig struct {
	Credentials Credentials
	// Link is the state of this hub's own link to the cloud. It relays only while that is up.
	Link *live.Value[link.State]
	// Targets are the API servers to which tunnels may lead, HOST:PORT.
	Targets []string
	// Dial opens a connection to one of them, by this hub's own way.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Limits bound what is relayed. They may change.
	Limits func() Limits
	// Metrics takes the metrics; nil means that nobody sees them.
	Metrics prometheus.Registerer
}

// refusal is why a request is refused, as metrics name it.
type refusal string

const (
	stranger refusal = "unknown"    // no hub of this pool
	noTunnel refusal = "no-connect" // not a request for a tunnel
	noTarget refusal = "target"     // to something else than an API server of this hub's
	noLink   refusal = "no-link"    // this hub has no line of its own
	overDay  refusal = "day"        // the day's bytes are spent
	tooMany  refusal = "too-many"   // too many tunnels
	noAnswer refusal = "unreached"  // the API server can't be reached
)

// Server opens tunnels for the pool's other hubs: an http.Handler, to be served with Credentials.Serving.
type Server struct {
	cfg     ServerConfig
	targets map[string]bool
	bytes   *rate.Limiter
	places  places
	day     allowance

	refused *prometheus.CounterVec
	opened  prometheus.Counter
	carried *prometheus.CounterVec
}

// NewServer returns a Server. It registers its metrics.
func NewServer(c ServerConfig) *Server {
	m := promauto.With(c.Metrics)
	limits := c.Limits()
	s := &Server{
		cfg: c, targets: map[string]bool{}, bytes: rate.NewLimiter(rate.Limit(limits.BytesPerSecond), burst(limits)),
		refused: m.NewCounterVec(prometheus.CounterOpts{
			Name: "yurthub_relay_refused_total",
			Help: "What this hub did not relay, by the reason: connections that were not let in (no-certificate; unknown, of " +
				"no hub of this pool; slow; broken; too-many of their address), and requests (no-connect; target, to no API " +
				"server of this hub's; no-link of its own; day, whose bytes are spent; too-many tunnels; " +
				"unreached, the API server).",
		}, []string{"reason"}),
		opened: m.NewCounter(prometheus.CounterOpts{
			Name: "yurthub_relay_tunnels_total", Help: "Tunnels that this hub opened for neighbours.",
		}),
		carried: m.NewCounterVec(prometheus.CounterOpts{
			Name: "yurthub_relay_bytes_total", Help: "Bytes that this hub carried for neighbours, by the direction: up, down.",
		}, []string{"direction"}),
	}
	for _, why := range []refusal{stranger, noTunnel, noTarget, noLink, overDay, tooMany, noAnswer} {
		s.refused.WithLabelValues(string(why))
	}
	m.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "yurthub_relay_tunnels", Help: "Tunnels that are open for neighbours.",
	}, func() float64 { n, _ := s.places.count(); return float64(n) })
	m.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "yurthub_relay_peers", Help: "Neighbours for whom tunnels are open.",
	}, func() float64 { _, n := s.places.count(); return float64(n) })
	for _, target := range c.Targets {
		s.targets[target] = true
	}
	return s
}

func burst(l Limits) int { return max(chunk, l.BytesPerSecond/4) }

// NotLetIn counts a connection that was closed before a request, by the reason.
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
	limits := s.cfg.Limits()
	switch {
	case r.Method != http.MethodConnect:
		s.refuse(w, http.StatusMethodNotAllowed, noTunnel, "want CONNECT")
		return
	case !s.targets[r.Host]:
		s.refuse(w, http.StatusForbidden, noTarget, "this hub relays to its own API servers only")
		return
	case s.day.left(limits, time.Now()) == 0:
		s.refuse(w, http.StatusServiceUnavailable, overDay, "this hub has relayed all that it may in a day")
		return
	case !s.places.take(peer, limits):
		s.refuse(w, http.StatusTooManyRequests, tooMany, "too many tunnels")
		return
	}
	defer s.places.leave(peer)
	ctx, stop := s.cfg.Link.While(r.Context(), func(state link.State) bool { return state == link.Up }, errOwnLine)
	defer stop()
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
	err = s.carry(ctx, down, early, up)
	klog.FromContext(ctx).V(2).Info("A tunnel for a neighbour has ended", "of", peer, "to", r.Host, "why", err)
}

var (
	errOwnLine = errors.New("this hub's own line to the cloud is not up")
	errIdle    = fmt.Errorf("it carried nothing for %v", idleTimeout)
	errDay     = errors.New("this hub has relayed all that it may in a day")
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

// taken takes a connection over from the HTTP server, and says that the tunnel is open. early is what came before that.
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

// carry carries bytes both ways until one end is closed, ctx ends, or nothing comes for idleTimeout. It returns why it ended.
func (s *Server) carry(ctx context.Context, down net.Conn, early io.Reader, up net.Conn) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(ctx, func() {
		_ = down.Close()
		_ = up.Close()
	})()
	began := time.Now()
	var last atomic.Int64 // when something was carried, since began
	carried := func() { last.Store(int64(time.Since(began))) }
	var both sync.WaitGroup
	both.Go(func() { cancel(s.copy(ctx, up, io.MultiReader(early, down), "up", carried)) })
	both.Go(func() { cancel(s.copy(ctx, down, up, "down", carried)) })
	for wait := idleTimeout; wait > 0; wait = idleTimeout - time.Since(began) + time.Duration(last.Load()) {
		if run.Pause(ctx, wait) != nil {
			break
		}
	}
	cancel(errIdle) // unless it has ended already
	both.Wait()
	return context.Cause(ctx)
}

// copy carries one direction, within the limits. It always returns an error.
func (s *Server) copy(ctx context.Context, to io.Writer, from io.Reader, direction string, carried func()) error {
	count := s.carried.WithLabelValues(direction)
	buffer := make([]byte, chunk)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			limits := s.cfg.Limits()
			if wanted := rate.Limit(limits.BytesPerSecond); s.bytes.Limit() != wanted {
				s.bytes.SetLimit(wanted)
				s.bytes.SetBurst(burst(limits))
			}
			if err := s.bytes.WaitN(ctx, n); err != nil {
				return err
			}
			if _, err := to.Write(buffer[:n]); err != nil {
				return fmt.Errorf("%s: %w", direction, err)
			}
			carried()
			count.Add(float64(n))
			if !s.day.spend(n, limits, time.Now()) {
				return errDay
			}
		}
		if err != nil {
			return fmt.Errorf("%s: %w", direction, err)
		}
	}
}

// Neighbours returns for how many nodes tunnels are open.
func (s *Server) Neighbours() int {
	_, peers := s.places.count()
	return peers
}

// Relays reports whether this hub would relay now.
func (s *Server) Relays() bool {
	return s.cfg.Link.Get() == link.Up && s.cfg.Credentials.Own() != nil && s.day.left(s.cfg.Limits(), time.Now()) > 0
}
