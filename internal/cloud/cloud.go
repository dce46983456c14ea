// Package cloud wires what runs in the cloud: a manager with leader election, metrics and health, and the controllers of the
// packages below it.
//
// One of several replicas leads and writes. All of them watch, so the next leader knows what the last one knew. A program that
// embeds Run may call it several times, one after another, because Run leaves nothing behind.
package cloud

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
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

	"yurtcoordinator/apis"
	"yurtcoordinator/internal/cloud/approve"
	"yurtcoordinator/internal/cloud/appset"
	"yurtcoordinator/internal/cloud/autonomy"
	"yurtcoordinator/internal/cloud/certs"
	"yurtcoordinator/internal/cloud/coordinator"
	"yurtcoordinator/internal/cloud/fleet"
	"yurtcoordinator/internal/cloud/heartbeat"
	"yurtcoordinator/internal/cloud/nodepool"
	"yurtcoordinator/internal/cloud/operators"
	"yurtcoordinator/internal/cloud/poolcut"
	"yurtcoordinator/internal/cloud/settings"
	"yurtcoordinator/internal/cloud/upgrades"
	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/ends"
	"yurtcoordinator/internal/version"
	"yurtcoordinator/internal/version/buildinfo"
)

// Name is the program's name, used as its user agent, its election Lease and the source of its Events.
const Name = "coordinator-controller"

// DefaultSilenceAfter is a kubelet's Lease duration: four missed heartbeats. It is below kube-controller-manager's
// node-monitor-grace-period (50 s since Kubernetes 1.32). So the condition CloudLinkDown turns Unknown before the node turns
// NotReady.
const DefaultSilenceAfter = 40 * time.Second

// DefaultHoldEvictions is how long Pods of a pool with a coordinator are kept while the whole pool is cut off: long enough for
// somebody to visit the site.
const DefaultHoldEvictions = 24 * time.Hour

// minSilenceAfter is the shortest SilenceAfter that works with Kubernetes' own heartbeats of at least a second.
const minSilenceAfter = 2 * time.Second

// calm is heartbeat.Config.Calm. It limits how often a node's taint changes, because any node of its pool can cause changes.
const calm = time.Minute

const (
	// queriesPerSecond and burst are for the moment when all nodes of all sites lose their links, which costs two writes a node.
	// They allow 1000 nodes in about two seconds. Other bounds are lower: package heartbeat has at most 16 writes under way, and
	// the API server has its own priority and fairness.
	queriesPerSecond, burst = 1000, 2000

	// drainTimeout bounds the stop: reconciles under way finish their writes, and recorded Events are sent.
	drainTimeout = 10 * time.Second
)

// unsimulated is the clock of controllers that no simulation runs. It is a constant.
var unsimulated = clock.RealClock{} //nolint:forbidigo // as it says

