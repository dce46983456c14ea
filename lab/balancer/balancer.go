// Package balancer is a load balancer in front of the cloud that has no server behind it. It has the cloud's certificate, and
// answers every request with 503, since no server is available. A scenario runs it on a machine's network, where it intercepts
// what nodes send.
package balancer

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
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
}

// Report is what a balancer has done.
type Report struct {
	// Refused are the requests answered with 503.
	Refused int64 `json:"refused"`
}

// Main carries out an order, and writes a byte when it serves. When its input ends it writes a Report.
func Main(ctx context.Context, o Order, in io.Reader, out io.Writer) error {
	pair, err := tls.LoadX509KeyPair(o.Cert, o.Key)
	if err != nil {
		return err
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", o.Listen)
	if err != nil {
		return err
	}
	b := &balancer{}
	server := &http.Server{
		TLSConfig: &tls.Config{
			MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequestClientCert,
		},
		ReadHeaderTimeout: 10 * time.Second, Handler: b,
		ErrorLog: log.New(io.Discard, "", 0), // clients come and go
	}
	served := make(chan error, 1)
	go func() { served <- server.ServeTLS(l, "", "") }()
	if _, err = out.Write([]byte{'\n'}); err == nil {
		_, err = io.Copy(io.Discard, in)
	}
	err = errors.Join(err, server.Close())
	if ended := <-served; !errors.Is(ended, http.ErrServerClosed) {
		err = errors.Join(err, ended)
	}
	return errors.Join(err, json.NewEncoder(out).Encode(Report{Refused: b.refused.Load()}))
}

type balancer struct{ refused atomic.Int64 }

func (b *balancer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/readyz" {
		fmt.Fprint(w, "ok")
		return
	}
	b.refused.Add(1)
	http.Error(w, "503 Service Unavailable: no server is available to handle this request", http.StatusServiceUnavailable)
}
