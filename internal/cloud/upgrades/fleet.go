package upgrades

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"yurtcoordinator/apis/apps/v1alpha1"
	"yurtcoordinator/apis/apps/v1beta2"
	"yurtcoordinator/internal/cloud/control"
	"yurtcoordinator/internal/cloud/objects"
	"yurtcoordinator/internal/cloud/precedence"
	"yurtcoordinator/internal/edge"
)

const (
	// FieldOwner is the field manager of all writes.
	FieldOwner = "coordinator-controller"

	// conflictAgain is the wait after another controller has written into the same PoolSettings.
	conflictAgain = 2 * time.Second
	// clockAgain is the longest wait for a window, because the clock may be set meanwhile.
	clockAgain = time.Hour
	// settle is how long a change of a node waits for others.
	settle = 500 * time.Millisecond
	// reconcileTimeout bounds one reconcile.
	reconcileTimeout = time.Minute
	// retryMax is the longest wait before a failed reconcile is tried again, before jitter.
	retryMax = 2 * time.Minute
	// page is how many Pods are listed at a time.
	page = 500
)

// all is the one key of the queue: a step of one pool may be another's turn.
var all = reconcile.Request{NamespacedName: types.NamespacedName{Name: "fleet"}}

// Config is what a Controller needs. All fields are required but PullSecrets.
type Config struct {
	// Client writes, and reads Nodes, NodePools, PoolSettings and Leases of kube-node-lease from the manager's cache, which also
	// holds the Pods of edge.AppUpgrader.
	Client client.Client
	// Reader reads from the API server itself.
	Reader client.Reader
	// Events receives the Events on PoolSettings, and bounds their rate.
	Events events.EventRecorder
	// Clock says what time it is.
	Clock clock.PassiveClock
	Program
}

// Program says what hubs run.
type Program struct {
	// Image is the hubs' image without a tag, which is the version. If it is empty, nothing can be upgraded, and
	// PoolSettings say so.
	Image string
	// PullPolicy is the image's. PullSecrets are in kube-system.
	PullPolicy  corev1.PullPolicy
	PullSecrets []string
}

// Controller brings hubs to the versions that PoolSettings want.
type Controller struct {
	cfg     Config
	metrics metrics
}

// New returns a Controller. AddTo registers it.
func New(c Config) *Controller { return &Controller{cfg: c, metrics: newMetrics()} }

// Metrics returns the Controller's metrics. The caller registers them.
func (c *Controller) Metrics() []prometheus.Collector {
	return []prometheus.Collector{c.metrics.pools, c.metrics.nodes}
}

// CachedAnnotations returns the keys of a Node's annotations that must be in the cache.
func CachedAnnotations() []string { return []string{edge.AnnotationProgram} }

// AddTo registers the controller with a manager, to run while the manager leads.
func (c *Controller) AddTo(mgr manager.Manager) error {
	k := mgr.GetCache()
	return control.Controller{
		Name: "hubupgrades", Reconciler: reconcile.Func(c.reconcile), Workers: 1, Timeout: reconcileTimeout, RetryMax: retryMax,
		Watch: []source.Source{
			source.Kind(k, &v1alpha1.PoolSettings{}, control.On(func(was, is *v1alpha1.PoolSettings) bool {
				return was.UID != is.UID || was.Generation != is.Generation
			}, soon)),
			source.Kind(k, &v1beta2.NodePool{}, control.On(func(was, is *v1beta2.NodePool) bool {
				return was.UID != is.UID || !maps.Equal(was.Labels, is.Labels)
			}, soon)),
			source.Kind(k, &corev1.Node{}, control.On(func(was, is *corev1.Node) bool {
				return was.Labels[edge.LabelNodePool] != is.Labels[edge.LabelNodePool] || factsOf(was) != factsOf(is)
			}, soon)),
			source.Kind(k, &corev1.Pod{}, control.On(nil, func(ctx context.Context, p *corev1.Pod, q control.Queue) {
				if p.Labels[edge.LabelApp] == edge.AppUpgrader {
					soon(ctx, p, q)
				}
			})),
		},
	}.AddTo(mgr)
}