// Config is what Run needs.
type Config struct {
	// Connect returns how to reach the API server. It sends nothing. Kubeconfig returns one for a file.
	Connect func() (*rest.Config, error)

	// Ends are this machine's clocks and random numbers.
	Ends ends.Ends

	// MetricsAddress is host:port for /metrics, open only to clients that the API server authorizes. HealthAddress is host:port
	// for /healthz and /readyz, open to all. "0" turns either off. In one process only one Run at a time has metrics.
	MetricsAddress, HealthAddress string

	// MetricsCertDir is the directory of the certificate for /metrics: tls.crt and tls.key, which are reread when they change.
	// Without them the program signs a certificate itself. Empty means DefaultMetricsCertDir.
	MetricsCertDir string

	// PprofAddress is host:port for Go's profiles, open to anybody who reaches it; empty turns them off.
	PprofAddress string

	// LeaderElect lets replicas elect one that writes. Without it there must be only one replica.
	LeaderElect bool

	// LeaderElectNamespace is the namespace of the election Lease, which is named Name; empty means kube-system.
	LeaderElectNamespace string

	// Heartbeats and the fields beside it each enable a controller. Leave a controller off if the cluster has another
	// implementation of it (docs/from-openyurt.md). Heartbeats acts on delegated heartbeats. Autonomy keeps Pods of autonomous
	// nodes. PoolCuts holds evictions in pools that are cut off as a whole. NodePools, AppSets, Coordinators and PoolSettings are
	// the controllers of our own kinds. Signer signs certificates of hubs, and of persons who use coordinators.
	Heartbeats, Autonomy, PoolCuts, NodePools, AppSets, Coordinators, PoolSettings, Signer bool

	// Approver says whether this process approves certificates, and whether it does anything else; empty means ApproverWithin.
	Approver ApproverPlace

	// ApproveKubelets enables the approval of serving certificates for pools' kubelets. The kubelets' addresses must be within
	// KubeletServingCIDRs; empty allows none. Their names must match KubeletServingNames.
	ApproveKubelets                          bool
	KubeletServingCIDRs, KubeletServingNames []string

	// ConstrainedImpersonation says that all API servers constrain impersonation, which Kubernetes does from 1.36 on. Leaders
	// then get only the impersonation that they need.
	ConstrainedImpersonation bool

	// Hub says where the images of hubs are, for upgrades of them: without one there are none.
	Hub upgrades.Program

	// Coordinator describes what the coordinators run. Its Image is required if Coordinators is set.
	Coordinator Coordinator

	// SilenceAfter is how long a node's Lease may stay unrenewed before the state of its link counts as unknown; zero means
	// DefaultSilenceAfter. It should be less than kube-controller-manager's node-monitor-grace-period.
	SilenceAfter time.Duration

	// HoldEvictions is how long evictions are held in a pool that has a coordinator and is cut off as a whole. The pool's
	// NodePool can set another time. Zero means that evictions are held only where a NodePool says so. HoldEvictions needs
	// Coordinators and PoolCuts.
	HoldEvictions time.Duration
}

// ApproverPlace says which process approves certificates.
type ApproverPlace string

const (
	// ApproverWithin is for a single process, which approves its own requests. An attacker who takes it over can have any
	// certificate.
	ApproverWithin ApproverPlace = "within"
	// ApproverElsewhere is for a process that has no right to approve.
	ApproverElsewhere ApproverPlace = "elsewhere"
	// ApproverAlone is for the second process, which approves and does nothing else. It needs no election, because two replicas
	// may approve the same request.
	ApproverAlone ApproverPlace = "alone"
)

// Coordinator describes what the coordinators run.
type Coordinator struct {
	coordinator.Program
	// Settings are, in JSON, spec.coordinator of a PoolSettings that every other one beats; empty means none.
	Settings string
}

// The defaults of a Rollout.
const (
	DefaultMaxUnavailable = coordinator.DefaultMaxUnavailable
	// DefaultSettle is longer than a coordinator takes to be found by its hubs, and to be filled.
	DefaultSettle = 30 * time.Second
	// DefaultPullTimeout is for 30 MB on a line of 256 kbit/s.
	DefaultPullTimeout = 20 * time.Minute
)

