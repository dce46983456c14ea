package pool

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"syscall"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	admissionmetrics "k8s.io/apiserver/pkg/admission/metrics"
	apiserverapi "k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/group"
	"k8s.io/apiserver/pkg/authentication/request/anonymous"
	requestunion "k8s.io/apiserver/pkg/authentication/request/union"
	requestx509 "k8s.io/apiserver/pkg/authentication/request/x509"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/path"
	authorizerunion "k8s.io/apiserver/pkg/authorization/union"
	genericfilters "k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/request"
	genericfeatures "k8s.io/apiserver/pkg/features"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/healthz"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/apiserver/pkg/util/notfoundhandler"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/auth/nodeidentifier"
	"k8s.io/kubernetes/pkg/capabilities"
	"k8s.io/kubernetes/pkg/cluster/ports"
	controlplane "k8s.io/kubernetes/pkg/controlplane/apiserver"
	"k8s.io/kubernetes/pkg/controlplane/apiserver/options"
	kubeoptions "k8s.io/kubernetes/pkg/kubeapiserver/options"
	kubeletclient "k8s.io/kubernetes/pkg/kubelet/client"
	authenticationrest "k8s.io/kubernetes/pkg/registry/authentication/rest"
	authorizationrest "k8s.io/kubernetes/pkg/registry/authorization/rest"
	coordinationrest "k8s.io/kubernetes/pkg/registry/coordination/rest"
	corerest "k8s.io/kubernetes/pkg/registry/core/rest"
	discoveryrest "k8s.io/kubernetes/pkg/registry/discovery/rest"
	networkingrest "k8s.io/kubernetes/pkg/registry/networking/rest"
	rbacrest "k8s.io/kubernetes/pkg/registry/rbac/rest"
	resourcerest "k8s.io/kubernetes/pkg/registry/resource/rest"
	storagerest "k8s.io/kubernetes/pkg/registry/storage/rest"
	"k8s.io/kubernetes/plugin/pkg/admission/noderestriction"

	"yurtcoordinator/internal/pool/openapi"
	"yurtcoordinator/internal/usage"

	// The types of the served groups, and of the reviews and scales that their subresources take.
	_ "k8s.io/kubernetes/pkg/apis/authentication/install"
	_ "k8s.io/kubernetes/pkg/apis/authorization/install"
	_ "k8s.io/kubernetes/pkg/apis/autoscaling/install"
	_ "k8s.io/kubernetes/pkg/apis/coordination/install"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	_ "k8s.io/kubernetes/pkg/apis/discovery/install"
	_ "k8s.io/kubernetes/pkg/apis/events/install"
	_ "k8s.io/kubernetes/pkg/apis/networking/install"
	_ "k8s.io/kubernetes/pkg/apis/policy/install"
	_ "k8s.io/kubernetes/pkg/apis/rbac/install"
	_ "k8s.io/kubernetes/pkg/apis/resource/install"
	_ "k8s.io/kubernetes/pkg/apis/storage/install"
)

const (
	// eventTTL is how long an Event is kept: Kubernetes' default.
	eventTTL = time.Hour
	// watchEnd is how long watches are given to end when the server stops, by its closing them one by one.
	watchEnd = 500 * time.Millisecond
	// drainTimeout is how long connections may go on after that: a log that is followed, an exec.
	drainTimeout = 2 * time.Second
	// kubeletTimeout bounds connecting to a kubelet; it is on the same LAN. Kubernetes' default.
	kubeletTimeout = 5 * time.Second
)

// openPaths answer without a certificate, so that a kubelet can probe them.
var openPaths = []string{"/livez", "/readyz"}

