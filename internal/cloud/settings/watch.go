package settings

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"yurtcoordinator/apis/apps/v1alpha1"
	"yurtcoordinator/apis/apps/v1beta2"
	"yurtcoordinator/internal/cloud/control"
	"yurtcoordinator/internal/edge"
)

const (
	// FieldOwner is the field manager of all writes.
	FieldOwner = "coordinator-controller"

	// workers is how many pools are told at a time, each by a request or three.
	workers = 8
	// reconcileTimeout bounds one reconcile.
	reconcileTimeout = 15 * time.Second
	// retryMax is the longest wait before a failed reconcile is tried again, before jitter.
	retryMax = 2 * time.Minute
	// settle is how long a change of a node waits for others: the reports of a pool become one write.
	settle = 500 * time.Millisecond
	// resync is how often a pool's objects are looked at when nothing seems to happen: somebody may have removed one.
	resync = 20 * time.Minute
)

type settings = *v1alpha1.PoolSettings

// Config is what a Controller needs. All fields are required but the last two.
type Config struct {
	// Client writes, and reads Nodes, NodePools and PoolSettings from the manager's cache.
	Client client.Client
	// Reader reads from the API server itself.
	Reader client.Reader
	// Events receives the Events on PoolSettings, and bounds their rate.
	Events events.EventRecorder
	// Clock dates conditions.
	Clock clock.PassiveClock
	// Coordinators says that there is a controller of coordinators, and YurtCoordinators in the manager's cache.
	Coordinators bool
	// Base is what holds for coordinators where no PoolSettings says something else.
	Base v1alpha1.CoordinatorSettings
}

// Controller holds the two controllers of this package.
type Controller struct {
	cfg     Config
	ledger  ledger
	metrics metrics
	// told has a word, which is about all of them, when a pool was told something.
	told chan event.TypedGenericEvent[*v1alpha1.PoolSettings]
}

// New returns a Controller. AddTo registers it.
func New(c Config) *Controller {
	return &Controller{
		cfg: c, ledger: ledger{pools: map[string]entry{}}, metrics: newMetrics(),
		told: make(chan event.TypedGenericEvent[*v1alpha1.PoolSettings], 1),
	}
}

// Metrics returns the Controller's metrics. The caller registers them.
func (c *Controller) Metrics() prometheus.Collector { return c.metrics.nodes }

// Cached says what the manager's cache must hold, besides Nodes and NodePools, which others read as well.
func Cached() map[client.Object]cache.ByObject {
	return map[client.Object]cache.ByObject{&v1alpha1.PoolSettings{}: {Transform: cache.TransformStripManagedFields()}}
}

// CachedAnnotations returns the keys of a Node's annotations that must be in the cache.
func CachedAnnotations() []string { return []string{edge.AnnotationSettings} }

// AddTo registers the controllers with a manager, to run while the manager leads. It needs the index of control.IndexNodes.
func (c *Controller) AddTo(mgr manager.Manager) error {
	k := mgr.GetCache()
	statuses := c.statusSources(k)
	return errors.Join(
		control.Controller{
			Name: "poolsettings-pools", Reconciler: reconcile.Func(c.reconcilePool), Workers: workers, Timeout: reconcileTimeout,
			RetryMax: retryMax, Watch: []source.Source{
				source.Kind(k, &v1beta2.NodePool{}, control.On(poolChanged,
					func(_ context.Context, p *v1beta2.NodePool, q control.Queue) { q.Add(control.Request(p.Name)) })),
				source.Kind(k, &v1alpha1.PoolSettings{}, control.On(specChanged,
					func(ctx context.Context, _ settings, q control.Queue) { c.enqueue(ctx, &v1beta2.NodePoolList{}, 0, q) })),
				source.Kind(k, &corev1.Node{}, control.On(memberChanged,
					func(_ context.Context, n *corev1.Node, q control.Queue) {
						if pool := n.Labels[edge.LabelNodePool]; pool != "" {
							q.AddAfter(control.Request(pool), settle)
						}
					})),
			},
		}.AddTo(mgr),
		control.Controller{
			Name: "poolsettings", Reconciler: reconcile.Func(c.reconcileStatus), Workers: 1, Timeout: reconcileTimeout,
			RetryMax: retryMax, Watch: statuses,
		}.AddTo(mgr))
}

// statusSources are what the statuses depend on.
func (c *Controller) statusSources(k cache.Cache) []source.Source {
	all := []source.Source{
		// All of them: two that select the same pool may be in conflict.
		source.Kind(k, &v1alpha1.PoolSettings{}, control.On(specChanged, func(ctx context.Context, s settings, q control.Queue) {
			q.Add(control.Request(s.Name))
			c.enqueue(ctx, &v1alpha1.PoolSettingsList{}, 0, q)
		})),
		source.Kind(k, &v1beta2.NodePool{}, control.On(poolChanged, every[*v1beta2.NodePool](c))),
		source.Channel(c.told, handler.TypedFuncs[*v1alpha1.PoolSettings, reconcile.Request]{
			GenericFunc: func(ctx context.Context, _ event.TypedGenericEvent[*v1alpha1.PoolSettings], q control.Queue) {
				c.enqueue(ctx, &v1alpha1.PoolSettingsList{}, 0, q)
			},
		}),
		source.Kind(k, &corev1.Node{}, control.On(reportChanged, every[*corev1.Node](c))),
	}
	if c.cfg.Coordinators {
		all = append(all, source.Kind(k, &v1alpha1.YurtCoordinator{},
			control.On(coordinatorChanged, every[*v1alpha1.YurtCoordinator](c))))
	}
	return all
}

// every returns a function that enqueues all PoolSettings, after a while in which more may change.
func every[T client.Object](c *Controller) func(context.Context, T, control.Queue) {
	return func(ctx context.Context, _ T, q control.Queue) {
		c.enqueue(ctx, &v1alpha1.PoolSettingsList{}, settle, q)
	}
}

func poolChanged(was, is *v1beta2.NodePool) bool {
	return was.UID != is.UID || !maps.Equal(was.Labels, is.Labels)
}

func specChanged(was, is *v1alpha1.PoolSettings) bool {
	return was.UID != is.UID || was.Generation != is.Generation || !was.DeletionTimestamp.Equal(is.DeletionTimestamp)
}

func memberChanged(was, is *corev1.Node) bool {
	return was.UID != is.UID || was.Labels[edge.LabelNodePool] != is.Labels[edge.LabelNodePool]
}

func reportChanged(was, is *corev1.Node) bool {
	return memberChanged(was, is) || was.Annotations[edge.AnnotationSettings] != is.Annotations[edge.AnnotationSettings]
}

// enqueue enqueues all objects of a kind that is in the cache.
func (c *Controller) enqueue(ctx context.Context, all client.ObjectList, after time.Duration, q control.Queue) {
	if err := c.cfg.Client.List(ctx, all, client.UnsafeDisableDeepCopy); err != nil {
		klog.FromContext(ctx).Error(err, "Failed to list what a change of settings is about")
		return
	}
	var names []string
	switch l := all.(type) {
	case *v1beta2.NodePoolList:
		for i := range l.Items {
			names = append(names, l.Items[i].Name)
		}
	case *v1alpha1.PoolSettingsList:
		for i := range l.Items {
			names = append(names, l.Items[i].Name)
		}
	}
	for _, name := range names {
		q.AddAfter(control.Request(name), after)
	}
}
