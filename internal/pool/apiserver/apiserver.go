package apiserver

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericfilters "k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/request"
	genericfeatures "k8s.io/apiserver/pkg/features"
	"k8s.io/apiserver/pkg/registry/generic"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/healthz"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/apiserver/pkg/util/notfoundhandler"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/capabilities"
	controlplane "k8s.io/kubernetes/pkg/controlplane/apiserver"
	"k8s.io/kubernetes/pkg/controlplane/apiserver/options"
	kubeoptions "k8s.io/kubernetes/pkg/kubeapiserver/options"

	// The types of the served groups, and of the reviews and scales that their subresources take.
	_ "k8s.io/kubernetes/pkg/apis/authentication/install"
	_ "k8s.io/kubernetes/pkg/apis/authorization/install"
	_ "k8s.io/kubernetes/pkg/apis/autoscaling/install"
	_ "k8s.io/kubernetes/pkg/apis/coordination/install"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	_ "k8s.io/kubernetes/pkg/apis/discovery/install"
	_ "k8s.io/kubernetes/pkg/apis/events/install"
	_ "k8s.io/kubernetes/pkg/apis/policy/install"
	_ "k8s.io/kubernetes/pkg/apis/rbac/install"
)

const (
	// eventTTL is how long an Event is kept: Kubernetes' default.
	eventTTL = time.Hour
	// watchEnd is how long the stopping server lets watches end by themselves.
	watchEnd = 500 * time.Millisecond
	// maxBody bounds the body of a request to Kubernetes' API, in bytes. Reviews and Leases have some KB. What hubs push does not
	// come by that API. A decoded body can take some 170 times as much memory.
	maxBody = 64 << 10
	// drainTimeout is how long other connections may continue after that, such as a followed log or an exec.
	drainTimeout = 2 * time.Second
)

// served are the API groups of a pool. They leave out kinds whose objects nobody brings here, because their lists would be empty
// although the cloud has such objects.
func served() *serverstorage.ResourceConfig {
	config := serverstorage.NewResourceConfig()
	config.EnableVersions(
		corev1.SchemeGroupVersion,
		authenticationv1.SchemeGroupVersion,
		authorizationv1.SchemeGroupVersion,
		coordinationv1.SchemeGroupVersion,
		discoveryv1.SchemeGroupVersion,
		rbacv1.SchemeGroupVersion,
	)
	for _, unfilled := range []string{
		"bindings", "componentstatuses", "limitranges", "persistentvolumeclaims", "persistentvolumes", "podtemplates",
		"replicationcontrollers", "resourcequotas",
	} {
		config.DisableResources(corev1.SchemeGroupVersion.WithResource(unfilled))
	}
	return config
}

// Config says what a kube-apiserver is assembled from. Only Schemes may be empty.
type Config struct {
	// Local is a listener on the loopback interface, for the server's own client and kubelet's probes. The server closes Local,
	// and also the listener that Parts.Gate returns.
	Local net.Listener
	// AdvertiseAddress and AdvertisePort are what discovery tells clients to dial.
	AdvertiseAddress net.IP
	AdvertisePort    int
	// EtcdEndpoint is where etcd listens. etcd must answer before Configure is called.
	EtcdEndpoint string
	// TLSCertFile and TLSPrivateKeyFile are the serving certificate. ClientCAFile has the CAs of client certificates. All three
	// are reread when they change.
	TLSCertFile, TLSPrivateKeyFile, ClientCAFile string
	// ServiceRange is the cloud's range of Service addresses; only its IP family matters.
	ServiceRange net.IPNet
	// Kubelets is how logs, exec, attach and port-forward reach kubelets.
	Kubelets *Reach
	// Shown returns a function that removes from an object what a request's caller must not see; nil means that he sees all.
	Shown func(context.Context) func(runtime.Object)
	// Schemes have the types of the further API groups that Parts.Install installs.
	Schemes []*runtime.Scheme
}

