package coordinator

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"yurtcoordinator/apis/apps/v1alpha1"
	"yurtcoordinator/apis/apps/v1beta1"
	"yurtcoordinator/apis/apps/v1beta2"
	"yurtcoordinator/internal/cloud/appset"
	"yurtcoordinator/internal/cloud/control"
	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/ends"
)

const (
	coordinatorController = "coordinator"
	fleetController       = "coordinator-fleet"
	createController      = "coordinator-create"

	// workers is how many pools are reconciled at a time. A pool takes some twenty requests once, and usually none.
	workers = 8

	// reconcileTimeout bounds one reconcile.
	reconcileTimeout = time.Minute
	// gather is how long a change waits for others of its kind. So a thousand new YurtCoordinators change the YurtAppSet only a
	// few times, and when all nodes of a site lose their links, the status is written once.
	gather = 200 * time.Millisecond
	// retryMax is the longest wait before a failed reconcile is tried again, before jitter.
	retryMax = 2 * time.Minute
)

// Cached says what the manager's cache must hold for this package: the coordinators' own Pods, one Service and one ConfigMap. The
// Pods that upgrade hubs are there for package upgrades, since a kind has one selector. The cache must also hold Nodes and Leases
// as heartbeat.Cached says, with CachedAnnotations and the annotations of node autonomy.
func Cached() map[client.Object]cache.ByObject {
	one := func(name string) cache.ByObject {
		return cache.ByObject{Namespaces: map[string]cache.Config{
			edge.NamespaceSystem: {FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, name)},
		}}
	}
	return map[client.Object]cache.ByObject{
		&corev1.Pod{}: {
			Namespaces: map[string]cache.Config{edge.NamespaceSystem: {LabelSelector: ofPrograms()}},
			Transform:  cache.TransformStripManagedFields(),
		},
		&corev1.Service{}:   one(edge.ServiceCoordinator),
		&corev1.ConfigMap{}: one(authenticationConfig),
	}
}

// ofPrograms selects the Pods of coordinators, and those that upgrade hubs.
func ofPrograms() labels.Selector {
	is, err := labels.NewRequirement(edge.LabelApp, selection.In, []string{edge.AppCoordinator, edge.AppUpgrader})
	if err != nil {
		panic(err) // all of it is constant
	}
	return labels.NewSelector().Add(*is)
}

// CachedAnnotations returns the keys of a Node's annotations that must be in the cache.
func CachedAnnotations() []string { return []string{edge.AnnotationLANAddress} }

// AddTo registers the controllers with a manager, to run while the manager leads. It needs the index of control.IndexNodes.
func (r *Reconciler) AddTo(mgr manager.Manager) error {
	index := mgr.GetFieldIndexer().IndexField
	if err := index(context.Background(), &v1alpha1.YurtCoordinator{}, indexPool, coordinatorIndex); err != nil {
		return fmt.Errorf("index YurtCoordinators by their pool: %w", err)
	}
	var coordinators []source.Source
	for _, k := range r.kinds() {
		coordinators = append(coordinators, source.Kind(mgr.GetCache(), k.object, k.coordinators))
	}
	coordinators = append(coordinators, source.Channel(r.turned, handler.Funcs{
		GenericFunc: func(ctx context.Context, _ event.GenericEvent, q control.Queue) { r.enqueueAll(ctx, q) },
	}))
	first := source.Func(func(_ context.Context, q control.Queue) error {
		q.Add(appRequest)
		return nil
	})
	soon := func(request reconcile.Request) func(context.Context, client.Object, control.Queue) {
		return func(_ context.Context, obj client.Object, q control.Queue) {
			if wakes(obj) {
				q.AddAfter(request, gather)
			}
		}
	}
	fleet, create := []source.Source{first}, []source.Source{}
	for _, k := range r.kinds() {
		if k.fleet != nil {
			fleet = append(fleet, source.Kind(mgr.GetCache(), k.object, control.On(k.fleet, soon(appRequest))))
		}
		if k.create != nil {
			create = append(create, source.Kind(mgr.GetCache(), k.object, control.On(k.create, soon(createRequest))))
		}
	}
	err := add(mgr, createController, 1, r.reconcileCreate, create)
	if err == nil {
		err = add(mgr, coordinatorController, workers, r.reconcileCoordinator, coordinators)
	}
	if err == nil {
		err = add(mgr, fleetController, 1, r.reconcileFleet, fleet)
	}
	if err == nil {
		err = poolsRoll().AddTo(mgr, ends.Chance{})
	}
	return err
}

