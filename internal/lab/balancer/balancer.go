// Package balancer is a balancer in front of the cloud, with the cloud's certificate. One without servers answers for the cloud
// that none is available. One with a server passes everything on, and says itself whether the cloud is ready. A scenario runs it
// on a machine's network, where it intercepts what nodes send to the cloud.
package balancer

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"sync/atomic"
	"time"
)

// Command is the name of the yurtlab command that runs Main.
const Command = "balancer"

// Order tells Main what to do, as a line of JSON on its standard input.
type Order struct {
	// Listen is the TCP address to serve TLS on.
	Listen string `json:"listen"`
	// Cert and Key are the files of the certificate to show.
	Cert string `json:"cert"`
	Key  string `json:"key"`
	// To is the URL of the server behind it; empty means that there is none. Authority is the file of the certificate that has
	// signed the server's and the clients'. Token is an administrator's: with it the server is told who the client is, if that
	// has shown a certificate. Requests that change their protocol are not passed on.
	To        string `json:"to,omitempty"`
	Authority string `json:"authority,omitempty"`
	Token     string `json:"token,omitempty"`
}

// Lines after the order, for a balancer with a server: from now on /readyz is answered with 500, or by the server.
const (
	Unready = "unready"
	Ready   = "ready"
)

// Report is what a balancer has done.
type Report struct {
	// Refused are the requests answered with 503, because there is no server.
	Refused int64 `json:"refused"`
	// Unready are the requests for /readyz answered with 500, and Opened the connections made meanwhile.
	Unready int64 `json:"unready"`
	Opened  int64 `json:"opened"`
}

// Main carries out an order, and writes a byte when it serves. When its input ends it writes a Report.
func Main(ctx context.Context, o Order, in io.Reader, out io.Writer) error {
	b, err := newBalancer(o)
	if err != nil {
		return err
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", o.Listen)
	if err != nil {
		return err
	}
	served := make(chan error, 1)
	go func() { served <- b.server.ServeTLS(l, "", "") }()
	if _, err = out.Write([]byte{'\n'}); err == nil {
		err = b.obey(bufio.NewReader(in))
	}
	err = errors.Join(err, b.server.Close())
	if ended := <-served; !errors.Is(ended, http.ErrServerClosed) {
		err = errors.Join(err, ended)
	}
	return errors.Join(err, json.NewEncoder(out).Encode(Report{
		Refused: b.refused.Load(), Unready: b.answered.Load(), Opened: b.opened.Load(),
	}))
}

type balancer struct {
	server  *http.Server
	proxy   http.Handler // nil without a server behind
	unready atomic.Bool

	refused, answered, opened atomic.Int64
}

func newBalancer(o Order) (*balancer, error) {
	pair, err := tls.LoadX509KeyPair(o.Cert, o.Key)
	if err != nil {
		return nil, err
	}
	b := &balancer{}
	shown := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequestClientCert}
	if o.To != "" {
		signed, err := os.ReadFile(o.Authority)
		if err != nil {
			return nil, err
		}
		known := x509.NewCertPool()
		if !known.AppendCertsFromPEM(signed) {
			return nil, fmt.Errorf("%s holds no certificate", o.Authority)
		}
		to, err := url.Parse(o.To)
		if err != nil {
			return nil, err
		}
		shown.ClientAuth, shown.ClientCAs = tls.VerifyClientCertIfGiven, known
		b.proxy = passOn(to, known, o.Token)
	}
	b.server = &http.Server{
		TLSConfig: shown, ReadHeaderTimeout: 10 * time.Second, Handler: b,
		ErrorLog: log.New(io.Discard, "", 0), // clients come and go
		ConnState: func(_ net.Conn, s http.ConnState) {
			if s == http.StateNew && b.unready.Load() {
				b.opened.Add(1)
			}
		},
	}
	return b, nil
}

// obey reads lines until there are no more.
func (b *balancer) obey(in *bufio.Reader) error {
	for {
		line, err := in.ReadString('\n')
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case line == Unready+"\n":
			b.unready.Store(true)
		case line == Ready+"\n":
			b.unready.Store(false)
		default:
			return fmt.Errorf("%q: want %s or %s", line, Ready, Unready)
		}
	}
}

func (b *balancer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch ready := r.URL.Path == "/readyz"; {
	case ready && b.unready.Load():
		b.answered.Add(1)
		http.Error(w, "[-]kms-providers failed: reason withheld\nreadyz check failed", http.StatusInternalServerError)
	case b.proxy != nil:
		b.proxy.ServeHTTP(w, r)
	case ready:
		fmt.Fprint(w, "ok")
	default:
		b.refused.Add(1)
		http.Error(w, "503 Service Unavailable: no server is available to handle this request", http.StatusServiceUnavailable)
	}
}

// passOn passes requests on to a server, as whoever has made them.
func passOn(to *url.URL, known *x509.CertPool, token string) http.Handler {
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(to)
			shown := r.In.TLS.PeerCertificates
			if len(shown) == 0 || r.In.Header.Get("Authorization") != "" {
				return
			}
			r.Out.Header.Set("Authorization", "Bearer "+token)
			if r.In.Header.Get("Impersonate-User") != "" {
				return // it speaks for somebody else itself
			}
			r.Out.Header.Set("Impersonate-User", shown[0].Subject.CommonName)
			for _, group := range shown[0].Subject.Organization {
				r.Out.Header.Add("Impersonate-Group", group)
			}
		},
		Transport: &http.Transport{
			TLSClientConfig:   &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: known},
			ForceAttemptHTTP2: true, TLSHandshakeTimeout: 10 * time.Second,
		},
		FlushInterval: -1, // a watch's event goes on at once
		ErrorLog:      log.New(io.Discard, "", 0),
	}
}
