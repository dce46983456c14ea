package upstream

import (
	"context"
	"net"
	"net/http"
	"slices"
	"sync"

	"golang.org/x/net/http2"

	"yurtcoordinator/internal/ends"
)

// shared holds the HTTP/2 connections of one lane, usually one. It opens another when no open connection accepts more requests.
// Unlike the pool of package http2, it gives access to the connections, so that a probe can ping one.
type shared struct {
	transport *http2.Transport
	dial      func(ctx context.Context) (net.Conn, error)
	clock     ends.Clock

	mu      sync.Mutex
	conns   []carried
	dialing *dialing
}

// carried is a connection with its knocker.
type carried struct {
	*http2.ClientConn
	*knocker // nil means that the hub cannot knock at it
}

// dialing is a connection that is being opened. All requests that need one wait for it.
type dialing struct {
	done chan struct{} // closed when the opening has ended
	err  error         // valid once done is closed
}

// newShared returns the connections for a transport, which the function dial opens.
func newShared(
	transport *http2.Transport, clock ends.Clock, dial func(ctx context.Context) (net.Conn, error),
) *shared {
	s := &shared{transport: transport, dial: dial, clock: clock}
	transport.ConnPool = s
	return s
}

// GetClientConn implements http2.ClientConnPool.
func (s *shared) GetClientConn(req *http.Request, _ string) (*http2.ClientConn, error) {
	ctx := req.Context()
	if req.Close { // its body can't be sent twice, so it gets a connection that nobody else's request can end
		return s.own(ctx)
	}
	for {
		c, d := s.acquire(ctx)
		if c != nil {
			return c, nil
		}
		select {
		case <-d.done:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		if d.err != nil {
			return nil, d.err
		}
	}
}

// acquire reserves a place on a connection that has room, or returns one that is being opened.
func (s *shared) acquire(ctx context.Context) (*http2.ClientConn, *dialing) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.conns {
		if c.ReserveNewRequest() {
			return c.ClientConn, nil
		}
	}
	if s.dialing == nil {
		s.dialing = &dialing{done: make(chan struct{})}
		// dial has bounds of its own, and ends with its server; others may wait for it when this request has ended.
		go s.open(context.WithoutCancel(ctx), s.dialing)
	}
	return nil, s.dialing
}

// open opens a connection for all requests that wait for d.
func (s *shared) open(ctx context.Context, d *dialing) {
	secured, err := s.dial(ctx)
	var c *http2.ClientConn
	if err == nil {
		if c, err = s.transport.NewClientConn(secured); err != nil {
			_ = secured.Close()
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dialing = nil
	if d.err = err; err == nil {
		of := carried{ClientConn: c}
		if spares, ok := secured.(*sparing); ok {
			of.knocker = newKnocker(spares.raw, s.clock)
		}
		s.conns = append(s.conns, of)
	}
	close(d.done)
}

// own opens a connection for one request, which closes it at its end.
func (s *shared) own(ctx context.Context) (*http2.ClientConn, error) {
	secured, err := s.dial(ctx)
	if err != nil {
		return nil, err
	}
	c, err := s.transport.NewClientConn(secured)
	if err != nil {
		_ = secured.Close() // the error says it all
		return nil, err
	}
	c.ReserveNewRequest() // nobody else has it
	return c, nil
}

// MarkDead implements http2.ClientConnPool: a connection has ended.
func (s *shared) MarkDead(c *http2.ClientConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns = slices.DeleteFunc(s.conns, func(other carried) bool { return other.ClientConn == c })
}

// any returns a connection that accepts requests. If there is none, the result has no ClientConn.
func (s *shared) any() carried {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.conns {
		if c.CanTakeNewRequest() {
			return c
		}
	}
	return carried{}
}

// retire makes all connections take no more requests, and returns them.
func (s *shared) retire() []carried {
	s.mu.Lock()
	conns := slices.Clone(s.conns)
	s.mu.Unlock()
	for _, c := range conns {
		c.SetDoNotReuse()
	}
	return conns
}

// closeIdle makes all connections take no more requests, and closes those without one.
func (s *shared) closeIdle() {
	for _, c := range s.retire() {
		if state := c.State(); state.StreamsActive+state.StreamsReserved+state.StreamsPending == 0 {
			_ = c.Close() // it fails only if the connection is closed already
		}
	}
}
