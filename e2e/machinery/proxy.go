package machinery

import (
	"net/http"
	"net/http/httputil"
	"net/url"
)

// Handler passes requests on by the access, with its credentials, as `kubectl proxy` does: for programs that cannot use
// it themselves. (kubectl sends no token to a server without TLS.)
func (a *Access) Handler() (http.Handler, error) {
	target, err := url.Parse(a.config.Host)
	if err != nil {
		return nil, err
	}
	return &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:     a.client.Transport,
		FlushInterval: -1, // watches
	}, nil
}
