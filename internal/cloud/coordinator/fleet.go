package coordinator

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"yurtcoordinator/apis/apps/v1alpha1"
	"yurtcoordinator/apis/apps/v1beta1"
	"yurtcoordinator/apis/apps/v1beta2"
	"yurtcoordinator/internal/cloud/objects"
	"yurtcoordinator/internal/edge"
)

// What all coordinators share is reconciled under this request.
var appRequest = reconcile.Request{NamespacedName: client.ObjectKey{
	Namespace: edge.NamespaceSystem, Name: edge.AppCoordinator,
}}

// reconcileFleet keeps the objects that all coordinators share. If that fails, the reason appears in the status of each
// YurtCoordinator that must have a coordinator and is not Ready. The shared objects have no status that people look at.
func (r *Reconciler) reconcileFleet(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	result, err := r.keepFleet(ctx)
	if apierrors.IsConflict(err) || ctx.Err() != nil { // the YurtAppSet's status is written often
		return result, err
	}
	r.mu.Lock()
	was := r.fleet
	r.fleet = err
	r.mu.Unlock()
	if (was == nil) != (err == nil) {
		r.lookAtAll()
	}
	return result, err
}

// lookAtAll makes the controller look at all YurtCoordinators.
func (r *Reconciler) lookAtAll() {
	select {
	case r.turned <- event.GenericEvent{Object: &v1alpha1.YurtCoordinator{}}:
	default: // all are to be looked at already
	}
}

// fleetTrouble returns why what all coordinators share could not be kept, or nil.
func (r *Reconciler) fleetTrouble() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.fleet
}