// soon enqueues the fleet.
func soon[T client.Object](_ context.Context, _ T, q control.Queue) { q.AddAfter(all, settle) }

// reconcile does for all pools what is to be done now, and says how far they are.
func (c *Controller) reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	says := &v1alpha1.PoolSettingsList{}
	if err := c.cfg.Client.List(ctx, says, client.UnsafeDisableDeepCopy); err != nil {
		return reconcile.Result{}, fmt.Errorf("list PoolSettings: %w", err)
	}
	pods, err := c.upgraders(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	pools, err := c.pools(ctx, says.Items, pods)
	if err != nil {
		return reconcile.Result{}, err
	}
	decisions, again := plan(pools, c.cfg.Clock.Now())
	c.metrics.stand(decisions)
	var failed []error
	for _, d := range decisions {
		failed = append(failed, c.act(ctx, d, pods))
	}
	conflict, err := c.sayAll(ctx, says.Items, decisions)
	if failed = append(failed, err); conflict {
		again = conflictAgain
	}
	return reconcile.Result{RequeueAfter: again}, errors.Join(failed...)
}

// upgraders returns all upgraders by their names. It asks the API server: by a cache that lags, a second node might get its turn.
func (c *Controller) upgraders(ctx context.Context) (map[string]*corev1.Pod, error) {
	byName := map[string]*corev1.Pod{}
	found := &corev1.PodList{}
	for {
		err := c.cfg.Reader.List(ctx, found, client.InNamespace(edge.NamespaceSystem),
			client.MatchingLabels{edge.LabelApp: edge.AppUpgrader}, client.Limit(page), client.Continue(found.Continue))
		if err != nil {
			return nil, fmt.Errorf("list the upgraders of hubs: %w", err)
		}
		for i := range found.Items {
			byName[found.Items[i].Name] = found.Items[i].DeepCopy()
		}
		if found.Continue == "" {
			return byName, nil
		}
	}
}

// pools returns what is known of all pools.
func (c *Controller) pools(ctx context.Context, says []v1alpha1.PoolSettings, pods map[string]*corev1.Pod) ([]pool, error) {
	found, nodes := &v1beta2.NodePoolList{}, &corev1.NodeList{}
	if err := c.cfg.Client.List(ctx, found, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list NodePools: %w", err)
	}
	if err := c.cfg.Client.List(ctx, nodes, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list Nodes: %w", err)
	}
	members := map[string][]*corev1.Node{}
	for i := range nodes.Items {
		n := &nodes.Items[i]
		members[n.Labels[edge.LabelNodePool]] = append(members[n.Labels[edge.LabelNodePool]], n)
	}
	var pools []pool
	known := map[edge.NodeName]bool{}
	for i := range found.Items {
		np := &found.Items[i]
		p := pool{name: edge.PoolName(np.Name)}
		if err := c.wants(&p, np, says); err != nil {
			return nil, err
		}
		leaders, err := c.leaders(ctx, p.name)
		if err != nil {
			return nil, err
		}
		for _, o := range members[np.Name] {
			n := nodeOf(o, pods)
			n.leads = slices.Contains(leaders, n.name)
			p.nodes, known[n.name] = append(p.nodes, n), true
		}
		slices.SortFunc(p.nodes, func(a, b node) int { return cmpNames(a.name, b.name) })
		pools = append(pools, p)
	}
	none := pool{} // of nodes that have left their pools, whose upgraders are left
	for _, p := range pods {
		if name := objects.PinnedTo(p); !known[name] {
			gone := nodeOf(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: string(name)}}, pods)
			gone.connected = false // its upgrader may never end, or never begin
			none.nodes, known[name] = append(none.nodes, gone), true
		}
	}
	if len(none.nodes) > 0 {
		pools = append(pools, none)
	}
	return pools, nil
}