// Run runs the controllers until ctx ends, and then returns nil. It fails if the Config can't work, or if an address is taken. It
// also fails if it can't reach the API server in the first two minutes, if it loses the leader election, or if its work does not
// end within drainTimeout after ctx. In these last two cases a write can still be under way when Run returns, so the program must
// exit.
func Run(ctx context.Context, c Config) error {
	if c.SilenceAfter == 0 {
		c.SilenceAfter = DefaultSilenceAfter
	}
	if c.SilenceAfter < minSilenceAfter {
		return fmt.Errorf("silence-after is %v: use at least %v", c.SilenceAfter, minSilenceAfter)
	}
	if c.HoldEvictions < 0 || c.HoldEvictions > poolcut.MaxHold {
		return fmt.Errorf("hold-evictions is %v: use 0 for not at all, or up to %v", c.HoldEvictions, poolcut.MaxHold)
	}
	if !c.Coordinators {
		c.HoldEvictions = 0
	}
	if life := c.Coordinator.Lives.Operator; life < 0 || life > certs.MaxOperator {
		return fmt.Errorf("the life of operators' certificates is %v: use at most %v; persons have certificates of their own",
			life, certs.MaxOperator)
	}
	switch c.Approver {
	case "":
		c.Approver = ApproverWithin
	case ApproverWithin, ApproverElsewhere:
	case ApproverAlone:
		return runApprover(ctx, c)
	default:
		return fmt.Errorf("--approver is %q: use %s, %s or %s", c.Approver, ApproverWithin, ApproverElsewhere, ApproverAlone)
	}
	if c.Coordinators && c.Coordinator.Image == "" {
		return errors.New("the coordinators' image is not set: give --coordinator-image, or --yurt-coordinators=false")
	}
	if c.Coordinators && cmp.Or(c.Coordinator.Kubernetes, version.Get().Kubernetes) == "" {
		return errors.New("this program does not know which Kubernetes it is made from: give --coordinator-version")
	}
	base, err := coordinatorSettings(c.Coordinator.Settings)
	if err != nil {
		return err
	}
	if err := coordinator.CheckRollout(c.Coordinator.Rollout); err != nil {
		return fmt.Errorf("--coordinator-max-unavailable, --coordinator-settle, --coordinator-pull-timeout: %w", err)
	}
	log.SetLogger(klog.FromContext(ctx)) // for what the library logs outside its manager
	connection, err := c.connect()
	if err != nil {
		return err
	}
	if err := isFree(ctx, c.MetricsAddress); err != nil {
		return err
	}
	answers := newAnswers()
	mgr, err := newManager(ctx, c, connection, answers, &coordinationv1.Lease{}, &corev1.Node{})
	if err != nil {
		return err
	}
	heartbeats := heartbeat.New(heartbeat.Config{
		Client:       mgr.GetClient(),
		Events:       mgr.GetEventRecorder(Name),
		Ends:         c.Ends,
		SilenceAfter: c.SilenceAfter,
		Calm:         calm,
	})
	pods, err := directClient(mgr)
	if err != nil {
		return err
	}
	autonomous := autonomy.New(autonomy.Config{
		Nodes:  mgr.GetClient(),
		Pods:   pods,
		Events: mgr.GetEventRecorder(Name),
		Ends:   c.Ends,
	})
	signer := operators.New(operators.Config{
		Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), Lives: c.Coordinator.Lives,
		Events: mgr.GetEventRecorder(Name), Clock: unsimulated,
	})
	for _, controller := range []struct {
		wanted bool
		add    func(manager.Manager) error
	}{{c.Heartbeats, heartbeats.AddTo}, {c.Autonomy, autonomous.AddTo}, {c.Signer, signer.AddTo}} {
		if !controller.wanted {
			continue
		}
		if err := controller.add(mgr); err != nil {
			return err
		}
	}
	cuts := poolcut.New(poolcut.Config{
		Client: mgr.GetClient(), Events: mgr.GetEventRecorder(Name), Ends: c.Ends, SilenceAfter: c.SilenceAfter,
		Default: c.HoldEvictions,
	})
	if err := cleanUpOff(mgr, pods, c); err != nil {
		return err
	}
	own, err := addOwnKinds(mgr, c, base, heartbeats, cuts)
	if err != nil {
		return err
	}
	hubs := fleet.New(fleet.Config{Client: mgr.GetClient(), Elected: mgr.Elected(), Clock: c.Ends.Clock})
	own = append(own, answers, autonomous.Metrics(), hubs)
	own = slices.Concat(own, heartbeats.Metrics(), cuts.Metrics(), signer.Metrics())
	if c.Approver == ApproverWithin {
		approver, err := addApprover(mgr, c, connection)
		if err != nil {
			return err
		}
		own = append(own, approver)
	}
	own = append(own, buildinfo.New("coordinator_controller", version.Get()))
	unregister, err := c.register(own)
	if err != nil {
		return err
	}
	defer unregister()

	klog.FromContext(ctx).Info("Starting", "version", version.Get().Version, "server", connection.Host,
		"leaderElect", c.LeaderElect, "silenceAfter", c.SilenceAfter)
	return mgr.Start(ctx)
}

