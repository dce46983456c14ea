package heartbeat

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"yurtcoordinator/apis/apps/v1alpha1"
	"yurtcoordinator/internal/cloud/control"
	"yurtcoordinator/internal/edge"
)

// options has each pool's wishes for its delegated nodes, as its YurtCoordinator states them. If a pool has several
// YurtCoordinators, the oldest counts. It is safe for concurrent use.
type options struct {
	mu sync.Mutex
	// known says that all YurtCoordinators have been seen. Until then nothing is known about any pool.
	known  bool
	byPool map[edge.PoolName]map[string]option // then by the YurtCoordinator's name
}

type option struct {
	name string
	made time.Time
	wish
}

// wish is how a pool wants its delegated nodes treated.
type wish struct {
	show Show
	// relayed is the effect of the taint of those that are relayed; empty means that they get none.
	relayed corev1.TaintEffect
}

// effect returns the effect of the taint for a node with a marked Lease; empty means no taint. A delegated node takes no new
// Pods, and neither does a node of which only the heartbeats are relayed. A relayed node learns of deletions. So by default it
// takes Pods that fit nowhere else. An unsettled node gets its pool's taint for relayed nodes, or PreferNoSchedule if the pool
// wants none there.
func (w wish) effect(f Finding) corev1.TaintEffect {
	switch {
	case f.Unsettled:
		return cmp.Or(w.relayed, corev1.TaintEffectPreferNoSchedule)
	case f.Relayed && !f.HeartbeatsOnly:
		return w.relayed
	}
	return corev1.TaintEffectNoSchedule
}

// effectOf returns the effect that a pool wants of its relayed nodes' taint.
func effectOf(s v1alpha1.RelayedNodeScheduling) corev1.TaintEffect {
	switch s {
	case v1alpha1.RelayedEnabled:
		return ""
	case v1alpha1.RelayedDisabled:
		return corev1.TaintEffectNoSchedule
	case v1alpha1.RelayedPreferNoSchedule:
	}
	return corev1.TaintEffectPreferNoSchedule
}

func newOptions() *options { return &options{byPool: make(map[edge.PoolName]map[string]option)} }

// saw records the present state of a YurtCoordinator. It reports whether the pool's nodes must now be treated in another way. A
// YurtCoordinator never changes its pool.
func (o *options) saw(c *v1alpha1.YurtCoordinator) (news bool) {
	pool := edge.PoolName(c.Spec.NodePool)
	show := ShowReady
	if c.Spec.DelegatedNodeStatus == v1alpha1.DelegatedNotReady {
		show = ShowNotReady
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	before := o.wishLocked(pool)
	if o.byPool[pool] == nil {
		o.byPool[pool] = make(map[string]option)
	}
	o.byPool[pool][c.Name] = option{c.Name, c.CreationTimestamp.Time, wish{
		show: show, relayed: effectOf(c.Spec.RelayedNodeScheduling),
	}}
	return before != o.wishLocked(pool)
}

// lost is saw for a YurtCoordinator that was deleted.
func (o *options) lost(c *v1alpha1.YurtCoordinator) (news bool) {
	pool := edge.PoolName(c.Spec.NodePool)
	o.mu.Lock()
	defer o.mu.Unlock()
	before := o.wishLocked(pool)
	delete(o.byPool[pool], c.Name)
	if len(o.byPool[pool]) == 0 {
		delete(o.byPool, pool)
	}
	return before != o.wishLocked(pool)
}

// complete records that all YurtCoordinators have been seen, and returns the pools that have one.
func (o *options) complete() []edge.PoolName {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.known = true
	return slices.Collect(maps.Keys(o.byPool))
}

func (o *options) of(pool edge.PoolName) wish {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.wishLocked(pool)
}

func (o *options) wishLocked(pool edge.PoolName) wish {
	if !o.known {
		return wish{show: ShowUnknown, relayed: effectOf("")}
	}
	all := slices.Collect(maps.Values(o.byPool[pool]))
	if len(all) == 0 {
		return wish{show: ShowReady, relayed: effectOf("")}
	}
	return slices.MinFunc(all, func(a, b option) int {
		return cmp.Or(a.made.Compare(b.made), strings.Compare(a.name, b.name))
	}).wish
}

// FollowCoordinators makes the Policy follow the wishes of YurtCoordinators for delegated nodes. Call it once the API server
// serves YurtCoordinators. Until then nodes stay shown as they are.
func (p *Policy) FollowCoordinators(mgr manager.Manager) error {
	// The background context suits: the call only begins to list. What waits for the list has its own context.
	informer, err := mgr.GetCache().GetInformer(context.Background(), &v1alpha1.YurtCoordinator{}, cache.BlockUntilSynced(false))
	if err != nil {
		return err
	}
	following, err := informer.AddEventHandler(p.coordinatorHandler())
	if err != nil {
		return err
	}
	return mgr.Add(follower{p, following.HasSynced})
}

func (p *Policy) coordinatorHandler() toolscache.ResourceEventHandler {
	handle := func(obj any, take func(*v1alpha1.YurtCoordinator) bool) {
		if last, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
			obj = last.Obj
		}
		if c, ok := obj.(*v1alpha1.YurtCoordinator); ok && take(c) {
			p.wake(context.Background(), edge.PoolName(c.Spec.NodePool)) // the cache answers at once
		}
	}
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { handle(obj, p.options.saw) },
		UpdateFunc: func(_, obj any) { handle(obj, p.options.saw) },
		DeleteFunc: func(obj any) { handle(obj, p.options.lost) },
	}
}

// follower waits until all YurtCoordinators have been seen, on every replica, leading or not.
type follower struct {
	policy *Policy
	synced toolscache.InformerSynced
}

// Start implements manager.Runnable.
func (f follower) Start(ctx context.Context) error {
	if !toolscache.WaitForCacheSync(ctx.Done(), f.synced) {
		return nil // stopped before that
	}
	pools := f.policy.options.complete()
	klog.FromContext(ctx).V(2).Info("Following how pools want their delegated nodes shown", "pools", len(pools))
	for _, pool := range pools {
		f.policy.wake(ctx, pool)
	}
	return nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (follower) NeedLeaderElection() bool { return false }

// wake enqueues a pool's delegated nodes, by their condition. A node that does not have it yet is reconciled soon in any case.
func (p *Policy) wake(ctx context.Context, pool edge.PoolName) {
	var nodes corev1.NodeList
	of := client.MatchingLabels{edge.LabelNodePool: string(pool)}
	if err := p.client.List(ctx, &nodes, of, client.UnsafeDisableDeepCopy); err != nil {
		klog.FromContext(ctx).Error(err, "Cannot list a pool's nodes to show them in another way", "pool", pool)
		return
	}
	for i := range nodes.Items {
		if ConditionOf(&nodes.Items[i], edge.ConditionCloudLinkDown).Status == corev1.ConditionTrue {
			p.queue.add(control.Request(nodes.Items[i].Name))
		}
	}
}

// lateQueue is the controller's queue, which exists once the controller has started. What is added before that is dropped,
// because the controller looks at every Node when it starts.
type lateQueue struct {
	mu    sync.Mutex
	queue queue
}

// begin is a source.Func.
func (l *lateQueue) begin(_ context.Context, q control.Queue) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.queue = q
	return nil
}

func (l *lateQueue) add(r reconcile.Request) {
	l.mu.Lock()
	q := l.queue
	l.mu.Unlock()
	if q != nil {
		q.Add(r)
	}
}
