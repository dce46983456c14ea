package apiserver

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
)

const (
	// bodySize, streams and idleTimeout are what kube-apiserver serves its own listener with.
	bodySize    = 256 << 10
	streams     = 100
	idleTimeout = 90 * time.Second
	// headerTimeout and headerBytes bound a request's header. kube-apiserver's own listener allows 32 s and 1 MiB. Here less is
	// enough, because callers show a certificate and no token.
	headerTimeout = 5 * time.Second
	headerBytes   = 32 << 10
	// unread is how many bytes of bodies a connection may have on their way: less than 4 MiB, by http.HTTP2Config.
	unread = 15 * bodySize
	// unsent is how long a client may take no byte while something waits to be sent to it. After that the server closes the
	// connection. While something waits to be sent, none of the connection's requests can end.
	unsent = 10 * time.Second
)

// outside serves who comes from elsewhere. kube-apiserver's own listener asks for a client certificate, but cannot demand one.
type outside struct {
	server   *http.Server
	listener net.Listener
	certs    *dynamiccertificates.DynamicServingCertificateController
}

// newOutside makes the outside of a server, with its present serving certificate and CAs.
func newOutside(info *genericapiserver.SecureServingInfo, parts Parts) (*outside, error) {
	secure := &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"},
		ClientAuth: tls.RequireAnyClientCert, VerifyConnection: parts.Known,
	}
	o := &outside{certs: dynamiccertificates.NewDynamicServingCertificateController(secure, info.ClientCA, info.Cert, nil, nil)}
	info.ClientCA.AddListener(o.certs)
	info.Cert.AddListener(o.certs)
	if err := o.certs.RunOnce(); err != nil {
		return nil, fmt.Errorf("serving certificate: %w", err)
	}
	secure = secure.Clone()
	secure.GetConfigForClient = o.certs.GetConfigForClient
	o.server = &http.Server{
		MaxHeaderBytes: headerBytes, IdleTimeout: idleTimeout, ReadHeaderTimeout: headerTimeout, TLSConfig: secure,
		ConnContext: parts.ConnContext,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: streams, MaxReadFrameSize: bodySize, MaxReceiveBufferPerStream: bodySize,
			MaxReceiveBufferPerConnection: unread, WriteByteTimeout: unsent,
		},
	}
	o.listener = parts.Gate(secure.Clone()) // the server sets its own up when it begins to serve
	return o, nil
}

// run serves handler until ctx ends, and then lets requests end for as long as kube-apiserver's own listener does.
func (o *outside) run(ctx context.Context, handler http.Handler) error {
	o.server.Handler = handler
	go o.certs.Run(1, ctx.Done())
	served := make(chan error, 1)
	go func() { served <- o.server.Serve(o.listener) }()
	select {
	case err := <-served:
		return fmt.Errorf("serve %s: %w", o.listener.Addr(), err)
	case <-ctx.Done():
	}
	patience, cancel := context.WithTimeout(context.WithoutCancel(ctx), watchEnd+drainTimeout)
	defer cancel()
	if o.server.Shutdown(patience) != nil {
		_ = o.server.Close()
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve %s: %w", o.listener.Addr(), err)
	}
	return nil
}
