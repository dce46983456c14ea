// Package cloud wires what runs in the cloud: a manager with leader election, metrics and health, and the controllers
// of the folders below.
//
// Of several replicas one leads and writes. All of them watch, so the next leader knows what the last one knew. The
// programs that embed Run may do so more than once in a process, one after another: it leaves nothing behind.
package cloud

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"yurtcoordinator/apis/apps/v1alpha1"
	"yurtcoordinator/apis/apps/v1beta1"
	"yurtcoordinator/apis/apps/v1beta2"
	"yurtcoordinator/internal/cloud/approve"
	"yurtcoordinator/internal/cloud/appset"
	"yurtcoordinator/internal/cloud/autonomy"
	"yurtcoordinator/internal/cloud/certs"
	"yurtcoordinator/internal/cloud/coordinator"
	"yurtcoordinator/internal/cloud/heartbeat"
	"yurtcoordinator/internal/cloud/nodepool"
	"yurtcoordinator/internal/cloud/poolcut"
	"yurtcoordinator/internal/edge"
)

// Name is the program's: its user agent, its election Lease and the source of its Events.
const Name = "coordinator-controller"

// DefaultSilenceAfter is a kubelet's Lease duration, four missed heartbeats. It is below kube-controller-manager's
// node-monitor-grace-period (50 s since Kubernetes 1.32), so CloudLinkDown turns Unknown before the node turns
// NotReady.
const DefaultSilenceAfter = 40 * time.Second

// minSilenceAfter is the shortest that Kubernetes' own heartbeats, of a second at least, leave room for.
const minSilenceAfter = 2 * time.Second

const (
	// All nodes of all sites can lose their links at once, and each costs two writes. These allow 1000 nodes in about
	// two seconds. What bounds the load in fact is that only so many writes are under way at a time (16), and the API
	// server's own priority and fairness.
	queriesPerSecond, burst = 1000, 2000

	// drainTimeout bounds the stop: a reconcile under way ends its writes, the Events recorded are sent.
	drainTimeout = 10 * time.Second
)

// Config is what Run needs.
type Config struct {
	// Kubeconfig is the path of the file that says how to reach the API server; empty: as a Pod of the cluster does.
	Kubeconfig string

	// MetricsAddress and HealthAddress are host:port to serve /metrics, and /healthz and /readyz, on; "0": nowhere.
	MetricsAddress, HealthAddress string

	// PprofAddress is host:port to serve Go's profiles on, to whoever reaches it; empty: nowhere.
	PprofAddress string

	// LeaderElect makes replicas agree on one that writes. Without it there must be only one replica.
	LeaderElect bool

	// LeaderElectNamespace holds the election Lease, named Name; empty: kube-system.
	LeaderElectNamespace string

	// NodePools, AppSets and Coordinators say which of the controllers of our own kinds are run. Those of a cluster that has
	// another implementation of a kind must not be.
	NodePools, AppSets, Coordinators bool

	// ApproveKubelets has the requests of pools' kubelets for serving certificates approved.
	ApproveKubelets bool

	// Coordinator is what the coordinators run. Its Image and Version are required if Coordinators is set.
	Coordinator Coordinator

	// SilenceAfter is how long a node's Lease may go unrenewed before its link is called unknown; zero:
	// DefaultSilenceAfter. It should be less than kube-controller-manager's node-monitor-grace-period.
	SilenceAfter time.Duration
}

// Coordinator is what the coordinators run.
type Coordinator struct {
	// Image is the repository of the image, without a tag; Version the tag where a YurtCoordinator names none.
	Image, Version string
	// PullPolicy of the image, and PullSecrets in kube-system that it is pulled with.
	PullPolicy  string
	PullSecrets []string
	// Lives are those of the certificates.
	Lives certs.Lives
	// VerifyKubelets has coordinators call only kubelets whose serving certificates are signed by the cluster's authority.
	VerifyKubelets bool
}