// served are the API groups of a pool. networking.k8s.io is what Service storage keeps addresses in; storage.k8s.io and
// resource.k8s.io are what the Node authorizer follows.
func served() *serverstorage.ResourceConfig {
	config := serverstorage.NewResourceConfig()
	config.EnableVersions(
		corev1.SchemeGroupVersion,
		authenticationv1.SchemeGroupVersion,
		authorizationv1.SchemeGroupVersion,
		coordinationv1.SchemeGroupVersion,
		discoveryv1.SchemeGroupVersion,
		networkingv1.SchemeGroupVersion,
		rbacv1.SchemeGroupVersion,
		resourcev1.SchemeGroupVersion,
		storagev1.SchemeGroupVersion,
	)
	return config
}

// apiServer is kube-apiserver, as a pool needs it.
type apiServer struct {
	config   Config
	etcd     *etcdMember
	listener net.Listener
	audit    *auditLog
	ready    healthz.HealthChecker // one more condition of /readyz

	serving  chan struct{} // closed when loopback and own are set, and it answers soon
	loopback *rest.Config
	own      *own
	members  *members
	meter    *usage.Meter
}

// Run waits for etcd, serves until ctx ends, and has stopped serving when it returns.
func (s *apiServer) Run(ctx context.Context) error {
	select {
	case <-s.etcd.ready:
	case <-ctx.Done():
		return s.listener.Close()
	}
	server, loopback, err := s.build(ctx)
	if err != nil {
		_ = s.listener.Close()
		return err
	}
	server.ShutdownTimeout = drainTimeout
	prepared := server.PrepareRun()
	s.loopback = loopback
	close(s.serving)
	return prepared.RunWithContext(ctx)
}

func (s *apiServer) options(ctx context.Context) (options.CompletedOptions, error) {
	o := options.NewOptions()
	o.SecureServing.Listener = s.listener
	o.SecureServing.ServerCert.CertKey.CertFile = s.config.TLSCertFile
	o.SecureServing.ServerCert.CertKey.KeyFile = s.config.TLSPrivateKeyFile
	// What discovery tells clients to dial. Left empty, it is looked up by the default route, which a site may not
	// have.
	o.GenericServerRunOptions.AdvertiseAddress = net.ParseIP(s.config.BindAddress)
	if o.GenericServerRunOptions.AdvertiseAddress.IsUnspecified() {
		o.GenericServerRunOptions.AdvertiseAddress = net.IPv4(127, 0, 0, 1)
	}
	o.GenericServerRunOptions.ShutdownWatchTerminationGracePeriod = watchEnd
	o.Etcd.StorageConfig.Transport.ServerList = []string{s.etcd.Endpoint()}
	o.Etcd.StorageConfig.CompactionInterval = 0 // etcdMember.Housekeep compacts
	o.Etcd.EnableWatchCache = false             // uncached says why
	o.Features.EnableProfiling = false
	o.Features.EnablePriorityAndFairness = false
	o.Authorization.Modes = []string{"Node", "RBAC"}

	o.Authentication = kubeoptions.NewBuiltInAuthenticationOptions().WithClientCert().WithServiceAccounts()
	o.Authentication.ClientCert.ClientCA = s.config.ClientCAFile
	if s.config.ServiceAccountIssuer != "" {
		o.Authentication.ServiceAccounts.Issuers = []string{s.config.ServiceAccountIssuer}
		o.Authentication.ServiceAccounts.KeyFiles = s.config.ServiceAccountKeyFiles
	}
	o.Authentication.ServiceAccounts.OptionalTokenGetter = newTokenObjects

	if err := o.GenericServerRunOptions.ComponentGlobalsRegistry.Set(); err != nil {
		return options.CompletedOptions{}, err
	}
	return o.Complete(ctx, nil, nil)
}