func add(mgr manager.Manager, name string, workers int, f reconcile.Func, sources []source.Source) error {
	return control.Controller{
		Name: name, Reconciler: f, Workers: workers, Timeout: reconcileTimeout, RetryMax: retryMax, Watch: sources,
	}.AddTo(mgr)
}

func coordinatorIndex(obj client.Object) []string {
	if c, ok := obj.(*v1alpha1.YurtCoordinator); ok {
		return []string{c.Spec.NodePool}
	}
	return nil
}

// kind says what changes of one kind of object mean.
type kind struct {
	object client.Object
	// coordinators enqueues the YurtCoordinators that a change of an object matters to.
	coordinators handler.EventHandler
	// fleet reports whether a change matters to what all coordinators share; nil means never.
	fleet func(was, is client.Object) bool
	// create reports whether a change matters to which pools have a YurtCoordinator because of create: Always; nil means never.
	create func(was, is client.Object) bool
}

// kinds returns the kinds to watch, each with what it enqueues. A change that matters to no pool, such as a heartbeat, enqueues
// nothing.
func (r *Reconciler) kinds() []kind {
	all := func(ctx context.Context, _ client.Object, q control.Queue) { r.enqueueAll(ctx, q) }
	more := []kind{}
	if r.cfg.PoolSettings {
		more = append(more, kind{&v1alpha1.PoolSettings{}, control.On(specChanged, all), specChanged, specChanged})
	}
	ofPool := func(ctx context.Context, obj client.Object, q control.Queue) { r.enqueuePool(ctx, poolOf(obj), q) }
	member := func(ctx context.Context, obj client.Object, q control.Queue) { ofPool(ctx, obj, gathered{q}) }
	named := func(ctx context.Context, obj client.Object, q control.Queue) {
		r.enqueuePool(ctx, edge.PoolName(obj.GetName()), q)
	}
	return append(more, []kind{
		{&v1alpha1.YurtCoordinator{}, control.On(coordinatorChanged, r.enqueueSiblings), servesOrChanged, specChanged},
		{&v1beta2.NodePool{}, control.On(poolChanged, named), poolChanged, poolChanged},
		{&corev1.Node{}, control.On(nodeChanged, member), memberChanged, memberChanged},
		{&corev1.Pod{}, control.On(nil, ofPool), nil, nil},
		{&coordinationv1.Lease{}, control.On(leaseChanged, r.enqueueReport), nil, nil},
		{&v1beta1.YurtAppSet{}, handler.Funcs{}, appChanged, brakeChanged},
		{&corev1.Service{}, control.On(serviceChanged, all), serviceChanged, nil},
		{&corev1.ConfigMap{}, control.On(clientCAChanged, all), nil, nil},
	}...)
}

// wakes reports whether an object can matter to what all coordinators share. A Node outside of any pool, and a YurtAppSet that is
// not the coordinators' own, can't.
func wakes(obj client.Object) bool {
	switch obj.(type) {
	case *corev1.Node:
		return poolOf(obj) != ""
	case *v1beta1.YurtAppSet:
		_, slot := slotOfApp(obj)
		return slot
	}
	return true
}

func specChanged(was, is client.Object) bool {
	return was.GetUID() != is.GetUID() || was.GetGeneration() != is.GetGeneration() ||
		!was.GetDeletionTimestamp().Equal(is.GetDeletionTimestamp())
}

// appChanged reports whether a YurtAppSet changed, or its controller has seen that.
func appChanged(was, is client.Object) bool {
	before, ok := was.(*v1beta1.YurtAppSet)
	after, ok2 := is.(*v1beta1.YurtAppSet)
	return specChanged(was, is) || ok && ok2 && before.Status.ObservedGeneration != after.Status.ObservedGeneration
}

// brakeChanged reports whether a YurtAppSet may say something else about removals.
func brakeChanged(was, is client.Object) bool {
	confirms := func(o client.Object) string { return o.GetAnnotations()[appset.AnnotationConfirmRemoval] }
	return specChanged(was, is) || confirms(was) != confirms(is)
}

// poolChanged reports whether what a pool wants changed, or the labels by which PoolSettings select it.
func poolChanged(was, is client.Object) bool {
	return specChanged(was, is) || !maps.Equal(was.GetLabels(), is.GetLabels())
}

