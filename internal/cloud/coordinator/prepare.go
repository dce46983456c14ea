package coordinator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"yurtcoordinator/apis/apps/v1alpha1"
	"yurtcoordinator/internal/cloud/objects"
	"yurtcoordinator/internal/edge"
)

// markAll marks the nodes that are to run what pools are given now: before they are given it.
func (r *Reconciler) markAll(ctx context.Context, is decision, views map[edge.PoolName]view) error {
	var failed []error
	for _, d := range is.gives {
		if d.moves() {
			failed = append(failed, r.mark(ctx, views[d.pool], d))
		}
	}
	return errors.Join(failed...)
}

// pullAll has images brought to nodes, and removes what is of no use for that any more.
func (r *Reconciler) pullAll(ctx context.Context, is decision, views map[edge.PoolName]view) error {
	var failed []error
	byPool := make(map[edge.PoolName][]decided)
	for _, d := range is.gives {
		byPool[d.pool] = append(byPool[d.pool], d)
		if d.pulls && d.coming.state == notBegun && d.coming.node != "" {
			failed = append(failed, r.pull(ctx, d))
		}
	}
	now := r.cfg.Clock.Now()
	for pool, v := range views {
		for i := range v.crew.pullers {
			if p := &v.crew.pullers[i]; p.DeletionTimestamp == nil && r.cfg.spent(p, byPool[pool], now) {
				failed = append(failed, r.remove(ctx, p.DeepCopy()))
			}
		}
	}
	return errors.Join(failed...)
}

// pull creates the Pod that pulls the image of a pool's next coordinator. If a Pod of that name already pulls something else, a
// later reconcile sees to it.
func (r *Reconciler) pull(ctx context.Context, d decided) error {
	p := r.cfg.puller(d.owner, d.pool, d.slot, d.coming)
	klog.FromContext(ctx).V(1).Info("Pulling a coordinator's image", "pool", d.pool, "node", d.coming.node,
		"image", d.coming.image)
	err := r.cfg.Client.Create(ctx, p, client.FieldOwner(FieldOwner))
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("make %s: %w", objects.Describe(p), err)
	}
	return nil
}

// mark labels the node that is to run a slot's coordinator next, and takes the label from the pool's others.
func (r *Reconciler) mark(ctx context.Context, v view, d decided) error {
	slot := strconv.Itoa(int(d.slot))
	var failed []error
	for i := range v.nodes {
		n := &v.nodes[i]
		is, marked := n.Labels[edge.LabelCoordinatorNode]
		switch {
		case n.Name == string(d.coming.node) && is != slot:
			failed = append(failed, label(ctx, r.cfg.Client, n.Name, &slot))
		case n.Name != string(d.coming.node) && marked && is == slot:
			failed = append(failed, label(ctx, r.cfg.Client, n.Name, nil))
		}
	}
	return errors.Join(failed...)
}

// label puts the label on a Node, or takes it away.
func label(ctx context.Context, c client.Client, node string, slot *string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"labels": map[string]any{edge.LabelCoordinatorNode: slot},
	}})
	if err != nil {
		return err
	}
	n := &corev1.Node{}
	n.Name = node
	err = c.Patch(ctx, n, client.RawPatch(mergePatch, patch), client.FieldOwner(FieldOwner))
	if err := client.IgnoreNotFound(err); err != nil {
		return fmt.Errorf("label node %s: %w", node, err)
	}
	return nil
}

// stopped notes which pools the others wait for, and why. They are looked at when that changes.
func (r *Reconciler) stopped(stops map[edge.PoolName]string) {
	r.mu.Lock()
	was := r.stops
	r.stops = stops
	r.mu.Unlock()
	r.metrics.stop(stops)
	if !maps.Equal(was, stops) {
		select {
		case r.fleetTurned <- event.GenericEvent{Object: &v1alpha1.YurtCoordinator{}}:
		default: // all are to be looked at already
		}
	}
}

// stopsOthers says why other coordinators wait for this pool's in a rollout; the zero finding means that they do not. Until the
// first decision after a start, it repeats what the status says.
func (r *Reconciler) stopsOthers(pool edge.PoolName, was v1alpha1.YurtCoordinatorStatus) finding {
	r.mu.Lock()
	why, known := r.stops[pool], r.stops != nil
	r.mu.Unlock()
	if !known {
		for _, c := range was.Conditions {
			if c.Type == v1alpha1.YurtCoordinatorStalled && c.Reason == ReasonRolloutStopped {
				return finding{OK: true, Reason: c.Reason, Message: c.Message}
			}
		}
	}
	if why == "" {
		return finding{}
	}
	return finding{OK: true, Reason: ReasonRolloutStopped, Message: "It has trouble with a change, and no other coordinator " +
		"gets that change: " + why + ". Fix its image or its settings, pin the former release (spec.coordinator.release), or " +
		"set spec.coordinator.paused for its pool: see docs/upgrades.md."}
}
