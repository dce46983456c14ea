// Package balancer is a balancer that has lost all its servers: with the cloud's certificate it answers for the cloud
// that no server is available. A scenario runs it on a node's network, where it intercepts what that node's hub sends.
package balancer

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// Command is the name of the yurtlab command that runs Main.
const Command = "balancer"

// Order tells Main what to do, as JSON on its standard input.
type Order struct {
	// Listen is the TCP address to serve TLS on.
	Listen string `json:"listen"`
	// Cert and Key are the files of the certificate to show.
	Cert string `json:"cert"`
	Key  string `json:"key"`
}

// Main reads an Order, and writes a byte when it serves. Until its input ends it answers /readyz with 200 and
// everything else with 503. Then it writes how many requests it has refused.
func Main(ctx context.Context, in io.Reader, out io.Writer) error {
	lines := bufio.NewReader(in)
	text, err := lines.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("no order: %w", err)
	}
	var o Order
	if err := json.Unmarshal(text, &o); err != nil {
		return err
	}
	pair, err := tls.LoadX509KeyPair(o.Cert, o.Key)
	if err != nil {
		return err
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", o.Listen)
	if err != nil {
		return err
	}
	var refused atomic.Int64
	server := &http.Server{
		TLSConfig: &tls.Config{
			MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequestClientCert,
		},
		ReadHeaderTimeout: 10 * time.Second,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/readyz" {
				fmt.Fprint(w, "ok")
				return
			}
			refused.Add(1)
			http.Error(w, "503 Service Unavailable: no server is available to handle this request", http.StatusServiceUnavailable)
		}),
	}
	served := make(chan error, 1)
	go func() { served <- server.ServeTLS(l, "", "") }()
	_, err = out.Write([]byte{'\n'})
	if err == nil {
		_, err = io.Copy(io.Discard, lines)
	}
	err = errors.Join(err, server.Close())
	if ended := <-served; !errors.Is(ended, http.ErrServerClosed) {
		err = errors.Join(err, ended)
	}
	return errors.Join(err, json.NewEncoder(out).Encode(refused.Load()))
}
