package front

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"math"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	"k8s.io/klog/v2"

	"yurtcoordinator/internal/conns"
	"yurtcoordinator/internal/ends"
)

// ServerConfig configures a Server.
type ServerConfig struct {
	// Handler serves the requests.
	Handler http.Handler
	// After is closed when requests may be accepted; they wait until then. nil means at once.
	After <-chan struct{}
	// TLS secures connections. nil means plain text, with HTTP/1.1 or HTTP/2 with prior knowledge.
	TLS *tls.Config
	// HTTP1 disables HTTP/2.
	HTTP1 bool
	// Newcomers bounds the connections whose client has not authenticated yet (conns.Newcomers), for a loopback address; 0 means
	// no bound.
	Newcomers int
	// PerSource bounds the connections of each client, and All the connections of all clients together (see conns.GateConfig).
	// PerSource needs TLS, and also bounds the handshakes. 0 means no bound.
	PerSource, All int
	// Named is as in conns.GateConfig. Refused is called for each connection that a bound closes, or that ends during its
	// handshake. Refused must not block; nil means no call.
	Named   bool
	Refused func(from netip.AddrPort, why conns.Reason, err error)
	// Aside takes over connections by the server name that they ask for; it needs PerSource. nil means none.
	Aside *conns.Aside
}

const (
	// drainTimeout is how long requests that are not long-running may take to end when Run is stopped.
	drainTimeout = 5 * time.Second
	// readHeaderTimeout is how long a client may take to send a request's header.
	readHeaderTimeout = 5 * time.Second
	// idleTimeout is how long a connection is kept without a request.
	idleTimeout = 3 * time.Minute
	// maxHeaderBytes bounds a request's header: tokens are 2 KB at most.
	maxHeaderBytes = 32 << 10
	// maxStreams bounds the requests of one HTTP/2 connection. By default, one address may have 250 long-running requests, a
	// quarter of all. Clients open another connection for more.
	maxStreams = 250
	// clientPingAfter and clientPingTimeout find HTTP/2 clients that vanished.
	clientPingAfter   = 30 * time.Second
	clientPingTimeout = 15 * time.Second
	// handshakeTime bounds a TLS handshake if PerSource is set. maxHandshakes bounds the handshakes under way from all addresses,
	// and maxHandshakesOfOne those from one address.
	handshakeTime                     = 5 * time.Second
	maxHandshakes, maxHandshakesOfOne = 256, 32
	// abortTimeout is how long handlers may take to return after their connections were closed.
	abortTimeout = 5 * time.Second
)

// Server serves a handler on a listener.
type Server struct {
	cfg      ServerConfig
	listener net.Listener
	drain    time.Duration
}

// Listen returns a Server that listens at HOST:PORT; it accepts nothing until Run.
func Listen(on ends.Net, address string, cfg ServerConfig) (*Server, error) {
	if on.Listen == nil {
		on.Listen = net.Listen
	}
	listener, err := on.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	return &Server{cfg, listener, drainTimeout}, nil
}

// secured returns the listener to serve on, and its TLS configuration.
func (s *Server) secured() (net.Listener, *tls.Config) {
	if s.cfg.TLS == nil {
		return s.listener, nil
	}
	secure := s.cfg.TLS.Clone()
	secure.NextProtos = []string{"http/1.1"}
	if !s.cfg.HTTP1 {
		secure.NextProtos = []string{"h2", "http/1.1"}
	}
	if s.cfg.Newcomers > 0 {
		return tls.NewListener(conns.NewNewcomers(s.listener, s.cfg.Newcomers, s.cfg.Refused), secure), secure
	}
	if s.cfg.PerSource == 0 {
		return tls.NewListener(s.listener, secure), secure
	}
	return conns.NewGate(s.listener, conns.GateConfig{
		TLS: secure, Handshake: handshakeTime, Waiting: maxHandshakes, WaitingPerSource: maxHandshakesOfOne,
		PerSource: s.cfg.PerSource, All: s.cfg.All, Named: s.cfg.Named, Refused: s.cfg.Refused,
		Aside: s.cfg.Aside,
	}), secure
}

// Close frees the listener of a Server that will not run.
func (s *Server) Close() error { return s.listener.Close() }

// Run serves until ctx ends. Then it accepts nothing more, ends long-running requests at once, gives the others drainTimeout, and
// closes the rest. It returns when every handler has returned, and fails if one takes longer than abortTimeout.
func (s *Server) Run(ctx context.Context) error {
	if s.cfg.After != nil {
		select {
		case <-s.cfg.After:
		case <-ctx.Done():
		}
	}
	// Requests outlive ctx by the time that they have to drain.
	base, abort := context.WithCancelCause(context.WithoutCancel(ctx))
	defer abort(nil)
	draining, drain := context.WithCancelCause(context.WithoutCancel(ctx))
	defer drain(nil)
	base = context.WithValue(base, drainingKey{}, draining)

	// http.Server waits for its connections but not for those that handlers took over, so handlers are counted here.
	handlers := semaphore.NewWeighted(math.MaxInt64)
	listener, secure := s.secured()
	server := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !handlers.TryAcquire(1) {
				panic(http.ErrAbortHandler) // they are waited for
			}
			defer handlers.Release(1)
			s.cfg.Handler.ServeHTTP(w, r)
		}),
		BaseContext:       func(net.Listener) context.Context { return base },
		ConnContext:       conns.WithNewcomer,
		ReadHeaderTimeout: readHeaderTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		TLSConfig:         secure,
		ErrorLog:          log.New(verbose{klog.FromContext(ctx)}, "", 0),
		Protocols:         new(http.Protocols),
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: maxStreams, SendPingTimeout: clientPingAfter, PingTimeout: clientPingTimeout,
		},
	}
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetHTTP2(s.cfg.TLS != nil && !s.cfg.HTTP1)
	server.Protocols.SetUnencryptedHTTP2(s.cfg.TLS == nil && !s.cfg.HTTP1)

	served := make(chan error, 1)
	var serving sync.WaitGroup
	serving.Go(func() { served <- server.Serve(listener) })
	var failure error
	select {
	case <-ctx.Done():
	case failure = <-served:
		failure = fmt.Errorf("front: serving %s: %w", s.listener.Addr(), failure)
	}
	drain(errDraining)
	patience, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.drain)
	defer cancel()
	if err := server.Shutdown(patience); err != nil {
		klog.FromContext(ctx).Info("Breaking off requests that did not end in time", "after", s.drain)
	}
	abort(errDraining)
	_ = server.Close() // what Shutdown could not close in an orderly way
	serving.Wait()
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortTimeout)
	defer cancel()
	if handlers.Acquire(ending, math.MaxInt64) != nil {
		return errors.Join(failure,
			fmt.Errorf("front: requests to %s did not end when broken off", s.listener.Addr()))
	}
	return failure
}

var errDraining = errors.New("yurthub is stopping")

type drainingKey struct{}

// untilDraining ends a request when its server begins to drain.
func untilDraining(r *http.Request) (*http.Request, func()) {
	draining, ok := r.Context().Value(drainingKey{}).(context.Context)
	if !ok {
		return r, func() {}
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	stop := context.AfterFunc(draining, func() { cancel(context.Cause(draining)) })
	return r.WithContext(ctx), func() {
		stop()
		cancel(nil)
	}
}

// timedOut reports whether ctx ended because of the request's deadline, not because its client went away.
func timedOut(ctx context.Context) bool { return errors.Is(ctx.Err(), context.DeadlineExceeded) }
