// Package connect is the proxy of a company's network: it lets through clients that use CONNECT and know its user and password.
// A scenario runs it on a machine's network. When the scenario ends it, all connections through it end, too.
package connect

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/elazarl/goproxy"
)

// Command is the name of the yurtlab command that runs Main.
const Command = "connect-proxy"

// Order tells Main what to do, as a line of JSON on its standard input.
type Order struct {
	// Listen is the TCP address to serve on.
	Listen string `json:"listen"`
	// User and Password are the only ones that the proxy accepts.
	User     string `json:"user"`
	Password string `json:"password"`
}

// Report is what the proxy has done. Asked counts, for each server (HOST:PORT), the requests of clients that knew the password.
// Refused counts the requests of other clients.
type Report struct {
	Asked   map[string]int `json:"asked"`
	Refused int            `json:"refused"`
}

// Main carries out an order, and writes an empty line when it serves. When its input ends, it stops to serve and writes a
// Report. The connections through the proxy end with the process.
func Main(ctx context.Context, o Order, in io.Reader, out io.Writer) error {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", o.Listen)
	if err != nil {
		return err
	}
	p := &proxy{order: o, said: Report{Asked: map[string]int{}}}
	server := &http.Server{Handler: p.handler(), ReadHeaderTimeout: 10 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	if _, err := fmt.Fprintln(out); err != nil {
		return errors.Join(err, server.Close())
	}
	_, _ = io.Copy(io.Discard, in)
	err = server.Close() // tunnels end with this process
	if ended := <-served; !errors.Is(ended, http.ErrServerClosed) {
		err = errors.Join(err, ended)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return errors.Join(err, json.NewEncoder(out).Encode(p.said))
}

type proxy struct {
	order Order
	mu    sync.Mutex
	said  Report
}

// handler is the proxy.
func (p *proxy) handler() http.Handler {
	server := goproxy.NewProxyHttpServer()
	server.ConnectDial = nil // straight, whatever this process's environment says
	server.Tr.Proxy = nil
	server.OnRequest().HandleConnectFunc(func(host string, ctx *goproxy.ProxyCtx) (*goproxy.ConnectAction, string) {
		known := p.knows(ctx.Req)
		p.mu.Lock()
		defer p.mu.Unlock()
		if !known {
			p.said.Refused++
			const refused = http.StatusProxyAuthRequired
			ctx.Resp = goproxy.NewResponse(ctx.Req, goproxy.ContentTypeText, refused, "") //nolint:bodyclose // it is empty
			ctx.Resp.Header.Set("Proxy-Authenticate", `Basic realm="lab"`)
			return goproxy.RejectConnect, host
		}
		p.said.Asked[host]++
		return goproxy.OkConnect, host
	})
	server.OnRequest().DoFunc(func(r *http.Request, _ *goproxy.ProxyCtx) (*http.Request, *http.Response) {
		return r, goproxy.NewResponse(r, goproxy.ContentTypeText, http.StatusForbidden, "CONNECT only")
	})
	return server
}

func (p *proxy) knows(r *http.Request) bool {
	as := http.Request{Header: http.Header{"Authorization": r.Header["Proxy-Authorization"]}}
	user, password, ok := as.BasicAuth()
	return ok && user == p.order.User && password == p.order.Password
}