// wants sets what somebody wants of a pool.
func (c *Controller) wants(p *pool, np *v1beta2.NodePool, says []v1alpha1.PoolSettings) error {
	u, _, err := precedence.Upgrade(precedence.Of(np, says))
	if err != nil {
		return err
	}
	p.version, p.most, p.paused = u.Version, int(ptr.Deref(u.MaxUnavailable, 1)), ptr.Deref(u.Paused, false)
	if p.open, p.opens, err = openAt(u.Window, c.cfg.Clock.Now()); err != nil {
		p.bad = err.Error()
	}
	if c.cfg.Image == "" {
		p.bad = "coordinator-controller does not know the image of hubs: --hub-image"
	}
	return nil
}

// leaders returns the nodes that lead at a pool's coordinators, or were the last to do so, by their reports.
func (c *Controller) leaders(ctx context.Context, p edge.PoolName) (all []edge.NodeName, err error) {
	for _, slot := range edge.Slots() {
		l := &coordinationv1.Lease{}
		err := c.cfg.Client.Get(ctx, client.ObjectKey{Namespace: corev1.NamespaceNodeLease, Name: p.ReportLease(slot)}, l)
		if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("read a report of pool %s: %w", p, err)
		}
		all = append(all, edge.NodeName(ptr.Deref(l.Spec.HolderIdentity, "")))
	}
	return all, nil
}

// facts are what counts of a Node. They can be compared.
type facts struct {
	program          edge.HubProgram
	ready, connected bool
}

func factsOf(o *corev1.Node) (f facts) {
	f.program, _ = edge.ParseHubProgram(o.Annotations[edge.AnnotationProgram])
	f.connected = true
	for _, condition := range o.Status.Conditions {
		switch condition.Type {
		case corev1.NodeReady:
			f.ready = condition.Status == corev1.ConditionTrue
		case edge.ConditionCloudLinkDown:
			f.connected = condition.Status == corev1.ConditionFalse
		}
	}
	return f
}

// nodeOf returns what is known of a node.
func nodeOf(o *corev1.Node, pods map[string]*corev1.Pod) node {
	f, name := factsOf(o), edge.NodeName(o.Name)
	u := read(pods[podName(prefixPull, name)], pods[podName(prefixDeliver, name)])
	return node{
		name: name, version: f.program.Version, takes: f.program.Upgradable, ready: f.ready, connected: f.connected,
		work: u.work, of: u.of, since: u.since, why: u.why,
	}
}

// act does what is decided for a pool.
func (c *Controller) act(ctx context.Context, d decision, pods map[string]*corev1.Pod) error {
	log := klog.FromContext(ctx).WithValues("pool", d.pool)
	var failed []error
	for _, n := range d.forget {
		for _, name := range []string{podName(prefixPull, n), podName(prefixDeliver, n)} {
			if p := pods[name]; p != nil && p.DeletionTimestamp == nil {
				failed = append(failed, objects.Remove(ctx, c.cfg.Client, p))
			}
		}
	}
	for _, s := range d.pull {
		log.V(1).Info("Pulling a hub's image", "node", s.node, "version", s.of)
		failed = append(failed, c.create(ctx, c.cfg.podFor(prefixPull, d.pool, s)))
	}
	for _, s := range d.deliver {
		log.Info("Upgrading a hub", "node", s.node, "version", s.of)
		failed = append(failed, c.create(ctx, c.cfg.podFor(prefixDeliver, d.pool, s)))
	}
	return errors.Join(failed...)
}

// create makes a Pod, unless there is one of its name: that one is looked at next time.
func (c *Controller) create(ctx context.Context, p *corev1.Pod) error {
	err := c.cfg.Client.Create(ctx, p, client.FieldOwner(FieldOwner))
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("make %s: %w", objects.Describe(p), err)
	}
	return nil
}

// Release removes all upgraders. What one has delivered, its node brings to its end by itself.
func Release(ctx context.Context, k client.Client) error {
	c := New(Config{Client: k, Reader: k})
	pods, err := c.upgraders(ctx)
	failed := []error{err}
	for _, name := range slices.Sorted(maps.Keys(pods)) {
		failed = append(failed, objects.Remove(ctx, k, pods[name]))
	}
	return errors.Join(failed...)
}