// build assembles the server; nothing of it listens or runs yet, but what reads from etcd.
func (s *apiServer) build(ctx context.Context) (*genericapiserver.GenericAPIServer, *rest.Config, error) {
	serviceRange, err := s.config.serviceRange()
	if err != nil {
		return nil, nil, err
	}
	opts, err := s.options(ctx)
	if err != nil {
		return nil, nil, err
	}
	config, factory, storageFactory, err := controlplane.BuildGenericConfig(
		opts, []*runtime.Scheme{legacyscheme.Scheme}, served(), untyped(legacyscheme.Scheme, usage.Scheme))
	if err != nil {
		return nil, nil, err
	}
	config.SkipOpenAPIInstallation = true // openapi.Handler has it
	config.RESTOptionsGetter = uncached{config.RESTOptionsGetter}
	if err := slimInformers(factory); err != nil {
		return nil, nil, err
	}
	// The pool holds what the cloud has admitted, privileged Pods too.
	capabilities.Setup(true, 0)

	// Tokens are for TokenReview alone; at the door there is a client certificate, or one of two open paths.
	tokens := config.Authentication.Authenticator
	config.Authentication.Authenticator = atTheDoor(config.SecureServing)
	openToAll, err := path.NewAuthorizer(openPaths)
	if err != nil {
		return nil, nil, err
	}
	s.members = newMembers(s.config)
	_, _ = s.members.read() // what is wrong with it is for Run to say
	config.Authorization.Authorizer = authorizerunion.New(openToAll, s.members, newNotForNodes(),
		config.Authorization.Authorizer, hints{})
	config.BuildHandlerChainFunc = func(api http.Handler, c *genericapiserver.Config) http.Handler {
		api = s.audit.logStreams(api, c.RequestInfoResolver)
		return s.audit.logRefusals(genericapiserver.DefaultBuildHandlerChain(api, c), c.RequestInfoResolver)
	}

	client, err := kubernetes.NewForConfig(config.LoopbackClientConfig)
	if err != nil {
		return nil, nil, err
	}
	elected := &election{leases: client.CoordinationV1(), terms: newTerms(s.config.Clock)}
	if config.AdmissionControl, err = s.admission(config, factory, elected); err != nil {
		return nil, nil, err
	}
	builtIns, err := stored(config.RESTOptionsGetter)
	if err != nil {
		return nil, nil, err
	}
	pool := newMirror(s.config, elected.leads, s.etcd.write, builtIns)
	kinds, err := storedOwn(config.RESTOptionsGetter, s.config.OwnSecrets)
	if err != nil {
		return nil, nil, err
	}
	s.own = newOwn(s.config, s.etcd.write, s.etcd.read, kinds, s.audit.refused)
	s.own.member = s.members.Has
	lasting := config.LongRunningFunc
	config.LongRunningFunc = func(r *http.Request, info *request.RequestInfo) bool {
		return lasting(r, info) || mayLast(r)
	}

	core, err := corerest.New(corerest.Config{
		GenericConfig: corerest.GenericConfig{
			StorageFactory:       storageFactory,
			EventTTL:             eventTTL,
			LoopbackClientConfig: config.LoopbackClientConfig,
			Informers:            factory,
			APIAudiences:         config.Authentication.APIAudiences,
		},
		Proxy: corerest.ProxyConfig{
			Transport:           controlplane.CreateProxyTransport(),
			KubeletClientConfig: s.kubelet(),
		},
		Services: corerest.ServicesConfig{
			ClusterIPRange:   serviceRange,
			NodePortRange:    kubeoptions.DefaultServiceNodePortRange,
			IPRepairInterval: time.Hour, // never started, see storageOnly
		},
	}, config.Authorization.Authorizer)
	if err != nil {
		return nil, nil, err
	}
	authz := config.Authorization.Authorizer
	providers := []controlplane.RESTStorageProvider{
		core,
		authenticationrest.RESTStorageProvider{Authenticator: tokens, APIAudiences: config.Authentication.APIAudiences},
		authorizationrest.RESTStorageProvider{Authorizer: s.config.reviews(authz), RuleResolver: config.RuleResolver},
		coordinationrest.RESTStorageProvider{},
		discoveryrest.StorageProvider{},
		networkingrest.RESTStorageProvider{},
		rbacrest.RESTStorageProvider{Authorizer: authz},
		resourcerest.RESTStorageProvider{Authorizer: authz, NamespaceClient: client.CoreV1().Namespaces()},
		storagerest.RESTStorageProvider{},
	}
	for i := range providers {
		providers[i] = storageOnly{providers[i]}
	}

	notFound := notfoundhandler.New(config.Serializer, genericfilters.NoMuxAndDiscoveryIncompleteKey)
	completed := config.Complete(factory) // puts the loopback client's token before what is at the door
	completed.Authentication.Authenticator = noting(completed.Authentication.Authenticator)
	server, err := completed.New("yurt-coordinator", genericapiserver.NewEmptyDelegateWithCustomHandler(notFound))
	if err != nil {
		return nil, nil, err
	}
	if utilfeature.DefaultFeatureGate.Enabled(genericfeatures.WatchCacheInitializationPostStartHook) {
		if err := server.AddPostStartHook("storage-readiness", server.StorageReadinessHook.Hook); err != nil {
			return nil, nil, err
		}
	}
	if err := server.AddReadyzChecks(s.ready); err != nil {
		return nil, nil, err
	}
	api := controlplane.Server{
		GenericAPIServer:        server,
		APIResourceConfigSource: storageFactory.APIResourceConfigSource,
		RESTOptionsGetter:       config.RESTOptionsGetter,
	}
	if err := api.InstallAPIs(providers...); err != nil {
		return nil, nil, err
	}
	if s.meter, err = s.newMeter(config.LoopbackClientConfig); err != nil {
		return nil, nil, err
	}
	if err := s.meter.Install(server); err != nil {
		return nil, nil, err
	}
	server.Handler.NonGoRestfulMux.Handle(mirrorPath, pool)
	server.Handler.NonGoRestfulMux.HandlePrefix(mirrorPath+"/", pool)
	server.Handler.NonGoRestfulMux.Handle(ownPath, s.own)
	server.Handler.NonGoRestfulMux.HandlePrefix(ownPath+"/", s.own)
	explained, err := openapi.Handler()
	if err != nil {
		return nil, nil, err
	}
	server.Handler.NonGoRestfulMux.Handle(openapi.Root, explained)
	server.Handler.NonGoRestfulMux.HandlePrefix(openapi.Root+"/", explained)
	server.Handler.NonGoRestfulMux.HandlePrefix("/openapi/", http.HandlerFunc(otherOpenAPI))
	if err := server.AddPreShutdownHook("mirror", pool.Close); err != nil { // else its watches hold up the end
		return nil, nil, err
	}
	return server, server.LoopbackClientConfig, nil
}