// Run runs the controllers until ctx ends, and returns nil then. It returns an error for a Config that can't work, an
// address that is taken, an API server that can't be reached for the first two minutes, and a lost leader election. In
// the last case alone a write may still be under way when it returns: the program must end then, to be started again.
func Run(ctx context.Context, c Config) error {
	if c.SilenceAfter == 0 {
		c.SilenceAfter = DefaultSilenceAfter
	}
	if c.SilenceAfter < minSilenceAfter {
		return fmt.Errorf("silence-after is %v: use at least %v", c.SilenceAfter, minSilenceAfter)
	}
	if c.Coordinators && (c.Coordinator.Image == "" || c.Coordinator.Version == "") {
		return errors.New("which image the coordinators run is not said: give --coordinator-image and --coordinator-version, " +
			"or --yurt-coordinators=false")
	}
	log.SetLogger(klog.FromContext(ctx)) // what the library logs outside of its manager
	connection, err := connect(c.Kubeconfig)
	if err != nil {
		return err
	}
	mgr, err := newManager(ctx, c, connection)
	if err != nil {
		return err
	}
	heartbeats := heartbeat.New(heartbeat.Config{
		Client:       mgr.GetClient(),
		Events:       mgr.GetEventRecorder(Name),
		Clock:        clock.RealClock{},
		SilenceAfter: c.SilenceAfter,
	})
	pods, err := client.NewWithWatch(mgr.GetConfig(), client.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
	})
	if err != nil {
		return err
	}
	autonomous := autonomy.New(autonomy.Config{
		Nodes:  mgr.GetClient(),
		Pods:   pods,
		Events: mgr.GetEventRecorder(Name),
		Clock:  clock.RealClock{},
	})
	approver := approve.New(approve.Config{
		Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), Events: mgr.GetEventRecorder(Name), Clock: clock.RealClock{},
		Kubelets: c.ApproveKubelets,
	})
	if err := errors.Join(heartbeats.AddTo(mgr), autonomous.AddTo(mgr), approver.AddTo(mgr)); err != nil {
		return err
	}
	cuts := poolcut.New(poolcut.Config{
		Client: mgr.GetClient(), Events: mgr.GetEventRecorder(Name), Clock: clock.RealClock{}, SilenceAfter: c.SilenceAfter,
	})
	own, err := addOwnKinds(mgr, c, heartbeats, cuts)
	if err != nil {
		return err
	}
	for _, m := range append(own, heartbeats.Metrics(), autonomous.Metrics(), cuts.Metrics()) {
		unregister, err := register(metrics.Registry, m)
		if err != nil {
			return err
		}
		defer unregister()
	}

	klog.FromContext(ctx).Info("Starting", "server", connection.Host, "leaderElect", c.LeaderElect,
		"silenceAfter", c.SilenceAfter)
	return mgr.Start(ctx)
}

func newManager(ctx context.Context, c Config, connection *rest.Config) (manager.Manager, error) {
	scheme := runtime.NewScheme()
	builder := runtime.NewSchemeBuilder(corev1.AddToScheme, coordinationv1.AddToScheme, eventsv1.AddToScheme,
		certificatesv1.AddToScheme, appsv1.AddToScheme, rbacv1.AddToScheme,
		v1alpha1.AddToScheme, v1beta1.AddToScheme, v1beta2.AddToScheme)
	if err := builder.AddToScheme(scheme); err != nil {
		return nil, err
	}
	cached := heartbeat.Cached(func(n *corev1.Node) []string {
		return append(autonomy.Annotations(), nodepool.CachedAnnotations(n)...)
	})
	for _, more := range []map[client.Object]cache.ByObject{
		approve.Cached(), nodepool.Cached(), appset.Cached(), coordinator.Cached(),
	} {
		maps.Copy(cached, more)
	}
	namespace := c.LeaderElectNamespace
	if namespace == "" {
		namespace = edge.NamespaceSystem
	}
	drain := drainTimeout
	mgr, err := manager.New(connection, manager.Options{
		Scheme:                  scheme,
		MapperProvider:          func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return mapper(), nil },
		Logger:                  klog.FromContext(ctx),
		BaseContext:             func() context.Context { return context.WithoutCancel(ctx) },
		Cache:                   cache.Options{ByObject: cached},
		Metrics:                 server.Options{BindAddress: c.MetricsAddress},
		HealthProbeBindAddress:  c.HealthAddress,
		PprofBindAddress:        c.PprofAddress,
		LeaderElection:          c.LeaderElect,
		LeaderElectionNamespace: namespace,
		LeaderElectionID:        Name,
		// Safe because Run returns only when everything that writes has stopped.
		LeaderElectionReleaseOnCancel: true,
		GracefulShutdownTimeout:       &drain,
	})
	if err != nil {
		return nil, err
	}
	synced := &cacheSync{cache: mgr.GetCache()}
	err = errors.Join(
		mgr.Add(synced),
		mgr.AddHealthzCheck("ping", healthz.Ping),
		mgr.AddReadyzCheck("cache", synced.check))
	return mgr, err
}