// runApprover runs what approves certificates, and nothing else.
func runApprover(ctx context.Context, c Config) error {
	c.LeaderElect = false
	log.SetLogger(klog.FromContext(ctx))
	connection, err := c.connect()
	if err != nil {
		return err
	}
	if err := isFree(ctx, c.MetricsAddress); err != nil {
		return err
	}
	answers := newAnswers()
	mgr, err := newManager(ctx, c, connection, answers, &certificatesv1.CertificateSigningRequest{}, &corev1.Node{})
	if err != nil {
		return err
	}
	approver, err := addApprover(mgr, c, connection)
	if err != nil {
		return err
	}
	unregister, err := c.register([]prometheus.Collector{
		answers, approver, buildinfo.New("coordinator_controller", version.Get()),
	})
	if err != nil {
		return err
	}
	defer unregister()
	klog.FromContext(ctx).Info("Starting the approver alone", "version", version.Get().Version, "server", connection.Host)
	return mgr.Start(ctx)
}

// addApprover registers what approves certificates, and returns its metrics.
func addApprover(mgr manager.Manager, c Config, connection *rest.Config) (prometheus.Collector, error) {
	allowed, err := approve.ParseAllowed(c.KubeletServingCIDRs, c.KubeletServingNames)
	if err != nil {
		return nil, fmt.Errorf("--kubelet-serving-cidrs, --kubelet-serving-names: %w", err)
	}
	approver := approve.New(approve.Config{
		Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), Events: mgr.GetEventRecorder(Name), Clock: unsimulated,
		Kubelets: c.ApproveKubelets, Allowed: allowed, Server: connection.Host, Resolver: net.DefaultResolver,
	})
	return approver.Metrics(), approver.AddTo(mgr)
}

// cachedAnnotations returns the keys of a Node's annotations that must be in the cache.
func cachedAnnotations(n *corev1.Node) []string {
	return slices.Concat(autonomy.Annotations(), nodepool.CachedAnnotations(n), settings.CachedAnnotations(),
		upgrades.CachedAnnotations(), coordinator.CachedAnnotations())
}