// keepFleet keeps the Service, the YurtAppSets, and the labels of NodePools. By these labels the YurtAppSets select the pools
// that must have a coordinator. keepFleet judges every pool anew.
func (r *Reconciler) keepFleet(ctx context.Context) (reconcile.Result, error) {
	if err := r.keepService(ctx); err != nil {
		return reconcile.Result{}, err
	}
	have, err := r.apps(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	pools, err := r.roster(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	asked, most := asks(pools)
	seen := true
	for _, slot := range edge.Slots()[:max(1, most, have.count())] {
		is, err := r.keepApp(ctx, slot, have[slot], asked, pools)
		if err != nil {
			return reconcile.Result{}, err
		}
		seen = seen && is
	}
	return reconcile.Result{RequeueAfter: wait.Jitter(r.cfg.Resync, 0.1)}, r.labelPools(ctx, pools, seen)
}

// appliedApp is a YurtAppSet as the API server answered when it was last applied, and the sum of what was applied.
type appliedApp struct {
	uid        types.UID
	generation int64
	sum        [sha256.Size]byte
}

// keepApp keeps the YurtAppSet of a slot. It applies it when something else is wanted, when somebody has changed it since, and
// once after a start. It compares no field with what is wanted, because a webhook may have rewritten any. seen says that the
// YurtAppSet's controller has seen its newest generation. If a pool's label still selects a tweak that nobody asks for any more,
// the tweak stays until that label changes.
func (r *Reconciler) keepApp(
	ctx context.Context, slot edge.Slot, have *v1beta1.YurtAppSet, asked []Asked, pools []listed,
) (seen bool, err error) {
	want, err := AppSet(r.cfg, slot, asked...)
	if err != nil {
		return false, err
	}
	if have == nil {
		have = &v1beta1.YurtAppSet{}
	} else if have.Spec.Rollout == nil {
		return false,
			fmt.Errorf("YurtAppSet %s has lost spec.rollout: the CRD of YurtAppSets is not that of this chart, and would let "+
				"a change reach all pools at once; see docs/from-openyurt.md", have.Name)
	}
	for _, tweak := range have.Spec.Workload.WorkloadTweaks {
		key := ""
		if tweak.NodePoolSelector != nil {
			key = tweak.NodePoolSelector.MatchLabels[edge.LabelCoordinatorSettings]
		}
		used := slices.ContainsFunc(pools, func(p listed) bool { return p.has.settings == key })
		wanted := slices.ContainsFunc(asked, func(a Asked) bool { return a.key() == key })
		if key != "" && used && !wanted {
			want.Spec.Workload.WorkloadTweaks = append(want.Spec.Workload.WorkloadTweaks, tweak)
		}
	}
	sum := sha256.Sum256([]byte(toJSON(want)))
	if r.applied[slot] == (appliedApp{have.UID, have.Generation, sum}) {
		return have.Status.ObservedGeneration >= have.Generation, nil
	}
	want.ResourceVersion = have.ResourceVersion // which tweaks there are is read from it
	if err := r.apply(ctx, want); err != nil {
		return false, err
	}
	r.applied[slot] = appliedApp{want.UID, want.Generation, sum}
	return want.Status.ObservedGeneration >= want.Generation, nil
}

// marks are the labels of a NodePool; empty means that it has none.
type marks struct{ coordinators, settings string }

// listed is a pool that has a coordinator, or must have one.
type listed struct {
	pool edge.PoolName
	// has is what its NodePool has, wants what it must have.
	has, wants marks
	// asked is nil where the pool keeps what it has.
	asked *Asked
}

// roster returns the NodePools that have our labels, or must have them. A pool gets the labels, and by them its workload, only
// once its YurtCoordinator has the finalizer. Otherwise the YurtCoordinator could be gone before the workload.
func (r *Reconciler) roster(ctx context.Context) (all []listed, err error) {
	says, err := r.poolSettings(ctx)
	if err != nil {
		return nil, err
	}
	var nodePools v1beta2.NodePoolList
	if err := r.cfg.Client.List(ctx, &nodePools, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list NodePools: %w", err)
	}
	for i := range nodePools.Items {
		p := &nodePools.Items[i]
		m := listed{
			pool: edge.PoolName(p.Name), has: marks{p.Labels[edge.LabelCoordinators], p.Labels[edge.LabelCoordinatorSettings]},
		}
		v, err := r.census(ctx, m.pool, says)
		if err != nil {
			return nil, err
		}
		if verdict := Judge(v.census); verdict.Run && controllerutil.ContainsFinalizer(verdict.Holder, Finalizer) {
			if m.wants = m.has; v.settings.bad == nil || m.has == (marks{}) {
				asked := askedOf(verdict.Holder.Spec.Version, v.taints, v.settings.CoordinatorSettings)
				// A standby comes once the coordinators of lower slots serve.
				n := min(v.slotsFor(verdict.Holder), max(v.had, serve(verdict.Holder.Status)+1))
				m.asked, m.wants = &asked, marks{strconv.Itoa(int(n)), asked.key()}
			}
		}
		if m.has != (marks{}) || m.wants != (marks{}) {
			all = append(all, m)
		}
	}
	return all, nil
}

// serve returns how many coordinators serve, from slot 0 on.
func serve(is v1alpha1.YurtCoordinatorStatus) (n edge.Slot) {
	for int(n) < len(is.Coordinators) && is.Coordinators[n].Ready {
		n++
	}
	return n
}

// asks returns what pools ask, each once, and in how many slots they have coordinators at most.
func asks(pools []listed) (all []Asked, most edge.Slot) {
	byKey := make(map[string]Asked)
	for _, p := range pools {
		if p.asked != nil {
			byKey[p.wants.settings] = *p.asked
		}
		n, _ := strconv.Atoi(p.wants.coordinators)
		most = max(most, edge.Slot(n))
	}
	for _, key := range slices.Sorted(maps.Keys(byKey)) {
		all = append(all, byKey[key])
	}
	return all, most
}

// labelPools labels the NodePools. Until the YurtAppSets' controller has seen the tweaks, it only takes labels away.
func (r *Reconciler) labelPools(ctx context.Context, pools []listed, seen bool) error {
	var failed []error
	for _, p := range pools {
		if p.has == p.wants || !seen && p.wants != (marks{}) {
			continue
		}
		value := func(text string) *string {
			if text == "" {
				return nil
			}
			return &text
		}
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": map[string]*string{
			edge.LabelCoordinators: value(p.wants.coordinators), edge.LabelCoordinatorSettings: value(p.wants.settings),
		}}})
		if err != nil {
			return err
		}
		n := &v1beta2.NodePool{ObjectMeta: metav1.ObjectMeta{Name: string(p.pool)}}
		err = r.cfg.Client.Patch(ctx, n, client.RawPatch(mergePatch, patch), client.FieldOwner(FieldOwner))
		if client.IgnoreNotFound(err) != nil {
			failed = append(failed, fmt.Errorf("label NodePool %s: %w", p.pool, err))
		}
	}
	return errors.Join(failed...)
}

func (r *Reconciler) keepService(ctx context.Context) error {
	want := Service()
	var have corev1.Service
	err := r.cfg.Client.Get(ctx, client.ObjectKeyFromObject(want), &have)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read %s: %w", objects.Describe(want), err)
	}
	if err == nil && toJSON(have.Spec.Selector) == toJSON(want.Spec.Selector) &&
		toJSON(have.Spec.Ports) == toJSON(want.Spec.Ports) && have.Spec.Type == want.Spec.Type &&
		have.Spec.SessionAffinity == want.Spec.SessionAffinity &&
		have.Annotations[edge.AnnotationTopologyKeys] == edge.TopologyNodePool {
		return nil
	}
	return r.apply(ctx, want)
}