// mapper says where the kinds that the controllers use are served. Asking the API server instead would make the start
// depend on its answer, and the only kinds are those that this program is compiled with.
func mapper() meta.RESTMapper {
	m := meta.NewDefaultRESTMapper(nil)
	add := func(scope meta.RESTScope, gv schema.GroupVersion, kinds ...string) {
		for _, kind := range kinds {
			m.Add(gv.WithKind(kind), scope)
			m.Add(gv.WithKind(kind+"List"), scope)
		}
	}
	add(meta.RESTScopeRoot, corev1.SchemeGroupVersion, "Node")
	add(meta.RESTScopeNamespace, corev1.SchemeGroupVersion, "Pod", "Service", "ConfigMap", "Secret")
	add(meta.RESTScopeRoot, certificatesv1.SchemeGroupVersion, "CertificateSigningRequest")
	add(meta.RESTScopeNamespace, coordinationv1.SchemeGroupVersion, "Lease")
	add(meta.RESTScopeNamespace, appsv1.SchemeGroupVersion, "Deployment", "StatefulSet", "ControllerRevision")
	add(meta.RESTScopeNamespace, rbacv1.SchemeGroupVersion, "Role", "RoleBinding")
	add(meta.RESTScopeRoot, kindNodePool.GroupVersion(), kindNodePool.Kind)
	add(meta.RESTScopeNamespace, kindYurtAppSet.GroupVersion(), kindYurtAppSet.Kind)
	add(meta.RESTScopeRoot, kindYurtCoordinator.GroupVersion(), kindYurtCoordinator.Kind)
	return m
}

// connect reads how to reach the API server. It sends nothing.
func connect(kubeconfig string) (*rest.Config, error) {
	var connection *rest.Config
	var err error
	if kubeconfig == "" {
		if connection, err = rest.InClusterConfig(); err != nil {
			return nil, fmt.Errorf("no --kubeconfig is given and this is not a Pod of a cluster: %w", err)
		}
	} else {
		rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: kubeconfig}
		loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil)
		if connection, err = loader.ClientConfig(); err != nil {
			return nil, fmt.Errorf("--kubeconfig %s: %w", kubeconfig, err)
		}
	}
	connection.UserAgent = Name
	connection.QPS, connection.Burst = queriesPerSecond, burst
	return connection, nil
}

// register adds metrics to the registry that the manager serves, which outlives it.
func register(r prometheus.Registerer, c prometheus.Collector) (unregister func(), err error) {
	if err := r.Register(c); err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	return func() { r.Unregister(c) }, nil
}

// cacheSync is ready once the cache holds what the controllers read, on every replica, leading or not.
type cacheSync struct {
	cache  cache.Cache
	synced atomic.Bool
}

// Start implements manager.Runnable.
func (s *cacheSync) Start(ctx context.Context) error {
	for _, obj := range []client.Object{&coordinationv1.Lease{}, &corev1.Node{}} {
		if _, err := s.cache.GetInformer(ctx, obj); err != nil {
			if ctx.Err() != nil {
				return nil //nolint:nilerr // asked to stop before it was ready
			}
			return fmt.Errorf("cache of %T: %w", obj, err)
		}
	}
	s.synced.Store(true)
	<-ctx.Done()
	return nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (s *cacheSync) NeedLeaderElection() bool { return false }

func (s *cacheSync) check(*http.Request) error {
	if !s.synced.Load() {
		return errors.New("the first list of Nodes and Leases is not in yet")
	}
	return nil
}