// Parts are the parts of a kube-apiserver that are not Kubernetes' own. All fields must be set.
type Parts struct {
	// Door recognizes callers; the server recognizes its own loopback client before. Unrecognized wraps both.
	Door         authenticator.Request
	Unrecognized func(authenticator.Request) authenticator.Request
	// Gate returns the listener for all clients but those of Config.Local. Its connections have completed a TLS handshake with
	// the given configuration. Known checks a client's certificate in that handshake.
	Gate func(*tls.Config) net.Listener
	// ConnContext is http.Server.ConnContext for them.
	ConnContext func(context.Context, net.Conn) context.Context
	Known       func(tls.ConnectionState) error
	// Authorizer decides about each request. Rules lists what a caller may do, for kubectl auth can-i.
	Authorizer authorizer.Authorizer
	Rules      authorizer.RuleResolver
	// Admission decides about each write.
	Admission admission.Interface
	// AuditPolicy says what AuditLog hears of.
	AuditPolicy audit.PolicyRuleEvaluator
	AuditLog    audit.Backend
	// Chain returns all handlers that a request passes, from the outermost one to the API. kubernetes wraps a handler into
	// kube-apiserver's own chain; lasts reports whether a request is a long one, such as a watch.
	Chain func(api http.Handler, kubernetes func(http.Handler) http.Handler, lasts Lasts) http.Handler
	// MayLast selects the requests to paths outside Kubernetes' API that are exempt from the chain's time limit.
	MayLast func(*http.Request) bool
	// Ready is one more condition of /readyz.
	Ready healthz.HealthChecker
	// Install adds API groups to the server.
	Install func(*genericapiserver.GenericAPIServer) error
	// Handlers serve paths beside the API. A handler gets its path and everything below it, or only what is below if the path
	// ends with a slash.
	Handlers map[string]http.Handler
	// BeforeShutdown ends requests that would delay the end of the server.
	BeforeShutdown func() error
}

// Lasts reports whether a request may take longer than others.
type Lasts = func(*http.Request, *request.RequestInfo) bool

// Assembly is a configured kube-apiserver that still lacks its Parts.
type Assembly struct {
	config  Config
	generic *genericapiserver.Config
	factory informers.SharedInformerFactory
	storage *serverstorage.DefaultStorageFactory
	client  kubernetes.Interface
}

// Configure makes an Assembly. Its followers of files run until ctx ends.
func Configure(ctx context.Context, config Config) (*Assembly, error) {
	opts, err := serverOptions(ctx, config)
	if err != nil {
		return nil, err
	}
	generic, factory, storage, err := controlplane.BuildGenericConfig(opts, []*runtime.Scheme{legacyscheme.Scheme}, served(),
		untyped(append([]*runtime.Scheme{legacyscheme.Scheme}, config.Schemes...)...))
	if err != nil {
		return nil, err
	}
	generic.ExternalAddress = net.JoinHostPort(config.AdvertiseAddress.String(), strconv.Itoa(config.AdvertisePort))
	generic.SkipOpenAPIInstallation = true // see untyped
	generic.RESTOptionsGetter = uncached{generic.RESTOptionsGetter, config.Shown, newQueues()}
	generic.MaxRequestBodyBytes = maxBody
	Unfilled(factory)
	if err := slimInformers(factory); err != nil {
		return nil, err
	}
	generic.Authorization.Authorizer = ownAuthorizer(factory)
	// The pool holds what the cloud has admitted, including privileged Pods.
	capabilities.Setup(true, 0)
	client, err := kubernetes.NewForConfig(generic.LoopbackClientConfig)
	if err != nil {
		return nil, err
	}
	return &Assembly{config: config, generic: generic, factory: factory, storage: storage, client: client}, nil
}

// Client returns a client of the server itself, which may do everything.
func (a *Assembly) Client() kubernetes.Interface { return a.client }

// Loopback returns the configuration of such a client.
func (a *Assembly) Loopback() *rest.Config { return a.generic.LoopbackClientConfig }

// Storage returns where the server keeps each resource.
func (a *Assembly) Storage() generic.RESTOptionsGetter { return a.generic.RESTOptionsGetter }

// Informers returns the server's own copies of objects.
func (a *Assembly) Informers() informers.SharedInformerFactory { return a.factory }

// Authorizer returns Kubernetes' own authorizers: the Node authorizer, and what lets this process itself do everything.
func (a *Assembly) Authorizer() authorizer.Authorizer { return a.generic.Authorization.Authorizer }

// VerifyOptions returns how to verify client certificates by the present CAs.
func (a *Assembly) VerifyOptions() (x509.VerifyOptions, bool) {
	return a.generic.SecureServing.ClientCA.VerifyOptions()
}

