package coordinator

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"yurtcoordinator/apis/apps/v1alpha1"
	"yurtcoordinator/apis/apps/v1beta1"
	"yurtcoordinator/internal/cloud/objects"
	"yurtcoordinator/internal/edge"
)

// What all coordinators share is reconciled under this request.
var appRequest = reconcile.Request{NamespacedName: client.ObjectKey{
	Namespace: edge.NamespaceSystem, Name: edge.AppCoordinator,
}}

// reconcileFleet keeps the objects that all coordinators share. If it fails, each YurtCoordinator's status says so, because
// nobody looks at objects without a status.
func (r *Reconciler) reconcileFleet(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	result, err := r.keepFleet(ctx)
	if apierrors.IsConflict(err) { // the YurtAppSet's status is written often
		return reconcile.Result{RequeueAfter: wait.Jitter(100*time.Millisecond, 1)}, nil
	}
	if ctx.Err() != nil {
		return result, err
	}
	r.mu.Lock()
	was := r.fleet
	r.fleet = err
	r.mu.Unlock()
	if (was == nil) != (err == nil) {
		select {
		case r.fleetTurned <- event.GenericEvent{Object: &v1alpha1.YurtCoordinator{}}:
		default: // all are to be looked at already
		}
	}
	return result, err
}

// fleetTrouble returns why what all coordinators share could not be kept, or nil.
func (r *Reconciler) fleetTrouble() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.fleet
}

// keepFleet keeps the Service, and the YurtAppSets with the pools that must have a coordinator. It judges every pool anew, but a
// pool that is already in a YurtAppSet stays there.
func (r *Reconciler) keepFleet(ctx context.Context) (reconcile.Result, error) {
	if err := r.keepService(ctx); err != nil {
		return reconcile.Result{}, err
	}
	have, err := r.apps(ctx, r.cfg.Client)
	if err != nil {
		return reconcile.Result{}, err
	}
	all, err := r.roster(ctx, have)
	if err != nil {
		return reconcile.Result{}, err
	}
	is := decide(all.turns, r.cfg.Rollout.most(len(all.turns)))
	r.stopped(is.stops)
	if err := r.markAll(ctx, is, all.views); err != nil {
		return reconcile.Result{}, err
	}
	var pools [edge.MaxSlots]map[edge.PoolName]shipment
	for slot := range pools {
		pools[slot] = make(map[edge.PoolName]shipment)
	}
	var given [edge.MaxSlots][]decided
	for _, d := range is.gives {
		given[d.slot] = append(given[d.slot], d)
		if !d.none {
			pools[d.slot][d.pool] = d.gives
		}
	}
	for _, slot := range edge.Slots() {
		made := castsOf(have[slot]).after(given[slot])
		if err := r.keepApp(ctx, slot, have[slot], pools[slot], made); err != nil {
			return reconcile.Result{}, err
		}
	}
	again := r.cfg.Resync
	if is.again > 0 {
		again = min(again, is.again)
	}
	return reconcile.Result{RequeueAfter: wait.Jitter(again, 0.1)}, r.pullAll(ctx, is, all.views)
}

// keepApp keeps the YurtAppSet of a slot. That of standbys is made when a pool first has one, and stays.
func (r *Reconciler) keepApp(
	ctx context.Context, slot edge.Slot, have *v1beta1.YurtAppSet, pools map[edge.PoolName]shipment, made casts,
) error {
	if have == nil && slot > 0 && len(pools) == 0 {
		return nil
	}
	want, err := appSet(r.cfg, slot, pools)
	if err != nil {
		return err
	}
	want.Annotations = map[string]string{annotationCasts: made.String()}
	if have != nil {
		if toJSON(have.Spec) == toJSON(want.Spec) && have.Annotations[annotationCasts] == want.Annotations[annotationCasts] {
			return nil
		}
		want.ResourceVersion = have.ResourceVersion // what the pools have been given is read from it
	}
	return r.apply(ctx, want)
}

// roster are the pools that must have a coordinator.
type roster struct {
	turns []turn
	views map[edge.PoolName]view
}

// roster returns the pools that must have a coordinator. Their YurtCoordinators already have the finalizer, so none can be gone
// before its workload.
func (r *Reconciler) roster(ctx context.Context, has apps) (found roster, err error) {
	var all v1alpha1.YurtCoordinatorList
	if err := r.cfg.Client.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
		return found, fmt.Errorf("list YurtCoordinators: %w", err)
	}
	pools := make(map[edge.PoolName]bool)
	for i := range all.Items {
		pools[edge.PoolName(all.Items[i].Spec.NodePool)] = true
	}
	says, err := r.poolSettings(ctx)
	if err != nil {
		return found, err
	}
	crews, err := r.crews(ctx)
	if err != nil {
		return found, err
	}
	var had [edge.MaxSlots]map[edge.PoolName]shipment
	var made [edge.MaxSlots]casts
	for slot, app := range has {
		had[slot], made[slot] = shipped(app), castsOf(app)
	}
	found.views = make(map[edge.PoolName]view)
	alike := make(map[string]holding) // most pools want the same
	for _, pool := range slices.Sorted(maps.Keys(pools)) {
		v, err := r.census(ctx, pool, has, says)
		if err != nil {
			return found, err
		}
		verdict := Judge(v.census)
		if !verdict.Run || !controllerutil.ContainsFinalizer(verdict.Holder, Finalizer) {
			continue
		}
		v.crew, v.slots, v.was = crews[pool], v.slotsFor(verdict.Holder, has), verdict.Holder.Status.Coordinators
		found.views[pool] = v
		for _, slot := range edge.Slots()[:v.slots] {
			want := r.wanted(v, verdict, slot)
			same := want
			same.Pool = ""
			key := toJSON(same)
			h, known := alike[key]
			if !known {
				if h, err = r.cfg.make(want); err != nil {
					return found, err
				}
				alike[key] = h
			}
			h.had, h.known = had[slot][pool]
			h.casts = made[slot]
			t := r.turnOf(v, slot, h)
			t.owner = owner{verdict.Holder.Name, verdict.Holder.UID}
			found.turns = append(found.turns, t)
		}
	}
	return found, nil
}

// make returns what is made for a pool now.
func (c Config) make(p Wanted) (h holding, err error) {
	if h.made, err = shipmentOf(c, p); err != nil {
		return h, err
	}
	h.order, err = orderOf(c, p)
	return h, err
}

// wanted returns what a pool is to have in a slot.
func (r *Reconciler) wanted(v view, verdict Verdict, slot edge.Slot) Wanted {
	return Wanted{
		Pool: v.census.Pool, Slot: slot, Image: r.cfg.image(verdict.Holder.Spec.Version, v.settings.Release), Taints: v.taints,
		Settings: v.settings.CoordinatorSettings,
	}
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
