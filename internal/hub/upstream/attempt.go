package upstream

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"

	"yurtcoordinator/internal/hub/link"
)

// attempt is one try of a request at one server.
type attempt struct {
	request *http.Request
	body    *noted // nil means that the request has no body
}

// newAttempt returns an attempt of req at a server. If again is true, an earlier attempt has failed and closed the caller's body.
// newAttempt then takes a new body from req.GetBody.
func newAttempt(req *http.Request, s *server, again bool) (*attempt, error) {
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
	if !hasBody(req) {
		return &b.attempt, nil
	}
	body := req.Body
	if again {
		var err error
		if body, err = req.GetBody(); err != nil {
			return nil, err
		}
	}
	b.attempt.body = &noted{ReadCloser: body}
	b.request.Body = b.attempt.body
	return &b.attempt, nil
}

func hasBody(req *http.Request) bool { return req.Body != nil && req.Body != http.NoBody }

// noted is a request's body that notes whether a read of it failed.
type noted struct {
	io.ReadCloser
	failed atomic.Bool
}

func (n *noted) Read(p []byte) (int, error) {
	read, err := n.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		n.failed.Store(true)
	}
	return read, err
}

// deliver returns the response's body for the caller. The returned body counts its bytes under the request's kind, and fails with
// a DownError if the link has gone down. It calls end once, at its end or when it is closed. After an upgrade, the caller can
// also write to it.
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