func coordinatorChanged(was, is client.Object) bool {
	return specChanged(was, is) || !slices.Equal(was.GetFinalizers(), is.GetFinalizers())
}

// servesOrChanged reports whether a YurtCoordinator changed, or how many of its coordinators serve.
func servesOrChanged(was, is client.Object) bool {
	before, ok := was.(*v1alpha1.YurtCoordinator)
	after, ok2 := is.(*v1alpha1.YurtCoordinator)
	return coordinatorChanged(was, is) || ok && ok2 && serve(before.Status) != serve(after.Status)
}

// memberChanged reports whether a node's pool or its autonomy changed.
func memberChanged(was, is client.Object) bool {
	return poolOf(was) != poolOf(is) || autonomous(node(was)) != autonomous(node(is))
}

// nodeChanged reports whether a node's pool, addresses or state (counts as dead, is delegated, is held) changed.
func nodeChanged(was, is client.Object) bool {
	before, after := node(was), node(is)
	return memberChanged(was, is) || !slices.Equal(before.Status.Addresses, after.Status.Addresses) ||
		before.Annotations[edge.AnnotationLANAddress] != after.Annotations[edge.AnnotationLANAddress] ||
		countsAsDead(before) != countsAsDead(after) || isDelegated(before) != isDelegated(after) ||
		heldSays(before) != heldSays(after)
}

// node returns an object of which the handler knows that it is a Node.
func node(obj client.Object) *corev1.Node {
	n, ok := obj.(*corev1.Node)
	if !ok {
		return &corev1.Node{}
	}
	return n
}

func leaseChanged(was, is client.Object) bool {
	before, ok := was.(*coordinationv1.Lease)
	after, ok2 := is.(*coordinationv1.Lease)
	return ok && ok2 && slices.ContainsFunc(edge.AnnotationsOfReports, func(key string) bool {
		return before.Annotations[key] != after.Annotations[key]
	})
}

func serviceChanged(was, is client.Object) bool {
	before, ok := was.(*corev1.Service)
	after, ok2 := is.(*corev1.Service)
	return !ok || !ok2 || toJSON(before.Spec) != toJSON(after.Spec) ||
		before.Annotations[edge.AnnotationTopologyKeys] != after.Annotations[edge.AnnotationTopologyKeys]
}

func clientCAChanged(was, is client.Object) bool {
	before, ok := was.(*corev1.ConfigMap)
	after, ok2 := is.(*corev1.ConfigMap)
	return ok && ok2 && before.Data[clientCAKey] != after.Data[clientCAKey]
}

// enqueueSiblings enqueues a YurtCoordinator, which may no longer be in the cache, and the others of its pool.
func (r *Reconciler) enqueueSiblings(ctx context.Context, obj client.Object, q control.Queue) {
	q.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(obj)})
	if c, ok := obj.(*v1alpha1.YurtCoordinator); ok {
		r.enqueuePool(ctx, edge.PoolName(c.Spec.NodePool), q)
	}
}

// gathered is a queue that delays additions so that they gather.
type gathered struct{ control.Queue }

// Add implements workqueue.TypedInterface.
func (g gathered) Add(r reconcile.Request) { g.AddAfter(r, gather) }

// enqueueReport enqueues the pool that a Lease reports about. What nodes' own Leases say is on their Nodes.
func (r *Reconciler) enqueueReport(ctx context.Context, obj client.Object, q control.Queue) {
	if lease, ok := obj.(*coordinationv1.Lease); ok && lease.Namespace == corev1.NamespaceNodeLease {
		r.enqueuePool(ctx, reports(lease), gathered{q})
	}
}

func (r *Reconciler) enqueuePool(ctx context.Context, pool edge.PoolName, q control.Queue) {
	if pool != "" {
		r.enqueue(ctx, q, client.MatchingFields{indexPool: string(pool)})
	}
}

func (r *Reconciler) enqueueAll(ctx context.Context, q control.Queue) { r.enqueue(ctx, q) }

// enqueue enqueues YurtCoordinators, which it reads from the cache only. That fails only while the cache starts or stops.
// Nothing is lost then, because every YurtCoordinator counts as new after a start.
func (r *Reconciler) enqueue(ctx context.Context, q control.Queue, which ...client.ListOption) {
	var all v1alpha1.YurtCoordinatorList
	if err := r.cfg.Client.List(ctx, &all, which...); err != nil {
		return
	}
	for i := range all.Items {
		q.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&all.Items[i])})
	}
}
