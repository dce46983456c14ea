package coordinator

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"yurtcoordinator/apis/apps/v1alpha1"
	"yurtcoordinator/apis/apps/v1beta1"
	"yurtcoordinator/apis/apps/v1beta2"
	"yurtcoordinator/internal/cloud/appset"
	"yurtcoordinator/internal/edge"
)

// LabelCreatedBy is on the YurtCoordinators that are made here because of create: Always. No others are removed here.
const LabelCreatedBy = "openyurt.io/created-by"

const createdBySettings = "poolsettings"

// createRequest is the one request under which YurtCoordinators are made and removed.
var createRequest = reconcile.Request{NamespacedName: client.ObjectKey{Name: createdBySettings}}

// site is a pool when it is decided whether to make its YurtCoordinator.
type site struct {
	// exists says that there is the NodePool, and that it is not being deleted.
	exists bool
	// always says that it is to have one.
	always bool
	// held says that the settings can't be used.
	held bool
	// census has the nodes, and the YurtCoordinators that there are.
	census Census
}

// chooses returns whether to make a pool's YurtCoordinator, and which ones to remove.
func (s site) chooses() (create bool, remove []*v1alpha1.YurtCoordinator) {
	if s.held && s.exists {
		return false, nil
	}
	if !s.exists || !s.always {
		for _, c := range s.census.Coordinators {
			if createdHere(c) && c.DeletionTimestamp.IsZero() {
				remove = append(remove, c)
			}
		}
		return false, remove
	}
	if len(s.census.Coordinators) > 0 {
		return false, nil
	}
	asked := s.census
	asked.Coordinators = []*v1alpha1.YurtCoordinator{{}}
	return Judge(asked).Run, nil
}

func createdHere(c *v1alpha1.YurtCoordinator) bool {
	return c.Labels[LabelCreatedBy] == createdBySettings
}

