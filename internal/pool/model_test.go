package pool

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/ends"
	"yurtcoordinator/internal/pool/apiserver"
	"yurtcoordinator/internal/pool/pooltest"
	"yurtcoordinator/internal/run"
	"yurtcoordinator/internal/sim/model"
	"yurtcoordinator/internal/sim/stock"
)

// modelled is a Server that is a model: it has neither kube-apiserver nor etcd. Kubernetes' own authorizers are real.
type modelled struct {
	client  kubernetes.Interface
	factory informers.SharedInformerFactory
	roots   *x509.CertPool
}

func newModelled(client kubernetes.Interface, ca *x509.Certificate) *modelled {
	m := &modelled{client: client, factory: informers.NewSharedInformerFactory(client, 0), roots: x509.NewCertPool()}
	m.roots.AddCert(ca)
	apiserver.Unfilled(m.factory)
	return m
}

func (m *modelled) Client() kubernetes.Interface               { return m.client }
func (m *modelled) Informers() informers.SharedInformerFactory { return m.factory }
func (m *modelled) Authorizer() authorizer.Authorizer          { return stock.Authorizer() }
func (m *modelled) Storage() generic.RESTOptionsGetter         { return m }

func (m *modelled) VerifyOptions() (x509.VerifyOptions, bool) {
	return x509.VerifyOptions{Roots: m.roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}, true
}

// GetRESTOptions implements generic.RESTOptionsGetter.
func (m *modelled) GetRESTOptions(r schema.GroupResource, _ runtime.Object) (generic.RESTOptions, error) {
	return generic.RESTOptions{ResourcePrefix: r.Resource, StorageConfig: &storagebackend.ConfigForResource{
		Config: storagebackend.Config{Prefix: "/registry", EncodeVersioner: schema.GroupVersions{
			corev1.SchemeGroupVersion, coordinationv1.SchemeGroupVersion, discoveryv1.SchemeGroupVersion,
		}},
	}}, nil
}

// inBubble is a coordinator over a model, in simulated time.
type inBubble struct {
	*testing.T
	ca      *pooltest.Authority
	it      *Coordinator
	handler http.Handler
	ready   atomic.Bool

	mu sync.Mutex // guards the rest
	// stands is when the coordinator's machine was suspended; slept is for how long it was before; off is how far its wall clock
	// is off.
	stands     time.Time
	slept, off time.Duration
}

func (b *inBubble) running() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.runningLocked()
}

func (b *inBubble) runningLocked() time.Time {
	if !b.stands.IsZero() {
		return b.stands
	}
	return time.Now().Add(-b.slept)
}

func (b *inBubble) wall() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return time.Now().Add(b.off)
}

// step sets the machine's wall clock.
func (b *inBubble) step(off time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.off = off
}

// sleep suspends the coordinator's machine.
func (b *inBubble) sleep(d time.Duration) {
	b.mu.Lock()
	b.stands = b.runningLocked()
	b.mu.Unlock()
	time.Sleep(d)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stands, b.slept = time.Time{}, b.slept+d
}

// newInBubble starts one with the nodes n1 and n2.
func newInBubble(t *testing.T) *inBubble {
	b := &inBubble{T: t, ca: pooltest.NewAuthority(t, "pool-ca")}
	cfg := model.Config{Store: model.NewStore(), Random: model.NewRandom(0), Clock: clock.RealClock{}}
	client, err := kubernetes.NewForConfig(&rest.Config{
		Host: "http://pool", QPS: -1, ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeJSON},
		Transport: &model.Wire{User: &user.DefaultInfo{Name: "self"}, Handler: model.NewServer(cfg)},
	})
	if err != nil {
		t.Fatal(err)
	}
	server := newModelled(client, b.ca.Cert)
	b.it, err = NewCoordinator(Config{
		NodeName: "n2", PoolNodesFile: pooltest.WriteFile(t, t.TempDir(), "nodes", []byte("n1\nn2\n")),
		Ends: ends.Ends{
			Clock:  ends.Clock{Ran: b.running, OfDay: b.wall},
			Chance: ends.Chance{Source: model.NewRandom(1)},
		},
	}, Around{
		Server: server, Port: edge.PortCoordinator, Log: klog.Background(),
		Write: func(context.Context, *etcdserverpb.TxnRequest) (bool, error) { return false, errors.New("no storage") },
		Read:  func(context.Context, []byte) ([]byte, int64, error) { return nil, 0, errors.New("no storage") },
		Dial:  func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("no LAN") },
		Ready: func(context.Context) error { b.ready.Store(true); return nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	p := b.it.Parts
	mux := http.NewServeMux()
	for path, handler := range p.Handlers {
		mux.Handle(path, handler)
	}
	cfg.Admission = stock.Admission(p.Admission)
	mux.Handle("/", model.NewServer(cfg))
	b.handler = p.Chain(mux, func(h http.Handler) http.Handler {
		h = filters.WithAuthorization(h, p.Authorizer, scheme.Codecs)
		h = filters.WithAuthentication(h, p.Unrecognized(p.Door), filters.Unauthorized(scheme.Codecs), nil, nil)
		return filters.WithRequestInfo(h, &request.RequestInfoFactory{
			APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api"),
		})
	}, func(r *http.Request, _ *request.RequestInfo) bool { return p.MayLast(r) })

	var group run.Group
	group.Add("informers", func(ctx context.Context) error {
		server.factory.StartWithContext(ctx)
		<-ctx.Done()
		server.factory.Shutdown()
		return nil
	})
	b.it.AddTo(group.Add)
	ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), logr.Discard()))
	ended := make(chan error, 1)
	go func() { ended <- group.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := errors.Join(<-ended, p.BeforeShutdown()); err != nil {
			t.Error(err)
		}
	})
	return b
}

