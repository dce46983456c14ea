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

	"yurtcoordinator/internal/lab/pki"
	"yurtcoordinator/internal/sim/model"
	"yurtcoordinator/internal/sim/network"
)

var admin = &user.DefaultInfo{Name: "admin", Groups: []string{user.SystemPrivilegedGroup, user.AllAuthenticated}} // a constant

// server is a machine with an API server.
type server struct {
	*machine
	*program
	model *model.Server
	store *model.Store
	gray  *model.Gray
	// empty is what the store has after a restart: a coordinator keeps all in memory. nil: the server has a disk.
	empty atomic.Pointer[model.Backup]
}

func (w *World) newServer(m *machine, name, port string, store *model.Store) (*server, error) {
	ca := w.ca
	s := &server{machine: m, store: store}
	s.model = model.NewServer(model.Config{Store: store, Clock: clock.RealClock{}, Random: w.numbers()})
	s.gray = &model.Gray{Handler: s.model}
	files, err := ca.Issue(pki.Request{Name: m.name + "-" + name, Server: true, IPs: []net.IP{parsed(m.ip)}})
	if err != nil {
		return nil, err
	}
	cert, err := tls.LoadX509KeyPair(files.Cert, files.Key)
	if err != nil {
		return nil, err
	}
	roots, err := certificates(ca)
	if err != nil {
		return nil, err
	}
	s.program = m.program(name, func(ctx context.Context, p *network.Process) error {
		if empty := s.empty.Load(); empty != nil {
			s.store.Restore(*empty)
		}
		l, err := p.Listen("tcp", ":"+port)
		if err != nil {
			return err
		}
		hs := &http.Server{ //nolint:gosec // nobody here is slow on purpose
			Handler: authenticated(s.gray), ErrorLog: log.New(io.Discard, "", 0),
			TLSConfig: &tls.Config{
				Certificates: []tls.Certificate{cert}, ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: roots,
				MinVersion: tls.VersionTLS12,
			},
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
	})
	return s, nil
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