// reconcileCreate creates a YurtCoordinator for each pool whose settings say create: Always. It deletes the YurtCoordinators
// that it has created if their pools are gone, or if their pools' settings no longer say so and the brake lets them go. An error
// in one pool does not stop the others.
func (r *Reconciler) reconcileCreate(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	says, err := r.poolSettings(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	pools, err := r.sites(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	var failed []error
	var doubtful []client.Object
	of := 0
	for _, pool := range slices.Sorted(maps.Keys(pools)) {
		v, err := r.census(ctx, pool, says)
		if err != nil {
			return reconcile.Result{}, err
		}
		s := site{
			exists: pools[pool], always: v.settings.Create == v1alpha1.CreateAlways, held: v.settings.bad != nil,
			census: v.census,
		}
		create, remove := s.chooses()
		if s.exists && !r.cfg.PoolSettings {
			remove = nil // PoolSettings that are not followed now may still ask for it
		}
		if create {
			failed = append(failed, r.create(ctx, pool))
		}
		for _, c := range remove {
			if s.exists {
				doubtful = append(doubtful, c)
			} else {
				failed = append(failed, r.unmake(ctx, c))
			}
		}
		for _, c := range s.census.Coordinators {
			if c.DeletionTimestamp.IsZero() {
				of++
			}
		}
	}
	apps, err := r.apps(ctx)
	if err != nil {
		return reconcile.Result{}, errors.Join(append(failed, err)...)
	}
	app := apps[0]
	if app == nil {
		app = &v1beta1.YurtAppSet{ObjectMeta: metav1.ObjectMeta{Namespace: appRequest.Namespace, Name: appRequest.Name}}
	}
	free, held := r.brake.Let(app, doubtful, of, r.cfg.Clock.Now())
	for _, o := range free {
		if c, ok := o.(*v1alpha1.YurtCoordinator); ok {
			failed = append(failed, r.unmake(ctx, c))
		}
	}
	r.hold(held)
	again := wait.Jitter(r.cfg.Resync, 0.5)
	if held.Again > 0 {
		again = min(again, held.Again)
	}
	return reconcile.Result{RequeueAfter: again}, errors.Join(failed...)
}

// hold remembers which YurtCoordinators stay for now, and why, and has their statuses say so.
func (r *Reconciler) hold(held appset.Held) {
	is := make(map[string]string, len(held.Objects))
	for _, o := range held.Objects {
		is[o.GetName()] = held.Message
	}
	r.metrics.removals.Set(appRequest.NamespacedName, len(is))
	r.mu.Lock()
	was := r.held
	r.held = is
	r.mu.Unlock()
	if !maps.Equal(was, is) {
		r.lookAtAll()
	}
}

// doubts says why a YurtCoordinator stays that no settings ask for, if it does.
func (r *Reconciler) doubts(name string) finding {
	r.mu.Lock()
	defer r.mu.Unlock()
	if why := r.held[name]; why != "" {
		return finding{OK: true, Reason: appset.ReasonRemovalWaits, Message: why}
	}
	return finding{}
}

// sites returns all pools that there are, and those of YurtCoordinators that were made here, and whether each exists.
func (r *Reconciler) sites(ctx context.Context) (map[edge.PoolName]bool, error) {
	var all v1alpha1.YurtCoordinatorList
	if err := r.cfg.Client.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list YurtCoordinators: %w", err)
	}
	pools := make(map[edge.PoolName]bool)
	for i := range all.Items {
		if createdHere(&all.Items[i]) {
			pools[edge.PoolName(all.Items[i].Spec.NodePool)] = false
		}
	}
	var nodePools v1beta2.NodePoolList
	if err := r.cfg.Client.List(ctx, &nodePools, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list NodePools: %w", err)
	}
	for i := range nodePools.Items {
		if nodePools.Items[i].DeletionTimestamp.IsZero() {
			pools[edge.PoolName(nodePools.Items[i].Name)] = true
		}
	}
	return pools, nil
}

// create makes a pool's YurtCoordinator, with the name of the pool, unless another pool's has that.
func (r *Reconciler) create(ctx context.Context, pool edge.PoolName) error {
	sum := sha256.Sum256([]byte(pool))
	for _, name := range []string{string(pool), fmt.Sprintf("%s-%s", pool, hex.EncodeToString(sum[:4]))} {
		c := &v1alpha1.YurtCoordinator{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
				LabelCreatedBy: createdBySettings, labelManagedBy: FieldOwner,
			}},
			Spec: v1alpha1.YurtCoordinatorSpec{NodePool: string(pool)},
		}
		err := r.cfg.Client.Create(ctx, c, client.FieldOwner(FieldOwner))
		if apierrors.IsAlreadyExists(err) {
			var there v1alpha1.YurtCoordinator
			if err := r.cfg.Reader.Get(ctx, client.ObjectKeyFromObject(c), &there); err != nil {
				return fmt.Errorf("read YurtCoordinator %s: %w", name, err)
			}
			if there.Spec.NodePool == string(pool) {
				return nil // the cache is behind
			}
			continue
		}
		if err != nil {
			return fmt.Errorf("make the YurtCoordinator of pool %s: %w", pool, err)
		}
		klog.FromContext(ctx).Info("Made a YurtCoordinator, since settings say create: Always", "pool", pool, "name", name)
		r.told(ctx, owner{c.Name, c.UID}, "Created", "Settings of pool %s say create: Always", pool)
		return nil
	}
	return fmt.Errorf("make the YurtCoordinator of pool %s: both names that it could have are taken by other pools: "+
		"make one by hand, with another name", pool)
}

// unmake removes a YurtCoordinator that was made here.
func (r *Reconciler) unmake(ctx context.Context, c *v1alpha1.YurtCoordinator) error {
	err := r.cfg.Client.Delete(ctx, c.DeepCopy(), client.Preconditions{UID: ptr.To(c.UID)})
	if apierrors.IsConflict(err) {
		return nil // it is another one by now
	}
	if err := client.IgnoreNotFound(err); err != nil {
		return fmt.Errorf("remove YurtCoordinator %s: %w", c.Name, err)
	}
	klog.FromContext(ctx).Info("Removed a YurtCoordinator that settings no longer ask for",
		"pool", c.Spec.NodePool, "name", c.Name)
	return nil
}