// connection is one that a node has made with its certificate.
func (b *inBubble) connection(name string) *tls.ConnectionState {
	b.Helper()
	pair := b.ca.Issue(b.T, pooltest.Node(name), pooltest.Tomorrow())
	return &tls.ConnectionState{HandshakeComplete: true, PeerCertificates: []*x509.Certificate{pair.TLS(b.T).Leaf}}
}

// put has a node write a Lease, and returns the answer.
func (b *inBubble) put(by *tls.ConnectionState, lease *coordinationv1.Lease) *httptest.ResponseRecorder {
	b.Helper()
	path := "/apis/coordination.k8s.io/v1/namespaces/" + lease.Namespace + "/leases/" + lease.Name
	ask := func(method string, body []byte) *httptest.ResponseRecorder {
		r := httptest.NewRequestWithContext(b.Context(), method, path, bytes.NewReader(body))
		r.TLS = by
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		b.handler.ServeHTTP(w, r)
		return w
	}
	is := ask(http.MethodGet, nil)
	if is.Code == http.StatusOK {
		var stored coordinationv1.Lease
		if err := json.Unmarshal(is.Body.Bytes(), &stored); err != nil {
			b.Fatal(err)
		}
		lease.ResourceVersion = stored.ResourceVersion
	}
	body, err := json.Marshal(lease)
	if err != nil {
		b.Fatal(err)
	}
	return ask(http.MethodPut, body)
}

// aLease is one that somebody holds for ten seconds from now.
func aLease(namespace, name, holder string, transitions int32) *coordinationv1.Lease {
	seconds, now := int32(10), metav1.NowMicro()
	return &coordinationv1.Lease{
		TypeMeta:   metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: &holder, LeaseDurationSeconds: &seconds, RenewTime: &now, LeaseTransitions: &transitions,
		},
	}
}

// TestACoordinatorOverAModel: what decides at a coordinator, and what runs beside it, is the same without kube-apiserver and
// etcd. It judges by the clocks that it is given.
func TestACoordinatorOverAModel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newInBubble(t)
		time.Sleep(3 * time.Second / 2)
		if !b.ready.Load() {
			t.Fatal("it is not set up")
		}
		n1, n2, stranger := b.connection("n1"), b.connection("n2"), b.connection("n3")
		says := func(what string, answer *httptest.ResponseRecorder, code int, text string) {
			t.Helper()
			if answer.Code != code || !strings.Contains(answer.Body.String(), text) {
				t.Errorf("%s: %d %s, want %d %q", what, answer.Code, answer.Body, code, text)
			}
		}
		leads := func(holder string, transitions int32) *coordinationv1.Lease {
			return aLease(edge.NamespaceSystem, edge.LeaseElection, holder, transitions)
		}
		b.sleep(time.Hour)
		says("a coordinator that has not run for a term", b.put(n1, leads("n1", 1)), http.StatusForbidden, "stays vacant")
		time.Sleep(edge.ElectionTerm)
		says("another's name", b.put(n1, leads("n2", 1)), http.StatusForbidden, "only itself")
		says("the first leader", b.put(n1, leads("n1", 1)), http.StatusOK, "")
		says("a second one", b.put(n2, leads("n2", 2)), http.StatusForbidden, `node \"n1\" holds the Lease`)
		b.sleep(time.Minute)
		says("a second one, when the coordinator wakes", b.put(n2, leads("n2", 2)), http.StatusForbidden, "holds the Lease")
		time.Sleep(10 * time.Second)
		says("a second one, when the term is over", b.put(n2, leads("n2", 2)), http.StatusOK, "")

		beat := func(node string) *coordinationv1.Lease { return aLease(corev1.NamespaceNodeLease, node, node, 0) }
		says("another's heartbeat", b.put(n1, beat("n2")), http.StatusForbidden, "same name as the requesting node")
		says("another's name in its own", b.put(n1, aLease(corev1.NamespaceNodeLease, "n1", "n2", 0)), http.StatusForbidden,
			"must be the node's own name")
		says("a heartbeat", b.put(n1, beat("n1")), http.StatusCreated, "")
		says("the host's", b.put(n2, beat("n2")), http.StatusCreated, edge.AnnotationCoordinatorHost)
		says("a node of another pool", b.put(stranger, beat("n3")), http.StatusForbidden, "does not belong to this pool")
		time.Sleep(7 * time.Second)
		heard := b.it.present.Nodes()
		if len(heard) != 2 || heard[0].Quiet != 7*time.Second {
			t.Errorf("seven seconds later %+v", heard)
		}
		b.step(48 * time.Hour)
		says("a certificate that has expired here", b.put(n1, beat("n1")), http.StatusUnauthorized, "expired")
	})
}