// newManager returns a manager that is ready when its cache has what is needed.
func newManager(
	ctx context.Context, c Config, connection *rest.Config, answers *prometheus.CounterVec, needed ...client.Object,
) (manager.Manager, error) {
	scheme := runtime.NewScheme()
	builder := runtime.NewSchemeBuilder(corev1.AddToScheme, coordinationv1.AddToScheme, eventsv1.AddToScheme,
		discoveryv1.AddToScheme, certificatesv1.AddToScheme, appsv1.AddToScheme, rbacv1.AddToScheme,
		apis.AddToScheme)
	if err := builder.AddToScheme(scheme); err != nil {
		return nil, err
	}
	cached := heartbeat.Cached(cachedAnnotations)
	for _, more := range []map[client.Object]cache.ByObject{
		approve.Cached(), nodepool.Cached(), appset.Cached(), coordinator.Cached(), settings.Cached(),
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
		Metrics:                 closedMetrics(c, answers),
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
	synced := &cacheSync{cache: mgr.GetCache(), needed: needed}
	err = errors.Join(
		mgr.Add(synced),
		mgr.AddHealthzCheck("ping", healthz.Ping),
		mgr.AddReadyzCheck("cache", synced.check))
	return mgr, err
}

// mapper knows the resource and scope of each kind that the controllers use, so that the start does not depend on an answer of
// the API server.
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
	add(meta.RESTScopeNamespace, discoveryv1.SchemeGroupVersion, "EndpointSlice")
	add(meta.RESTScopeNamespace, coordinationv1.SchemeGroupVersion, "Lease")
	add(meta.RESTScopeNamespace, appsv1.SchemeGroupVersion, "Deployment", "StatefulSet", "ControllerRevision")
	add(meta.RESTScopeNamespace, rbacv1.SchemeGroupVersion, "Role", "RoleBinding")
	add(meta.RESTScopeRoot, kindNodePool.GroupVersion(), kindNodePool.Kind)
	add(meta.RESTScopeNamespace, kindYurtAppSet.GroupVersion(), kindYurtAppSet.Kind)
	add(meta.RESTScopeRoot, kindYurtCoordinator.GroupVersion(), kindYurtCoordinator.Kind)
	settings := kindPoolSettings.GroupVersion().WithResource("poolsettings") // the plural that is guessed is another
	m.AddSpecific(kindPoolSettings, settings, settings, meta.RESTScopeRoot)
	m.AddSpecific(kindPoolSettings.GroupVersion().WithKind(kindPoolSettings.Kind+"List"), settings, settings, meta.RESTScopeRoot)
	return m
}

// Kubeconfig returns a Config's Connect that reads a kubeconfig; an empty path means in-cluster, as a Pod.
func Kubeconfig(path string) func() (*rest.Config, error) {
	return func() (connection *rest.Config, err error) {
		if path == "" {
			if connection, err = rest.InClusterConfig(); err != nil {
				return nil, fmt.Errorf("--kubeconfig is missing, and this is not a Pod of a cluster: %w", err)
			}
			return connection, nil
		}
		rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: path}
		loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil)
		if connection, err = loader.ClientConfig(); err != nil {
			return nil, fmt.Errorf("--kubeconfig %s: %w", path, err)
		}
		return connection, nil
	}
}

// connect returns how the controllers reach the API server.
func (c Config) connect() (*rest.Config, error) {
	connection, err := c.Connect()
	if err != nil {
		return nil, err
	}
	connection = rest.CopyConfig(connection)
	connection.UserAgent = Name
	connection.QPS, connection.Burst = queriesPerSecond, burst
	return connection, nil
}

// isFree fails if an address is taken. The manager would notice that only once its cache has synced, and the cache does not
// sync while the API server can't be reached.
func isFree(ctx context.Context, address string) error {
	if address == "" || address == "0" {
		return nil
	}
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("--metrics-bind-address %s: %w", address, err)
	}
	return listener.Close()
}

// register adds metrics to the registry that the manager serves, if it does.
func (c Config) register(all []prometheus.Collector) (unregister func(), err error) {
	if c.MetricsAddress == "0" {
		return func() {}, nil
	}
	return registerAll(metrics.Registry, all)
}

// registerAll adds metrics to a registry, which may outlive them.
func registerAll(r prometheus.Registerer, all []prometheus.Collector) (unregister func(), err error) {
	var done []prometheus.Collector
	unregister = func() {
		for _, c := range done {
			r.Unregister(c)
		}
	}
	for _, c := range all {
		if err := r.Register(c); err != nil {
			unregister()
			return nil, fmt.Errorf("register metrics: %w", err)
		}
		done = append(done, c)
	}
	return unregister, nil
}

// cacheSync becomes ready when the cache holds what the controllers read, on every replica, leading or not.
type cacheSync struct {
	cache  cache.Cache
	needed []client.Object
	synced atomic.Bool
}

// Start implements manager.Runnable.
func (s *cacheSync) Start(ctx context.Context) error {
	for _, obj := range s.needed {
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
		return errors.New("the first lists of what is watched have not arrived yet")
	}
	return nil
}