// storageOnly hides a group's post-start hook: the bootstrap roles, 14 MB and a second that nobody here has a use for,
// and the repair of cluster IPs, which would write an object for each Service that the hubs push.
type storageOnly struct {
	controlplane.RESTStorageProvider
}

// atTheDoor recognizes callers by their client certificate, verified against the CAs as they are now. An expired or
// unknown certificate is an error, not an anonymous caller, on the open paths too.
func atTheDoor(serving *genericapiserver.SecureServingInfo) authenticator.Request {
	byCertificate := group.NewAuthenticatedGroupAdder(withoutMasters(
		requestx509.NewDynamic(serving.ClientCA.VerifyOptions, requestx509.CommonNameUserConversion)))
	conditions := make([]apiserverapi.AnonymousAuthCondition, len(openPaths))
	for i, open := range openPaths {
		conditions[i].Path = open
	}
	return requestunion.NewFailOnError(byCertificate, anonymous.NewAuthenticator(conditions))
}

// withoutMasters takes Kubernetes' all-powerful group from whoever comes with a certificate. The CA of the nodes is the
// cluster's own as a rule, and an administrator's certificate for the cloud is no reason to write into the pool; the
// group is for this process's own client.
func withoutMasters(inner authenticator.Request) authenticator.Request {
	return authenticator.RequestFunc(func(r *http.Request) (*authenticator.Response, bool, error) {
		response, ok, err := inner.AuthenticateRequest(r)
		if err != nil || !ok {
			return response, ok, err
		}
		stripped := *response
		stripped.User = &user.DefaultInfo{
			Name:   response.User.GetName(),
			UID:    response.User.GetUID(),
			Extra:  response.User.GetExtra(),
			Groups: slices.DeleteFunc(slices.Clone(response.User.GetGroups()), isMasters),
		}
		return &stripped, true, nil
	})
}

