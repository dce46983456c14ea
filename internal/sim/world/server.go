package world

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/utils/clock"

	"yurtcoordinator/deploy"
	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/sim/model"
	"yurtcoordinator/internal/sim/network"
	"yurtcoordinator/internal/sim/pki"
	"yurtcoordinator/internal/sim/stock"
)

var admin = &user.DefaultInfo{Name: "admin", Groups: []string{user.SystemPrivilegedGroup, user.AllAuthenticated}} // a constant

// server is a machine with an API server.
type server struct {
	*machine
	*program
	store *model.Store
	// model is the API server that serves now, and handler is the handler in front of it.
	model   atomic.Pointer[model.Server]
	handler atomic.Pointer[http.Handler]
	// gray is in front of handler, and makes some requests fail.
	gray *model.Gray
	cert tls.Certificate
	port string
	// sick says that a balancer's checks of the server fail.
	sick atomic.Bool

	mu sync.Mutex
	// asked counts the requests of each caller by kind (see kindOf). renewals counts how often each caller has renewed a node's
	// Lease with the same renewTime (stamp).
	asked    map[string]map[string]int
	renewals map[renewal]int
}

// renewal is a write of a node's Lease that was carried out.
type renewal struct {
	node, by string
	stamp    int64
}

// newServer makes a server on a machine. The function run runs its program.
func (w *World) newServer(
	m *machine, name, port string, run func(ctx context.Context, s *server, p *network.Process) error,
) (*server, error) {
	s := &server{
		machine: m, store: model.NewStore(), port: port, asked: map[string]map[string]int{}, renewals: map[renewal]int{},
	}
	s.gray = &model.Gray{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.renews(r)
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

// renews counts a request that writes a node's Lease.
func (s *server) renews(r *http.Request) {
	name, ok := strings.CutPrefix(r.URL.Path, "/apis/coordination.k8s.io/v1/namespaces/"+corev1.NamespaceNodeLease+"/leases/")
	if !ok || r.Method != http.MethodPut {
		return
	}
	stamp := stampOf(r)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.renewals[renewal{name, caller(r), stamp}]++
}

// most returns the caller that, in the last minutes (remembered), has renewed a node's Lease most often with one and the same
// renewTime (stamp). It also returns how often.
func (s *server) most(node string) (by string, times int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	newest := int64(0)
	for of, n := range s.renewals {
		if of.node != node {
			continue
		}
		if newest = max(newest, of.stamp); n > times {
			by, times = of.by, n
		}
	}
	maps.DeleteFunc(s.renewals, func(of renewal, _ int) bool {
		return of.node == node && of.stamp < newest-remembered.Microseconds()
	})
	return by, times
}

// caller returns the name in the certificate of a request's sender; empty means that there is no certificate.
func caller(r *http.Request) string {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return ""
	}
	return r.TLS.PeerCertificates[0].Subject.CommonName
}

// asks returns how many requests a node has sent to the server.
func (s *server) asks(node string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, times := range s.asked["system:node:"+node] {
		n += times
	}
	return n
}

// counted counts the requests to a handler.
func (s *server) counted(h http.Handler) http.Handler {
	infos := &request.RequestInfoFactory{
		APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api"),
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		by, what := caller(r), kindOf(infos, r)
		s.mu.Lock()
		if s.asked[by] == nil {
			s.asked[by] = map[string]int{}
		}
		s.asked[by][what]++
		s.mu.Unlock()
		h.ServeHTTP(w, r)
	})
}

// kindOf describes a request by its verb, its resource and its label selector. It adds the namespace if that begins with kube-,
// and the first field of the field selector without its value. If the request is not for a resource, kindOf takes its method and
// the first two parts of its path.
func kindOf(infos *request.RequestInfoFactory, r *http.Request) string {
	info, err := infos.NewRequestInfo(r)
	if err != nil || !info.IsResourceRequest {
		parts := strings.SplitN(r.URL.Path, "/", 4)
		return r.Method + " " + strings.Join(parts[:min(len(parts), 3)], "/")
	}
	kind := info.Verb + " " + info.Resource
	if info.Subresource != "" {
		kind += "/" + info.Subresource
	}
	if strings.HasPrefix(info.Namespace, "kube-") {
		kind += " in " + info.Namespace
	}
	q := r.URL.Query()
	if labels := q.Get("labelSelector"); labels != "" {
		kind += ", labels " + labels
	}
	if fields := q.Get("fieldSelector"); fields != "" {
		key, _, _ := strings.Cut(fields, "=")
		kind += ", field " + key
	}
	return kind
}

// has sets what the server serves from now on.
func (s *server) has(m *model.Server, h http.Handler) {
	s.model.Store(m)
	s.handler.Store(&h)
}

// serve serves until ctx ends. secure decides which clients may connect.
func (s *server) serve(
	ctx context.Context, p *network.Process, h http.Handler, secure *tls.Config,
	connContext func(context.Context, net.Conn) context.Context,
) error {
	l, err := p.Listen("tcp", ":"+s.port)
	if err != nil {
		return err
	}
	secure.Certificates, secure.MinVersion = []tls.Certificate{s.cert}, tls.VersionTLS12
	hs := &http.Server{ //nolint:gosec // nobody here is slow on purpose
		Handler: s.counted(h), ErrorLog: log.New(io.Discard, "", 0), TLSConfig: secure,
		ConnContext: connContext,
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

// second is the name of the second of the cloud's two API servers. Only hubs use it.
const second = "cloud/2"

// newCloud makes the cloud's two API servers. They keep their objects when they start again. Of the chart's policies, they have
// only the one that holds evictions.
func (w *World) newCloud(ctx context.Context, m *machine) error {
	policies, err := stock.Policies(ctx, deploy.HoldEvictions)
	if err != nil {
		return err
	}
	roots, err := certificates(w.ca)
	if err != nil {
		return err
	}
	run := func(ctx context.Context, s *server, p *network.Process) error {
		secure := &tls.Config{ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: roots}
		return s.serve(ctx, p, authenticated(s.gray), secure, nil)
	}
	if w.cloud, err = w.newServer(m, "kube-apiserver", "6443", run); err != nil {
		return err
	}
	if w.second, err = w.newServer(m, "kube-apiserver-2", "6444", run); err != nil {
		return err
	}
	w.second.store = w.cloud.store
	for _, s := range []*server{w.cloud, w.second} {
		serves := model.NewServer(model.Config{
			Store: s.store, Clock: clock.RealClock{}, Random: w.numbers(), Admission: policies,
			Custom: []model.Custom{{
				GroupVersionKind: edge.NodePools.GroupVersion().WithKind(kindNodePool), Resource: edge.NodePools.Resource,
			}},
		})
		s.has(serves, serves)
	}
	return nil
}

// balanced returns a function with which a hub dials the cloud through a balancer. The hubs of every second node get the second
// API server while that server passes the balancer's checks. Existing connections stay where they are.
func (n *node) balanced(
	dial func(context.Context, string, string) (net.Conn, error),
) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		if w := n.world; n.ofSecond && address == w.cloud.address() && !w.second.sick.Load() {
			address = w.second.address()
		}
		return dial(ctx, network, address)
	}
}

func (s *server) address() string { return net.JoinHostPort(s.ip, s.port) }

// authenticated sets the caller of each request, by the certificate.
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

// certificates returns a pool with an authority's certificate, for those who trust it.
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
