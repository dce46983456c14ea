package upstream

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"

	"yurtcoordinator/internal/hub/link"
)

// attempt is one try of a request at one server. When a try fails, its transport closes the request's body. The attempt keeps
// the caller's body open until no other attempt can need it.
type attempt struct {
	request *http.Request
	input   *input // nil means that the request has no body
}

func newAttempt(req *http.Request, s *server) *attempt {
	type both struct {
		attempt attempt
		request http.Request
	}
	b := &both{request: *req}
	b.attempt.request = &b.request
	target := *req.URL
	target.Scheme, target.Host, target.User = "https", s.url.Host, nil
	if below := strings.TrimSuffix(s.url.Path, "/"); below != "" {
		escaped := strings.TrimSuffix(s.url.EscapedPath(), "/") + target.EscapedPath()
		target.Path, target.RawPath = below+target.Path, escaped
	}
	b.request.URL, b.request.Host = &target, s.url.Host
	if req.Body != nil && req.Body != http.NoBody {
		b.attempt.input = &input{body: req.Body}
		b.request.Body = b.attempt.input
		b.request.GetBody = nil
		if again := req.GetBody; again != nil {
			// A server that closes a connection names the requests that it has not looked at (GOAWAY). The transport sends
			// those again by itself.
			b.request.GetBody = func() (io.ReadCloser, error) { return b.attempt.input.again(again) }
		}
	}
	return &b.attempt
}

// settle says whether the caller's body belongs to this attempt or to another.
func (a *attempt) settle(state inputState) {
	if a.input != nil {
		a.input.settle(state)
	}
}

// inputTaken reports whether the attempt has read some of the caller's body, and whether a read failed.
func (a *attempt) inputTaken() (used, failed bool) {
	if a.input == nil {
		return false, false
	}
	a.input.mu.Lock()
	defer a.input.mu.Unlock()
	return a.input.used, a.input.failed
}

type inputState uint8

const (
	pending inputState = iota
	committed
	abandoned
)

var errAbandoned = errors.New("this attempt at the request was given up")

// input is a request's body as one attempt sees it.
type input struct {
	body io.ReadCloser

	mu     sync.Mutex
	state  inputState
	used   bool
	failed bool
	closed bool // the transport is done with it
}

func (i *input) Read(p []byte) (int, error) {
	i.mu.Lock()
	if i.state == abandoned {
		i.mu.Unlock()
		return 0, errAbandoned
	}
	i.used = true
	i.mu.Unlock()
	n, err := i.body.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		i.mu.Lock()
		i.failed = true
		i.mu.Unlock()
	}
	return n, err
}

func (i *input) Close() error {
	i.mu.Lock()
	i.closed = true
	pass := i.state == committed
	i.mu.Unlock()
	if pass {
		return i.body.Close()
	}
	return nil
}

// again returns the body from its beginning, for the same attempt.
func (i *input) again(body func() (io.ReadCloser, error)) (io.ReadCloser, error) {
	fresh, err := body()
	if err != nil {
		return nil, err
	}
	return &repeated{fresh, i}, nil
}

// repeated is a request body that the transport sends a second time. No other attempt uses it. But once this attempt is given
// up, none of the body may be sent.
type repeated struct {
	io.ReadCloser
	of *input
}

func (r *repeated) Read(p []byte) (int, error) {
	r.of.mu.Lock()
	given := r.of.state == abandoned
	r.of.used = true
	r.of.mu.Unlock()
	if given {
		return 0, errAbandoned
	}
	return r.ReadCloser.Read(p)
}

func (i *input) settle(state inputState) {
	i.mu.Lock()
	i.state = state
	pass := state == committed && i.closed
	i.mu.Unlock()
	if pass {
		_ = i.body.Close() // the transport closed it earlier and has gone on
	}
}

// deliver returns the response's body for the caller, and counts what it carries by the kind of the request. If the link went
// down, read errors say so. The function end is called once, when the body ends or is closed. An upgraded connection stays
// upgraded.
func (s *server) deliver(req *http.Request, of kind, response *http.Response, end func()) io.ReadCloser {
	out := &output{body: response.Body, server: s, request: req, kind: of, end: end}
	if stream, ok := response.Body.(io.ReadWriteCloser); ok {
		return &upgraded{output: out, stream: stream}
	}
	return out
}

// output is a response's body.
type output struct {
	body    io.ReadCloser
	server  *server
	request *http.Request
	kind    kind
	end     func()
	once    sync.Once
}

func (o *output) Read(p []byte) (int, error) {
	n, err := o.body.Read(p)
	o.server.metrics.spent.received[o.kind].Add(uint64(max(n, 0)))
	if err != nil {
		o.once.Do(o.end)
		if !errors.Is(err, io.EOF) && o.request.Context().Err() == nil {
			err = o.failed(err)
		}
	}
	return n, err
}

func (o *output) failed(err error) error {
	if o.server.state() == link.Down {
		return o.server.down(true, err)
	}
	o.server.suspect(err)
	return err
}

func (o *output) Close() error {
	o.once.Do(o.end)
	return o.body.Close()
}

// upgraded is the body of a response to an upgrade, which is a connection.
type upgraded struct {
	*output
	stream io.ReadWriteCloser
}

func (u *upgraded) Write(p []byte) (int, error) {
	n, err := u.stream.Write(p)
	u.server.metrics.spent.sent[u.kind].Add(uint64(max(n, 0)))
	return n, err
}

// CloseWrite ends the stream to the server and leaves the stream from it open.
func (u *upgraded) CloseWrite() error {
	if half, ok := u.stream.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}
