package coordinator

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"yurtcoordinator/apis/apps/v1alpha1"
	"yurtcoordinator/internal/cloud/certs"
	"yurtcoordinator/internal/edge"
)

// Reasons of the condition StandbysReady, besides ReasonTooFewNodes: the pool has fewer nodes than coordinators are asked for.
const (
	// ReasonAllServe: all coordinators serve that are asked for.
	ReasonAllServe = "AllServe"
	// ReasonNotAllServe: some do not, and the loss of a machine may leave the pool without one.
	ReasonNotAllServe = "NotAllServe"
)

// inSlotStatus is what is known of the coordinator in a slot.
type inSlotStatus struct {
	pod                *corev1.Pod
	ready, reconciling finding
}

// serving returns the lowest slot whose coordinator serves, where hubs go; 0 if none does.
func serving(slots []inSlotStatus) int {
	return max(0, slices.IndexFunc(slots, func(s inSlotStatus) bool { return s.ready.OK }))
}

// underWay returns the condition Reconciling of all together: the first that is not as it is to be.
func underWay(slots []inSlotStatus) finding {
	for slot, s := range slots {
		if s.reconciling.OK {
			return inSlot(edge.Slot(slot), s.reconciling)
		}
	}
	return slots[0].reconciling
}

// standbys returns the condition StandbysReady, and how many of the coordinators that are asked for do not serve. The zero
// finding means that no standby is asked for, and none exists.
func standbys(slots []inSlotStatus, asked edge.Slot) (is finding, missing int) {
	if asked < 2 && len(slots) < 2 {
		return finding{}, 0
	}
	var not []string
	for slot, s := range slots {
		if !s.ready.OK {
			not = append(not, fmt.Sprintf("Slot %d: %s", slot, s.ready.Message))
		}
	}
	all, serve := max(len(slots), int(asked)), len(slots)-len(not)
	count := fmt.Sprintf("%d of %s.", serve, edge.Count(all, "coordinator serves", "coordinators serve"))
	switch {
	case len(not) > 0:
		return finding{Reason: ReasonNotAllServe, Message: count + " " + strings.Join(not, " ")}, all - serve
	case len(slots) < all:
		return finding{Reason: ReasonTooFewNodes, Message: count + " Each needs a separate node, and the pool has no " +
			"more: add nodes, or set a lower spec.replicas."}, all - serve
	}
	return finding{OK: true, Reason: ReasonAllServe, Message: count}, 0
}

// inSlots returns the new status of each coordinator; was is the former one. It lists the coordinators that the pool must have,
// and the standbys that are being removed.
func inSlots(
	was []v1alpha1.CoordinatorInSlot, slots []inSlotStatus, c crew,
) (all []v1alpha1.CoordinatorInSlot) {
	for _, slot := range edge.Slots() {
		is := v1alpha1.CoordinatorInSlot{Slot: int32(slot)}
		before := slices.IndexFunc(was, func(w v1alpha1.CoordinatorInSlot) bool { return w.Slot == is.Slot })
		pod := c.current[slot]
		if i := int(slot); i < len(slots) {
			is.Ready = slots[i].ready.OK
		} else if pod == nil && before < 0 {
			continue
		}
		if pod != nil {
			is.NodeName, is.Version = pod.Spec.NodeName, tagOf(imageOf(pod))
		}
		if before >= 0 {
			is.Generation = was[before].Generation
		}
		all = append(all, is)
	}
	return all
}

// numbered returns all with the generations of certificates that were looked at.
func numbered(all []v1alpha1.CoordinatorInSlot, of [edge.MaxSlots]edge.Generation) []v1alpha1.CoordinatorInSlot {
	for i := range all {
		if g := of[all[i].Slot]; g.Number != 0 {
			all[i].Generation = g.String()
		}
	}
	return all
}

// dropSlots deletes the objects of standbys that are no longer wanted, once their Pods are gone. It returns the status of the
// other coordinators. A standby stays in the status until its objects are deleted, so a restarted controller knows what is left
// to delete.
func (r *Reconciler) dropSlots(
	ctx context.Context, c *v1alpha1.YurtCoordinator, v view, all []v1alpha1.CoordinatorInSlot,
) (left []v1alpha1.CoordinatorInSlot, err error) {
	for _, is := range all {
		slot := edge.Slot(is.Slot)
		if slot < v.slots || v.crew.current[slot] != nil {
			left = append(left, is)
			continue
		}
		for _, o := range append(handed(v.census.Pool.CoordinatorSecretIn(slot)), reportIn(v.census.Pool, slot)) {
			if err := r.remove(ctx, o); err != nil {
				return nil, err
			}
		}
		r.metrics.holds(certOf{c.Name, kindServing, slot}, certs.Pair{})
		r.told(ctx, owner{c.Name, c.UID}, "StandbyRemoved", "Pool %s has no coordinator in slot %d any more", v.census.Pool, slot)
	}
	return left, nil
}
