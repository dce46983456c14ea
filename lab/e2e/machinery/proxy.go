package machinery

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
)

// Handler forwards requests through the access, with the access's credentials, as `kubectl proxy` does. It is for programs that
// can't use the access themselves. (kubectl sends no token to a server without TLS.)
func (a *Access) Handler() (http.Handler, error) {
	target, err := url.Parse(a.config.Host)
	if err != nil {
		return nil, err
	}
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			repeatable(r.Out)
		},
		Transport:     a.client.Transport,
		FlushInterval: -1, // watches
	}, nil
}

// repeatable keeps a request's body in memory, so that the request can be sent again. When an API server refuses the bad token
// of one of the checks, it ends the connection, which all requests share.
func repeatable(r *http.Request) {
	if r.Body == nil || r.ContentLength <= 0 {
		return
	}
	whole, err := io.ReadAll(r.Body)
	if err != nil {
		whole = nil // its length is wrong, so that it fails
	}
	r.Body = io.NopCloser(bytes.NewReader(whole))
	r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(whole)), nil }
}