func isMasters(group string) bool { return group == user.SystemPrivilegedGroup }

func (s *apiServer) admission(
	config *genericapiserver.Config, factory informers.SharedInformerFactory, elected *election,
) (admission.Interface, error) {
	identifier := nodeidentifier.NewDefaultNodeIdentifier()
	restriction := noderestriction.NewPlugin(identifier)
	restriction.InspectFeatureGates(utilfeature.DefaultFeatureGate)
	restriction.SetExternalKubeInformerFactory(factory)
	restriction.SetAuthorizer(config.Authorization.Authorizer)
	if err := restriction.ValidateInitialization(); err != nil {
		return nil, err
	}
	leases := &poolLease{
		nodes:    identifier,
		host:     s.config.NodeName,
		election: elected,
	}
	// Not NamespaceLifecycle: the hubs push Pods without their Namespaces, and a kubelet's Event about one of them must
	// not be refused for that. Not ServiceAccount: no controller makes the default accounts that it asks for.
	return admissionmetrics.WithStepMetrics(admission.NewChainHandler(
		admissionmetrics.WithControllerMetrics(nodeRestriction{restriction}, noderestriction.PluginName),
		admissionmetrics.WithControllerMetrics(leases, poolLeaseName),
	)), nil
}

func (s *apiServer) kubelet() kubeletclient.KubeletClientConfig {
	return kubeletclient.KubeletClientConfig{
		Port:         ports.KubeletPort,
		ReadOnlyPort: ports.KubeletReadOnlyPort,
		// Addresses before names: a site's resolver may be down, or in the cloud.
		PreferredAddressTypes: []string{string(corev1.NodeInternalIP), string(corev1.NodeExternalIP),
			string(corev1.NodeInternalDNS), string(corev1.NodeHostName)},
		HTTPTimeout: kubeletTimeout,
		TLSClientConfig: kubeletclient.KubeletTLSConfig{
			CertFile: s.config.KubeletClientCertificate,
			KeyFile:  s.config.KubeletClientKey,
			CAFile:   s.config.KubeletCertificateAuthority,
		},
	}
}

// newMeter returns what answers kubectl top, from the kubelets that logs come from.
func (s *apiServer) newMeter(loopback *rest.Config) (*usage.Meter, error) {
	config := s.kubelet()
	transport, err := kubeletclient.MakeTransport(&config)
	if err != nil {
		return nil, err
	}
	kubelets := usage.Kubelets{Transport: transport, Port: int(config.Port)}
	for _, name := range config.PreferredAddressTypes {
		kubelets.AddressTypes = append(kubelets.AddressTypes, corev1.NodeAddressType(name))
	}
	return usage.New(loopback, kubelets, s.config.Clock)
}

// listen opens the one port, before anything else is started: a port in use is the likeliest mistake.
func listen(ctx context.Context, address string, port int) (net.Listener, error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", net.JoinHostPort(address, strconv.Itoa(port)))
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("--secure-port %d: another program is serving on it; stop that one or give another port",
			port)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return nil, fmt.Errorf("--bind-address %s: not an address of this machine", address)
	case err != nil:
		return nil, fmt.Errorf("--bind-address, --secure-port: %w", err)
	}
	klog.FromContext(ctx).V(2).Info("Listening", "address", listener.Addr().String())
	return listener, nil
}
