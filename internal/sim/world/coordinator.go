package world

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"os"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/generic"
	genericfilters "k8s.io/apiserver/pkg/server/filters"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/ends"
	"yurtcoordinator/internal/pool"
	"yurtcoordinator/internal/pool/apiserver"
	"yurtcoordinator/internal/pool/pooltest"
	"yurtcoordinator/internal/run"
	"yurtcoordinator/internal/sim/model"
	"yurtcoordinator/internal/sim/network"
	"yurtcoordinator/internal/sim/stock"
)

// coordinated is the model of a coordinator's API server, with Kubernetes' own Node authorizer. It does not serve the objects
// that hubs bring for others to read.
type coordinated struct {
	client  kubernetes.Interface
	factory informers.SharedInformerFactory
	roots   *x509.CertPool
}

func (c *coordinated) Client() kubernetes.Interface               { return c.client }
func (c *coordinated) Informers() informers.SharedInformerFactory { return c.factory }
func (c *coordinated) Authorizer() authorizer.Authorizer          { return stock.Authorizer() }
func (c *coordinated) Storage() generic.RESTOptionsGetter         { return c }

func (c *coordinated) VerifyOptions() (x509.VerifyOptions, bool) {
	return x509.VerifyOptions{Roots: c.roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}, true
}

// GetRESTOptions implements generic.RESTOptionsGetter.
func (c *coordinated) GetRESTOptions(r schema.GroupResource, _ runtime.Object) (generic.RESTOptions, error) {
	return generic.RESTOptions{ResourcePrefix: r.Resource, StorageConfig: &storagebackend.ConfigForResource{
		Config: storagebackend.Config{Prefix: "/registry", EncodeVersioner: schema.GroupVersions{
			corev1.SchemeGroupVersion, coordinationv1.SchemeGroupVersion, discoveryv1.SchemeGroupVersion,
		}},
	}}, nil
}

var empty = model.NewStore().Backup() // a constant

// dial shows the time of a machine's wall clock.
type dial struct{ *machine }

// Now implements clock.PassiveClock.
func (d dial) Now() time.Time { return d.wall() }

// Since implements clock.PassiveClock.
func (d dial) Since(t time.Time) time.Duration { return d.wall().Sub(t) }

// coordinate runs a coordinator on a server's machine. Its storage is empty at the start.
func coordinate(ctx context.Context, s *server, p *network.Process) error {
	ctx = s.world.logs(ctx, s.machine.name+"/coordinator")
	w := s.world
	s.store.Restore(empty)
	// Copies of what hubs bring; the API server, a model, does not show them.
	kept := &pooltest.FakeEtcd{Keys: map[string]string{}}
	cfg := model.Config{Store: s.store, Clock: dial{s.machine}, Random: w.numbers()}
	client, err := kubernetes.NewForConfig(&rest.Config{
		Host: "http://" + s.ip, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeJSON},
		Transport: &model.Wire{User: admin, Handler: model.NewServer(cfg)},
	})
	if err != nil {
		return err
	}
	around := &coordinated{client: client, factory: informers.NewSharedInformerFactory(client, 0)}
	apiserver.Unfilled(around.factory)
	if around.roots, err = certificates(w.ca); err != nil {
		return err
	}
	it, err := pool.NewCoordinator(pool.Config{
		NodeName: edge.NodeName(s.machine.name), PoolNodesFile: w.path("members"),
		Ends: ends.Ends{Clock: s.clock(), Chance: ends.Chance{Source: w.numbers()}},
	}, pool.Around{
		Server: around, Port: edge.PortCoordinator, Dial: p.Dial, Log: klog.FromContext(ctx),
		Write: kept.Write, Read: kept.Read,
		Ready: func(context.Context) error { return nil },
	})
	if err != nil {
		return err
	}
	parts := &it.Parts
	cfg.Admission = stock.Admission(parts.Admission)
	served, api := model.NewServer(cfg), http.NewServeMux()
	api.Handle("/", served)
	for path, handler := range parts.Handlers {
		below := strings.TrimSuffix(path, "/") + "/"
		if api.Handle(below, handler); below != path {
			api.Handle(path, handler)
		}
	}
	lasting := genericfilters.BasicLongRunningRequestCheck(sets.NewString("watch"), sets.NewString())
	h := parts.Chain(api, func(h http.Handler) http.Handler {
		h = filters.WithAuthorization(h, parts.Authorizer, scheme.Codecs)
		h = filters.WithAuthentication(h, parts.Unrecognized(parts.Door), filters.Unauthorized(scheme.Codecs), nil, nil)
		return filters.WithRequestInfo(h, &request.RequestInfoFactory{
			APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api"),
		})
	}, func(r *http.Request, info *request.RequestInfo) bool { return lasting(r, info) || parts.MayLast(r) })
	s.has(served, h)
	var group run.Group
	group.Add("server", func(ctx context.Context) error {
		secure := &tls.Config{ClientAuth: tls.RequireAnyClientCert, VerifyConnection: parts.Known}
		return s.serve(ctx, p, s.gray, secure, parts.ConnContext)
	})
	group.Add("informers", func(ctx context.Context) error {
		around.factory.StartWithContext(ctx)
		<-ctx.Done()
		around.factory.Shutdown()
		return nil
	})
	it.AddTo(group.Add)
	return errors.Join(group.Run(ctx), parts.BeforeShutdown())
}

// members writes the list of the pool's nodes, in the form of the file that is mounted for coordinators.
func (w *World) members() error {
	var names []string
	for _, n := range w.nodes {
		names = append(names, n.name)
	}
	return os.WriteFile(w.path("members"), []byte(strings.Join(names, "\n")+"\n"), 0o600)
}
