package settings

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"yurtcoordinator/apis/apps/v1alpha1"
	"yurtcoordinator/apis/apps/v1beta2"
	"yurtcoordinator/internal/cloud/control"
	"yurtcoordinator/internal/cloud/objects"
	"yurtcoordinator/internal/edge"
)

// ledger has what the pools were told by this process, for the statuses.
type ledger struct {
	mu    sync.Mutex
	pools map[string]entry
}

// entry is about one pool.
type entry struct {
	record record
	// digest is of all that its objects were made from, which holds until again.
	digest string
	again  time.Time
	// failed is why the pool cannot be told.
	failed error
}

func (l *ledger) get(pool string) entry {
	e, _ := l.entry(pool)
	return e
}

// entry also says whether this process has looked at the pool yet.
func (l *ledger) entry(pool string) (entry, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e, ok := l.pools[pool]
	return e, ok
}

func (l *ledger) set(pool string, e entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pools[pool] = e
}

// forget reports whether there was anything to forget.
func (l *ledger) forget(pool string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, had := l.pools[pool]
	delete(l.pools, pool)
	return had
}

// reconcilePool tells a pool's hubs its settings.
func (c *Controller) reconcilePool(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
	pool := &v1beta2.NodePool{}
	if err := c.cfg.Client.Get(ctx, r.NamespacedName, pool); apierrors.IsNotFound(err) {
		if !c.ledger.forget(r.Name) {
			return reconcile.Result{}, nil // its owner's end removes what another process has made
		}
		err = c.drop(ctx, r.Name)
		if err != nil {
			c.ledger.set(r.Name, entry{})
		}
		return reconcile.Result{}, err
	} else if err != nil {
		return reconcile.Result{}, fmt.Errorf("read NodePool %s: %w", r.Name, err)
	}
	all := &v1alpha1.PoolSettingsList{}
	if err := c.cfg.Client.List(ctx, all, client.UnsafeDisableDeepCopy); err != nil {
		return reconcile.Result{}, fmt.Errorf("list PoolSettings: %w", err)
	}
	nodes, err := control.NodesOf(ctx, c.cfg.Client, pool.Name)
	if err != nil {
		return reconcile.Result{}, err
	}
	names := make([]edge.NodeName, len(nodes))
	for i := range nodes {
		names[i] = edge.NodeName(nodes[i].Name)
	}
	slices.Sort(names)
	err = c.apply(ctx, pool, all.Items, names)
	if apierrors.IsConflict(err) {
		return reconcile.Result{}, err
	}
	if err != nil {
		e := c.ledger.get(pool.Name)
		e.failed, e.digest = err, ""
		c.ledger.set(pool.Name, e)
		c.wakeStatuses()
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: c.ledger.get(pool.Name).again.Sub(c.cfg.Clock.Now())}, nil
}

// apply makes a pool's objects what they should be, unless it has done so lately.
func (c *Controller) apply(
	ctx context.Context, pool *v1beta2.NodePool, all []v1alpha1.PoolSettings, nodes []edge.NodeName,
) error {
	t, _, err := merge(pool, all)
	if err != nil {
		return err
	}
	rights := grants(pool, nodes)
	granted, err := digest(rights)
	if err != nil {
		return err
	}
	sum, err := digest([]any{pool.UID, t, granted})
	now := c.cfg.Clock.Now()
	was := c.ledger.get(pool.Name)
	if err != nil || was.digest == sum && now.Before(was.again) {
		return err
	}
	have := &corev1.ConfigMap{ObjectMeta: ownedMeta(pool)}
	err = c.cfg.Reader.Get(ctx, client.ObjectKeyFromObject(have), have)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read %s: %w", objects.Describe(have), err)
	}
	if apierrors.IsNotFound(err) {
		have = &corev1.ConfigMap{}
	}
	// A pool whose objects this process has made before may have lost one.
	if was.digest != "" || have.Annotations[annotationGranted] != granted {
		for _, obj := range rights {
			if err := objects.Apply(ctx, c.cfg.Client, obj, FieldOwner); err != nil {
				return err
			}
		}
	}
	r := recorded(have).next(have.Data[edge.SettingsConfiguration], t)
	want, err := configMap(pool, t, r, granted)
	if err != nil {
		return err
	}
	if !holds(have, want) {
		want.ResourceVersion = have.ResourceVersion
		if err := objects.Apply(ctx, c.cfg.Client, want, FieldOwner); err != nil {
			return err
		}
		klog.FromContext(ctx).Info("Told the pool's hubs its settings", "pool", pool.Name, "generation", r.newest().Generation,
			"from", r.newest().text())
	}
	c.ledger.set(pool.Name, entry{record: r, digest: sum, again: now.Add(wait.Jitter(resync, 0.5))})
	if was.digest != sum {
		c.wakeStatuses()
	}
	return nil
}

// wakeStatuses enqueues all statuses, because a pool was told something, or could not be told. It does nothing if that is about
// to happen anyway.
func (c *Controller) wakeStatuses() {
	select {
	case c.told <- event.TypedGenericEvent[*v1alpha1.PoolSettings]{}:
	default:
	}
}

// holds reports whether have is already as want says, so that nothing must be written.
func holds(have, want *corev1.ConfigMap) bool {
	same := func(a, b metav1.OwnerReference) bool { return a.UID == b.UID }
	return maps.Equal(have.Data, want.Data) && objects.Subset(want.Annotations, have.Annotations) &&
		objects.Subset(want.Labels, have.Labels) && slices.EqualFunc(have.OwnerReferences, want.OwnerReferences, same)
}

// drop removes the objects of a pool that is gone.
func (c *Controller) drop(ctx context.Context, pool string) error {
	for _, obj := range belongings(pool) {
		if err := objects.Remove(ctx, c.cfg.Client, obj); err != nil {
			return err
		}
	}
	return nil
}
