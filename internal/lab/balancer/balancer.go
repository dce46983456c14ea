// Package balancer is a balancer that has lost all its servers: it answers for the cloud, with the cloud's certificate, that
// nobody is there. A scenario runs it on a node's network, in the way of what that node's hub sends.
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

// Command is the name of yurtlab's command that runs Main.
const Command = "balancer"

// Order is what it is to do, as JSON on its standard input.
type Order struct {
	// Listen is the TCP address at which it serves TLS.
	Listen string `json:"listen"`
	// Cert and Key are the files of the certificate that it shows.
	Cert string `json:"cert"`
	Key  string `json:"key"`
}

// Main reads an Order, writes a byte when it serves, and answers /readyz with 200, and everything else with 503, until its
// input ends. Then it writes how many requests it has refused.
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
