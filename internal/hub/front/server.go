package front

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"sync"
	"time"

	"k8s.io/klog/v2"
)

// ServerConfig says how a handler is served.
type ServerConfig struct {
	// Listener is where connections come from. Required. Run closes it.
	Listener net.Listener
	// Handler serves the requests. Required.
	Handler http.Handler
	// After is closed when requests may be accepted: until then they wait. Default: at once.
	After <-chan struct{}
	// TLS, if not nil, is what connections are secured with. Without it, HTTP/2 is served to clients that begin with it
	// (prior knowledge), beside HTTP/1.1.
	TLS *tls.Config
	// DrainTimeout is how long requests that are not long-running may take to end once Run is told to stop: 5 s.
	DrainTimeout time.Duration
	// ReadHeaderTimeout is how long a client may take to send a request's header: 10 s.
	ReadHeaderTimeout time.Duration
	// IdleTimeout is how long a connection is kept without a request: 3 min.
	IdleTimeout time.Duration
	// MaxHeaderBytes bounds a request's header: 128 KB; tokens are 2 KB at most.
	MaxHeaderBytes int
}

const (
	// maxStreams bounds the requests of one HTTP/2 connection: a kubelet's watches are about one per Secret and
	// ConfigMap that its Pods use.
	maxStreams = 1000
	// clientPingAfter and clientPingTimeout find HTTP/2 clients that are gone without a word.
	clientPingAfter   = 30 * time.Second
	clientPingTimeout = 15 * time.Second
	// abortTimeout is how long handlers may take to return after their connections were closed.
	abortTimeout = 5 * time.Second
)

// Server serves a handler on a listener.
type Server struct{ cfg ServerConfig }

// NewServer returns a Server; it accepts nothing until Run.
func NewServer(cfg ServerConfig) (*Server, error) {
	if cfg.Listener == nil || cfg.Handler == nil {
		return nil, errors.New("front: ServerConfig.Listener and Handler are required")
	}
	if cfg.After == nil {
		now := make(chan struct{})
		close(now)
		cfg.After = now
	}
	for _, d := range []struct {
		field     *time.Duration
		otherwise time.Duration
	}{
		{&cfg.DrainTimeout, 5 * time.Second},
		{&cfg.ReadHeaderTimeout, 10 * time.Second},
		{&cfg.IdleTimeout, 3 * time.Minute},
	} {
		if *d.field <= 0 {
			*d.field = d.otherwise
		}
	}
	if cfg.MaxHeaderBytes <= 0 {
		cfg.MaxHeaderBytes = 128 << 10
	}
	return &Server{cfg}, nil
}

// Listen returns a Server that listens at an address, HOST:PORT, instead of at ServerConfig.Listener.
func Listen(address string, cfg ServerConfig) (*Server, error) {
	var err error
	if cfg.Listener, err = net.Listen("tcp", address); err != nil {
		return nil, err
	}
	return NewServer(cfg)
}

// Close frees the listener of a Server that is not to run.
func (s *Server) Close() error { return s.cfg.Listener.Close() }

// Run serves until ctx ends. Then it accepts nothing more, ends long-running requests at once, gives the others
// DrainTimeout, closes what is left, and returns when every handler has returned.
func (s *Server) Run(ctx context.Context) error {
	select {
	case <-s.cfg.After:
	case <-ctx.Done():
	}
	// Requests outlive ctx by the time they are given to drain.
	base, abort := context.WithCancelCause(context.WithoutCancel(ctx))
	defer abort(nil)
	draining, drain := context.WithCancelCause(context.WithoutCancel(ctx))
	defer drain(nil)
	base = context.WithValue(base, drainingKey{}, draining)

	// http.Server waits for its connections but not for those that handlers took over, so handlers are counted here.
	var handlers handlerCount
	server := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			handlers.enter()
			defer handlers.leave()
			s.cfg.Handler.ServeHTTP(w, r)
		}),
		BaseContext:       func(net.Listener) context.Context { return base },
		ReadHeaderTimeout: s.cfg.ReadHeaderTimeout,
		IdleTimeout:       s.cfg.IdleTimeout,
		MaxHeaderBytes:    s.cfg.MaxHeaderBytes,
		TLSConfig:         s.cfg.TLS,
		ErrorLog:          log.New(verbose{klog.FromContext(ctx)}, "", 0),
		Protocols:         new(http.Protocols),
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: maxStreams, SendPingTimeout: clientPingAfter, PingTimeout: clientPingTimeout,
		},
	}
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetHTTP2(s.cfg.TLS != nil)
	server.Protocols.SetUnencryptedHTTP2(s.cfg.TLS == nil)

	served := make(chan error, 1)
	var serving sync.WaitGroup
	serving.Go(func() {
		if s.cfg.TLS != nil {
			served <- server.ServeTLS(s.cfg.Listener, "", "")
		} else {
			served <- server.Serve(s.cfg.Listener)
		}
	})
	var failure error
	select {
	case <-ctx.Done():
	case failure = <-served:
		failure = fmt.Errorf("front: serving %s: %w", s.cfg.Listener.Addr(), failure)
	}
	drain(errDraining)
	patience, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.DrainTimeout)
	defer cancel()
	if err := server.Shutdown(patience); err != nil {
		klog.FromContext(ctx).Info("Breaking off requests that did not end in time", "after", s.cfg.DrainTimeout)
	}
	abort(errDraining)
	_ = server.Close() // what Shutdown could not close in order
	serving.Wait()
	if !handlers.wait(abortTimeout) {
		return errors.Join(failure,
			fmt.Errorf("front: requests to %s did not end when broken off", s.cfg.Listener.Addr()))
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

// timedOut reports whether ctx ended by the time a request may take, rather than by its client's going away.
func timedOut(ctx context.Context) bool { return errors.Is(ctx.Err(), context.DeadlineExceeded) }

// handlerCount counts handlers that run. sync.WaitGroup does not allow for one that starts while another goroutine
// waits.
type handlerCount struct {
	mu    sync.Mutex
	n     int
	empty chan struct{} // closed when n falls to 0, if somebody waits
}

func (h *handlerCount) enter() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.n++
}

func (h *handlerCount) leave() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.n--
	if h.n == 0 && h.empty != nil {
		close(h.empty)
		h.empty = nil
	}
}

// wait reports whether no handler runs any more, within d.
func (h *handlerCount) wait(d time.Duration) bool {
	h.mu.Lock()
	if h.n == 0 {
		h.mu.Unlock()
		return true
	}
	if h.empty == nil {
		h.empty = make(chan struct{})
	}
	empty := h.empty
	h.mu.Unlock()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-empty:
		return true
	case <-timer.C:
		return false
	}
}
