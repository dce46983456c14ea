package upstream

import (
	"context"
	"crypto/tls"
	"net/http"
	"slices"
	"sync"

	"golang.org/x/net/http2"
)

// pool holds the HTTP/2 connections of one lane. Unlike http2's own it shows them, so that a probe can ask one for a sign of
// life. Most of the time there is one; another is opened when it carries as many requests as the server takes.
type pool struct {
	transport *http2.Transport
	dial      func(ctx context.Context) (*tls.Conn, error)

	mu      sync.Mutex
	conns   []*http2.ClientConn
	dialing *dialing
}

// dialing is a connection that is being opened. All who need one wait for it.
type dialing struct {
	done chan struct{} // closed when it has ended
	err  error         // valid then
}

// newPool gives transport a pool whose connections dial opens.
func newPool(transport *http2.Transport, dial func(ctx context.Context) (*tls.Conn, error)) *pool {
	p := &pool{transport: transport, dial: dial}
	transport.ConnPool = p
	return p
}

// GetClientConn implements http2.ClientConnPool.
func (p *pool) GetClientConn(req *http.Request, _ string) (*http2.ClientConn, error) {
	ctx := req.Context()
	if req.Close { // its body can't be sent twice, so it gets a connection that nobody else's request can end
		return p.own(ctx)
	}
	for {
		c, d := p.take(ctx)
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

// take returns a connection that has room, with a place on it, or else one that is being opened.
func (p *pool) take(ctx context.Context) (*http2.ClientConn, *dialing) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		if c.ReserveNewRequest() {
			return c, nil
		}
	}
	if p.dialing == nil {
		p.dialing = &dialing{done: make(chan struct{})}
		// dial has bounds of its own, and ends with its server; others may wait for it when this request has ended.
		go p.open(context.WithoutCancel(ctx), p.dialing)
	}
	return nil, p.dialing
}

// open opens a connection for all who wait for d.
func (p *pool) open(ctx context.Context, d *dialing) {
	secured, err := p.dial(ctx)
	var c *http2.ClientConn
	if err == nil {
		if c, err = p.transport.NewClientConn(secured); err != nil {
			_ = secured.Close()
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dialing = nil
	if d.err = err; err == nil {
		p.conns = append(p.conns, c)
	}
	close(d.done)
}

// own opens a connection for one request, which closes it at its end.
func (p *pool) own(ctx context.Context) (*http2.ClientConn, error) {
	secured, err := p.dial(ctx)
	if err != nil {
		return nil, err
	}
	c, err := p.transport.NewClientConn(secured)
	if err != nil {
		_ = secured.Close() // the error says it all
		return nil, err
	}
	c.ReserveNewRequest() // nobody else has it
	return c, nil
}

// MarkDead implements http2.ClientConnPool: a connection has ended.
func (p *pool) MarkDead(c *http2.ClientConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns = slices.DeleteFunc(p.conns, func(other *http2.ClientConn) bool { return other == c })
}

// any returns a connection that takes requests, or nil.
func (p *pool) any() *http2.ClientConn {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		if c.CanTakeNewRequest() {
			return c
		}
	}
	return nil
}

// closeIdle has no connection take another request, and closes those without one.
func (p *pool) closeIdle() {
	p.mu.Lock()
	conns := slices.Clone(p.conns)
	p.mu.Unlock()
	for _, c := range conns {
		c.SetDoNotReuse()
		if state := c.State(); state.StreamsActive+state.StreamsReserved+state.StreamsPending == 0 {
			_ = c.Close() // it fails only if the connection is closed already
		}
	}
}
