package world

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"sync/atomic"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/utils/clock"

	"yurtcoordinator/deploy"
	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/lab/pki"
	"yurtcoordinator/internal/sim/model"
	"yurtcoordinator/internal/sim/network"
	"yurtcoordinator/internal/sim/stock"
)

var admin = &user.DefaultInfo{Name: "admin", Groups: []string{user.SystemPrivilegedGroup, user.AllAuthenticated}} // a constant

// server is a machine with an API server.
type server struct {
	*machine
	*program
	store *model.Store
	// model is what serves now, handler what is before it.
	model   atomic.Pointer[model.Server]
	handler atomic.Pointer[http.Handler]
	// gray is before handler: it half fails.
	gray *model.Gray
	cert tls.Certificate
	port string
}

// newServer makes a server that run runs.
func (w *World) newServer(
	m *machine, name, port string, run func(ctx context.Context, s *server, p *network.Process) error,
) (*server, error) {
	s := &server{machine: m, store: model.NewStore(), port: port}
	s.gray = &model.Gray{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		(*s.handler.Load()).ServeHTTP(w, r)
	})}
	files, err := w.ca.Issue(pki.Request{Name: m.name + "-" + name, Server: true, IPs: []net.IP{parsed(m.ip)}})
	if err != nil {
		return nil, err
	}
	s.cert, err = tls.LoadX509KeyPair(files.Cert, files.Key)
	s.program = m.program(name, func(ctx context.Context, p *network.Process) error { return run(ctx, s, p) })
	return s, err
}

// has is what the server serves from now on.
func (s *server) has(m *model.Server, h http.Handler) {
	s.model.Store(m)
	s.handler.Store(&h)
}

// serve serves until ctx ends. secure says which clients may connect.
func (s *server) serve(ctx context.Context, p *network.Process, h http.Handler, secure *tls.Config) error {
	l, err := p.Listen("tcp", ":"+s.port)
	if err != nil {
		return err
	}
	secure.Certificates, secure.MinVersion = []tls.Certificate{s.cert}, tls.VersionTLS12
	hs := &http.Server{ //nolint:gosec // nobody here is slow on purpose
		Handler: h, ErrorLog: log.New(io.Discard, "", 0), TLSConfig: secure,
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		<-ctx.Done()
		_ = hs.Close() // its listener ends with the process
	}()
	err = hs.ServeTLS(l, "", "")
	<-done
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// newCloud makes the cloud's API server, which keeps what it has. Of the chart's policies it has the one that holds evictions.
func (w *World) newCloud(ctx context.Context, m *machine) error {
	policies, err := stock.Policies(ctx, deploy.HoldEvictions)
	if err != nil {
		return err
	}
	roots, err := certificates(w.ca)
	if err != nil {
		return err
	}
	w.cloud, err = w.newServer(m, "kube-apiserver", "6443", func(ctx context.Context, s *server, p *network.Process) error {
		return s.serve(ctx, p, authenticated(s.gray), &tls.Config{ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: roots})
	})
	if err != nil {
		return err
	}
	s := model.NewServer(model.Config{
		Store: w.cloud.store, Clock: clock.RealClock{}, Random: w.numbers(), Admission: policies,
		Custom: []model.Custom{{
			GroupVersionKind: edge.NodePools.GroupVersion().WithKind(kindNodePool), Resource: edge.NodePools.Resource,
		}},
	})
	w.cloud.has(s, s)
	return nil
}

// authenticated says who calls, by the certificate.
func authenticated(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		caller := &user.DefaultInfo{Name: user.Anonymous, Groups: []string{user.AllUnauthenticated}}
		if len(r.TLS.PeerCertificates) > 0 {
			subject := r.TLS.PeerCertificates[0].Subject
			caller = &user.DefaultInfo{Name: subject.CommonName, Groups: append(subject.Organization, user.AllAuthenticated)}
		}
		h.ServeHTTP(w, r.WithContext(request.WithUser(r.Context(), caller)))
	})
}

// certificates are an authority's, as who trusts it has them.
func certificates(ca *pki.Authority) (*x509.CertPool, error) {
	content, err := os.ReadFile(ca.Files().Cert)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(content) {
		return nil, errors.New("the authority has no certificate")
	}
	return pool, nil
}
