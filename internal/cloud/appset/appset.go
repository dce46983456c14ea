package appset

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"yurtcoordinator/apis/apps/v1beta1"
	"yurtcoordinator/apis/apps/v1beta2"
	"yurtcoordinator/internal/cloud/control"
	"yurtcoordinator/internal/edge"
)

const (
	controllerName = "yurtappset"

	// FieldOwner is the field manager of all writes here.
	FieldOwner = "coordinator-controller-yurtappset"

	// workers is how many YurtAppSets are reconciled at a time. writers is how many workloads of each are written at a time.
	workers, writers = 4, 8

	// reconcileTimeout bounds one reconcile: a thousand workloads of a few milliseconds each, on a slow API server.
	reconcileTimeout = time.Minute

	// retryMax is the longest wait before a failed reconcile is tried again, before jitter.
	retryMax = 2 * time.Minute

	// settle is how long a change of a workload or a pool waits for more changes.
	settle = 200 * time.Millisecond

	// nodesSettle is how long a change of a node waits for those of others: a site has many.
	nodesSettle = time.Second

	// mendAfter is the wait before a retry after a failure that a person must mend. Jitter adds at most the same again. A retry
	// is needed because what the person changes may be in an object that is not watched.
	mendAfter = time.Minute

	// ownerIndex finds in the cache the workloads that something controls, by its UID.
	ownerIndex = "appset.controller"
)

// kindSet is the kind of the objects that Events are about.
var kindSet = v1beta1.GroupVersion.WithKind("YurtAppSet")

// Config is what a Controller needs. All fields are required.
type Config struct {
	// Client writes, and reads from the manager's cache, which needs the options of Cached.
	Client client.Client
	// Reader reads from the API server itself.
	Reader client.Reader
	// Events receives the Events on YurtAppSets, and bounds their rate.
	Events events.EventRecorder
	// Clock dates conditions.
	Clock clock.PassiveClock
}

// Controller is the controller.
type Controller struct {
	cfg     Config
	metrics metrics

	mu    sync.Mutex
	known map[types.NamespacedName]*memory // by YurtAppSet
	// turns are the pools of a group in which a change is being written, and of which YurtAppSet.
	turns map[turn]types.UID
}

// New returns a Controller. AddTo registers it.
func New(c Config) *Controller {
	return &Controller{
		cfg: c, metrics: newMetrics(), known: make(map[types.NamespacedName]*memory), turns: make(map[turn]types.UID),
	}
}

// Metrics returns the Controller's metrics. The caller registers them.
func (c *Controller) Metrics() []prometheus.Collector {
	return []prometheus.Collector{c.metrics.outdated, c.metrics.stopped, c.metrics.waiting}
}

// Cached says what the manager's cache must hold: YurtAppSets, our ControllerRevisions, and the Deployments and StatefulSets of
// pools, including OpenYurt's. Of Deployments and StatefulSets it keeps only the fields that are read.
func Cached() map[client.Object]cache.ByObject {
	having := func(label string) labels.Selector {
		needed, err := labels.NewRequirement(label, selection.Exists, nil)
		if err != nil {
			panic(err) // the label is a constant
		}
		return labels.NewSelector().Add(*needed)
	}
	plain := cache.TransformStripManagedFields()
	return map[client.Object]cache.ByObject{
		&v1beta1.YurtAppSet{}:        {Transform: plain},
		&appsv1.ControllerRevision{}: {Label: having(LabelYurtAppSet), Transform: plain},
		&appsv1.Deployment{}:         {Label: having(LabelPoolName), Transform: strip},
		&appsv1.StatefulSet{}:        {Label: having(LabelPoolName), Transform: strip},
	}
}

// strip keeps the fields that liveOf reads.
func strip(obj any) (any, error) {
	labels := func(pods *corev1.PodTemplateSpec) corev1.PodTemplateSpec {
		return corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: pods.Labels}}
	}
	switch o := obj.(type) {
	case *appsv1.Deployment:
		o.ManagedFields = nil
		o.Spec = appsv1.DeploymentSpec{
			Replicas: o.Spec.Replicas, Selector: o.Spec.Selector, Template: labels(&o.Spec.Template), Paused: o.Spec.Paused,
		}
	case *appsv1.StatefulSet:
		o.ManagedFields = nil
		o.Spec = appsv1.StatefulSetSpec{
			Replicas: o.Spec.Replicas, Selector: o.Spec.Selector, Template: labels(&o.Spec.Template),
		}
	}
	return obj, nil
}

// controllerOf is the content of ownerIndex.
func controllerOf(o client.Object) []string {
	if owner := metav1.GetControllerOfNoCopy(o); owner != nil {
		return []string{string(owner.UID)}
	}
	return nil
}

