package upgrades

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yurtcoordinator/apis/apps/v1alpha1"
	"yurtcoordinator/apis/apps/v1beta2"
	"yurtcoordinator/internal/cloud/objects"
	"yurtcoordinator/internal/cloud/precedence"
	"yurtcoordinator/internal/edge"
)

// maxPools is how many pools a status lists.
const maxPools = 50

// ReasonNoPools: no pool is selected that is to be of a version.
const ReasonNoPools = "NoPools"

// order is that of the states: what somebody must look at comes first.
var order = []state{BadSettings, Stopped, Upgrading, WaitsItsTurn, OutsideWindow, Paused, NotUpgradable, Waiting, UpToDate}

func rank(s state) int { return slices.Index(order, s) }

func cmpNames[T ~string](a, b T) int { return strings.Compare(string(a), string(b)) }

// sayAll writes the progress of upgrades into the status of all PoolSettings that concern them. conflict says that a PoolSettings
// has changed or gone meanwhile.
func (c *Controller) sayAll(ctx context.Context, says []v1alpha1.PoolSettings, decisions []decision) (conflict bool, err error) {
	found := &v1beta2.NodePoolList{}
	if err := c.cfg.Client.List(ctx, found, client.UnsafeDisableDeepCopy); err != nil {
		return false, fmt.Errorf("list NodePools: %w", err)
	}
	byName := map[edge.PoolName]decision{}
	for _, d := range decisions {
		byName[d.pool] = d
	}
	for i := range says {
		s := says[i].DeepCopy()
		var chosen []decision
		for j := range found.Items {
			np := &found.Items[j]
			if ok, err := precedence.Selects(s, np); !ok || err != nil {
				continue // its other controller says what is wrong with its selector
			}
			if d := byName[edge.PoolName(np.Name)]; d.version != "" {
				chosen = append(chosen, d)
			}
		}
		switch err := c.say(ctx, s, statusOf(s, chosen, metav1.NewTime(c.cfg.Clock.Now()))); {
		case apierrors.IsConflict(err), apierrors.IsNotFound(err):
			conflict = true
		case err != nil:
			return conflict, err
		}
	}
	return conflict, nil
}

// statusOf returns the status of a PoolSettings whose pools are so far. What other controllers say there stays.
func statusOf(s *v1alpha1.PoolSettings, chosen []decision, now metav1.Time) v1alpha1.PoolSettingsStatus {
	status := *s.Status.DeepCopy()
	if reflect.DeepEqual(s.Spec.Upgrade, v1alpha1.UpgradeSettings{}) || !s.DeletionTimestamp.IsZero() {
		status.Upgrade = nil
		meta.RemoveStatusCondition(&status.Conditions, v1alpha1.PoolSettingsHubsUpgraded)
		return status
	}
	chosen = slices.Clone(chosen)
	slices.SortStableFunc(chosen, func(a, b decision) int { return rank(a.state) - rank(b.state) })
	up := &v1alpha1.UpgradeStatus{}
	for _, d := range chosen {
		up.Nodes += int32(d.nodes)
		up.UpgradedNodes += int32(d.upgraded)
		if d.state != UpToDate && len(up.Pools) < maxPools {
			up.Pools = append(up.Pools, v1alpha1.PoolUpgrade{
				Name: string(d.pool), Version: d.version, Nodes: int32(d.nodes), UpgradedNodes: int32(d.upgraded),
				State: string(d.state), Message: d.message,
			})
		}
	}
	status.Upgrade = up
	is := metav1.Condition{
		Type: v1alpha1.PoolSettingsHubsUpgraded, Status: metav1.ConditionTrue, Reason: ReasonNoPools,
		Message:            "It selects no pool with a version for its hubs.",
		ObservedGeneration: s.Generation, LastTransitionTime: now,
	}
	if len(chosen) > 0 {
		first := chosen[0]
		is.Reason = string(first.state)
		is.Message = fmt.Sprintf("All hubs run the version that is set for them: %d.", up.Nodes)
		if first.state != UpToDate {
			is.Status = metav1.ConditionFalse
			var names []string
			for _, d := range chosen {
				if d.state == first.state {
					names = append(names, string(d.pool))
				}
			}
			is.Message = fmt.Sprintf("%d of %s it. %s: %s", up.UpgradedNodes,
				edge.Count(int(up.Nodes), "hub runs", "hubs run"), edge.Some(names), first.message)
		}
	}
	meta.SetStatusCondition(&status.Conditions, is)
	return status
}

// say writes a status if it differs, and records an Event when somebody may have to act.
func (c *Controller) say(ctx context.Context, s *v1alpha1.PoolSettings, status v1alpha1.PoolSettingsStatus) error {
	if equality.Semantic.DeepEqual(s.Status, status) {
		return nil
	}
	base := s.DeepCopy()
	s.Status = status
	patch := client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{})
	if err := c.cfg.Client.Status().Patch(ctx, s, patch, client.FieldOwner(FieldOwner)); err != nil {
		return fmt.Errorf("write status of PoolSettings %s: %w", s.Name, err)
	}
	was := meta.FindStatusCondition(base.Status.Conditions, v1alpha1.PoolSettingsHubsUpgraded)
	is := meta.FindStatusCondition(status.Conditions, v1alpha1.PoolSettingsHubsUpgraded)
	if is == nil || was != nil && was.Reason == is.Reason && was.ObservedGeneration == is.ObservedGeneration {
		return nil
	}
	if kind := eventType(state(is.Reason)); kind != "" {
		about := objects.Regarding(s, v1alpha1.GroupVersion.WithKind("PoolSettings"))
		c.cfg.Events.Eventf(about, nil, kind, "Hubs"+is.Reason, "Reconcile", "%s", is.Message)
	}
	return nil
}

// eventType says of which type an Event about a state is; empty means that there is none.
func eventType(s state) string {
	switch s {
	case BadSettings, Stopped:
		return corev1.EventTypeWarning
	case Upgrading, UpToDate:
		return corev1.EventTypeNormal
	}
	return ""
}