// serverOptions returns kube-apiserver's own options.
func serverOptions(ctx context.Context, config Config) (options.CompletedOptions, error) {
	o := options.NewOptions()
	o.SecureServing.Listener = config.Local
	o.SecureServing.ServerCert.CertKey.CertFile = config.TLSCertFile
	o.SecureServing.ServerCert.CertKey.KeyFile = config.TLSPrivateKeyFile
	// If empty, it would be found by the default route, which a site may not have.
	o.GenericServerRunOptions.AdvertiseAddress = config.AdvertiseAddress
	o.GenericServerRunOptions.ShutdownWatchTerminationGracePeriod = watchEnd
	o.Etcd.StorageConfig.Transport.ServerList = []string{config.EtcdEndpoint}
	o.Etcd.StorageConfig.CompactionInterval = 0 // etcd's Housekeep compacts
	o.Etcd.EnableWatchCache = false             // see uncached
	o.Features.EnableProfiling = false
	o.Features.EnablePriorityAndFairness = false
	// The limits of Parts.Chain are by caller. These two would let one caller keep all others out.
	o.GenericServerRunOptions.MaxRequestsInFlight, o.GenericServerRunOptions.MaxMutatingRequestsInFlight = 0, 0
	o.Authorization = nil // see Parts.Authorizer

	o.Authentication = kubeoptions.NewBuiltInAuthenticationOptions().WithClientCert().WithServiceAccounts()
	o.Authentication.ClientCert.ClientCA = config.ClientCAFile
	o.Authentication.ServiceAccounts.OptionalTokenGetter = newTokenObjects

	if err := o.GenericServerRunOptions.ComponentGlobalsRegistry.Set(); err != nil {
		return options.CompletedOptions{}, err
	}
	return o.Complete(ctx, nil, nil)
}

// Server is an assembled kube-apiserver.
type Server struct {
	inside  func(context.Context) error
	outside *outside
	handler http.Handler
}

// Run serves until ctx ends, and has stopped serving when it returns.
func (s *Server) Run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() {
		defer stop()
		ended <- s.outside.run(ctx, s.handler)
	}()
	err := s.inside(ctx)
	stop()
	return errors.Join(err, <-ended)
}

// Build makes the server from its parts. Nothing listens or runs yet. Call it once.
func (a *Assembly) Build(parts Parts) (*Server, error) {
	config := a.generic
	config.Authentication.Authenticator = parts.Door
	config.Authorization.Authorizer = parts.Authorizer
	config.AdmissionControl = parts.Admission
	config.AuditPolicyRuleEvaluator, config.AuditBackend = parts.AuditPolicy, parts.AuditLog
	config.BuildHandlerChainFunc = func(api http.Handler, c *genericapiserver.Config) http.Handler {
		return parts.Chain(api, func(h http.Handler) http.Handler {
			return genericapiserver.DefaultBuildHandlerChain(h, c)
		}, c.LongRunningFunc)
	}
	lasting := config.LongRunningFunc
	config.LongRunningFunc = func(r *http.Request, info *request.RequestInfo) bool {
		return lasting(r, info) || parts.MayLast(r)
	}
	providers, err := a.providers(parts)
	if err != nil {
		return nil, err
	}
	notFound := notfoundhandler.New(config.Serializer, genericfilters.NoMuxAndDiscoveryIncompleteKey)
	completed := config.Complete(a.factory) // adds the loopback client's token before Door
	completed.Authentication.Authenticator = parts.Unrecognized(completed.Authentication.Authenticator)
	server, err := completed.New("yurt-coordinator", genericapiserver.NewEmptyDelegateWithCustomHandler(notFound))
	if err != nil {
		return nil, err
	}
	if err := a.install(server, parts, providers); err != nil {
		return nil, err
	}
	server.ShutdownTimeout = drainTimeout
	outside, err := newOutside(config.SecureServing, parts)
	if err != nil {
		return nil, err
	}
	return &Server{inside: server.PrepareRun().RunWithContext, outside: outside, handler: server.Handler}, nil
}

// install installs all that the server serves.
func (a *Assembly) install(
	server *genericapiserver.GenericAPIServer, parts Parts, providers []controlplane.RESTStorageProvider,
) error {
	if utilfeature.DefaultFeatureGate.Enabled(genericfeatures.WatchCacheInitializationPostStartHook) {
		if err := server.AddPostStartHook("storage-readiness", server.StorageReadinessHook.Hook); err != nil {
			return err
		}
	}
	if err := server.AddReadyzChecks(parts.Ready); err != nil {
		return err
	}
	api := controlplane.Server{
		GenericAPIServer:        server,
		APIResourceConfigSource: a.storage.APIResourceConfigSource,
		RESTOptionsGetter:       a.generic.RESTOptionsGetter,
	}
	if err := api.InstallAPIs(providers...); err != nil {
		return err
	}
	if err := parts.Install(server); err != nil {
		return err
	}
	for path, handler := range parts.Handlers {
		below := strings.TrimSuffix(path, "/") + "/"
		if below != path {
			server.Handler.NonGoRestfulMux.Handle(path, handler)
		}
		server.Handler.NonGoRestfulMux.HandlePrefix(below, handler)
	}
	return server.AddPreShutdownHook("mirror", parts.BeforeShutdown)
}