// AddTo registers the controller with a manager, to run while the manager leads.
func (c *Controller) AddTo(mgr manager.Manager) error {
	for _, o := range []client.Object{&appsv1.Deployment{}, &appsv1.StatefulSet{}} {
		if err := mgr.GetFieldIndexer().IndexField(context.Background(), o, ownerIndex, controllerOf); err != nil {
			return fmt.Errorf("index of %T by what controls it: %w", o, err)
		}
	}
	k := mgr.GetCache()
	return control.Controller{
		Name: controllerName, Reconciler: c, Workers: workers, Timeout: reconcileTimeout, RetryMax: retryMax,
		Watch: []source.Source{
			source.Kind(k, &v1beta1.YurtAppSet{}, c.setHandler()),
			source.Kind(k, &v1beta2.NodePool{}, c.poolHandler()),
			source.Kind(k, &appsv1.Deployment{}, ownerHandler[*appsv1.Deployment](c)),
			source.Kind(k, &appsv1.StatefulSet{}, ownerHandler[*appsv1.StatefulSet](c)),
			source.Kind(k, &corev1.Node{}, c.nodeHandler()),
			source.Kind(k, &appsv1.ControllerRevision{}, ownerHandler[*appsv1.ControllerRevision](c)),
		},
	}.AddTo(mgr)
}

// setHandler enqueues a YurtAppSet and its group when its spec changes or removals are confirmed. It doesn't when the status
// changes, because we write that ourselves.
func (c *Controller) setHandler() handler.TypedFuncs[*v1beta1.YurtAppSet, reconcile.Request] {
	return control.On(func(was, is *v1beta1.YurtAppSet) bool {
		return was.Generation != is.Generation || was.UID != is.UID ||
			was.Annotations[AnnotationConfirmRemoval] != is.Annotations[AnnotationConfirmRemoval]
	}, func(ctx context.Context, set *v1beta1.YurtAppSet, q control.Queue) {
		q.Add(requestFor(set))
		c.enqueueGroup(ctx, set, q)
	})
}

// poolHandler enqueues all YurtAppSets when a pool comes, goes or changes its labels.
func (c *Controller) poolHandler() handler.TypedFuncs[*v1beta2.NodePool, reconcile.Request] {
	return control.On(func(was, is *v1beta2.NodePool) bool { return !labels.Equals(was.Labels, is.Labels) },
		func(ctx context.Context, _ *v1beta2.NodePool, q control.Queue) {
			all := &v1beta1.YurtAppSetList{}
			if err := c.cfg.Client.List(ctx, all, client.UnsafeDisableDeepCopy); err != nil {
				klog.FromContext(ctx).Error(err, "Failed to list the YurtAppSets for a pool")
				return
			}
			for i := range all.Items {
				q.AddAfter(requestFor(&all.Items[i]), settle)
			}
		})
}

// nodeHandler enqueues the YurtAppSets in which a pool waits, when a node can take Pods again or can't any more.
func (c *Controller) nodeHandler() handler.TypedFuncs[*corev1.Node, reconcile.Request] {
	return control.On(func(was, is *corev1.Node) bool {
		return TakesPods(was) != TakesPods(is) || was.Labels[edge.LabelNodePool] != is.Labels[edge.LabelNodePool]
	}, func(_ context.Context, _ *corev1.Node, q control.Queue) {
		c.mu.Lock()
		defer c.mu.Unlock()
		for set, m := range c.known {
			if m.byNodes {
				q.AddAfter(reconcile.Request{NamespacedName: set}, nodesSettle)
			}
		}
	})
}

// ownerHandler enqueues the YurtAppSet that owns an object or owned it, and those that take turns with it, after a delay in which
// more of its objects may change.
func ownerHandler[T client.Object](c *Controller) handler.TypedFuncs[T, reconcile.Request] {
	return control.On(nil, func(ctx context.Context, o T, q control.Queue) {
		owner := metav1.GetControllerOf(o)
		if owner == nil || owner.Kind != "YurtAppSet" || owner.APIVersion != v1beta1.GroupVersion.String() {
			return
		}
		set := &v1beta1.YurtAppSet{}
		set.Namespace, set.Name = o.GetNamespace(), owner.Name
		q.AddAfter(requestFor(set), settle)
		if c.cfg.Client.Get(ctx, client.ObjectKeyFromObject(set), set) == nil {
			c.enqueueGroup(ctx, set, q)
		}
	})
}

// enqueueGroup enqueues the YurtAppSets that take turns with one.
func (c *Controller) enqueueGroup(ctx context.Context, set *v1beta1.YurtAppSet, q control.Queue) {
	if set.Spec.Rollout == nil || set.Spec.Rollout.Group == "" {
		return
	}
	all := &v1beta1.YurtAppSetList{}
	if err := c.cfg.Client.List(ctx, all, client.InNamespace(set.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		klog.FromContext(ctx).Error(err, "Failed to list the YurtAppSets of a group")
	}
	for i := range all.Items {
		if r := all.Items[i].Spec.Rollout; r != nil && r.Group == set.Spec.Rollout.Group {
			q.AddAfter(requestFor(&all.Items[i]), settle)
		}
	}
}

func requestFor(o client.Object) reconcile.Request {
	return reconcile.Request{NamespacedName: client.ObjectKeyFromObject(o)}
}
