package nodepool

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"yurtcoordinator/apis/apps/v1beta2"
	"yurtcoordinator/internal/cloud/control"
)

const (
	// FieldOwner is the field manager of all writes here. No other package may use it, because server-side apply removes fields
	// that the same manager no longer applies.
	FieldOwner = "coordinator-controller-nodepool"

	// workers is how many objects each controller writes at a time; a write is a round trip of a few milliseconds.
	workers = 8

	// reconcileTimeout bounds the writes of one reconcile.
	reconcileTimeout = 15 * time.Second

	// retryMax is the longest wait before a failed reconcile is tried again, before jitter.
	retryMax = 2 * time.Minute

	// settle is how long a change of a node waits for changes of other nodes in the pool. So when a pool comes up, its status
	// is written a few times, and not once for each node.
	settle = 200 * time.Millisecond
)

// Config is what a Controller needs. All fields but Clock are required.
type Config struct {
	// Client writes, and reads Nodes and NodePools from the manager's cache. The package comment says what the cache
	// must have of Nodes.
	Client client.Client
	// Reader reads from the API server itself.
	Reader client.Reader
	// Events receives the Events on Nodes and NodePools, and bounds their rate.
	Events events.EventRecorder
	// Clock dates conditions; nil means the real clock.
	Clock clock.PassiveClock
}

// Controller holds the two controllers of this package.
type Controller struct {
	nodes *nodes
	pools *pools
}

// New returns a Controller. AddTo registers it.
func New(c Config) *Controller {
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	return &Controller{&nodes{cfg: c}, &pools{cfg: c, metrics: newMetrics()}}
}

// Metrics returns the Controller's metrics. The caller registers them.
func (c *Controller) Metrics() prometheus.Collector { return c.pools.metrics }

// Cached says what the manager's cache must hold, except Nodes, which others read as well.
func Cached() map[client.Object]cache.ByObject {
	return map[client.Object]cache.ByObject{&v1beta2.NodePool{}: {Transform: cache.TransformStripManagedFields()}}
}

// AddTo registers the controllers with a manager, to run while the manager leads. It needs the index of control.IndexNodes.
func (c *Controller) AddTo(mgr manager.Manager) error {
	k := mgr.GetCache()
	return errors.Join(
		add(mgr, "nodepool-nodes", c.nodes,
			source.Kind(k, &corev1.Node{}, c.nodes.nodeHandler()),
			source.Kind(k, &v1beta2.NodePool{}, c.nodes.poolHandler())),
		add(mgr, "nodepool", c.pools,
			source.Kind(k, &v1beta2.NodePool{}, c.pools.poolHandler()),
			source.Kind(k, &corev1.Node{}, c.pools.nodeHandler())))
}

func add(mgr manager.Manager, name string, r reconcile.Reconciler, watched ...source.Source) error {
	return control.Controller{
		Name: name, Reconciler: r, Workers: workers, Timeout: reconcileTimeout, RetryMax: retryMax, Watch: watched,
	}.AddTo(mgr)
}
