package settings

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yurtcoordinator/apis/apps/v1alpha1"
	"yurtcoordinator/apis/apps/v1beta2"
	"yurtcoordinator/internal/cloud/precedence"
	"yurtcoordinator/internal/edge"
)

// Reasons of the conditions about coordinators.
const (
	// ReasonAllCoordinators: all run as their settings say.
	ReasonAllCoordinators = "AllCoordinators"
	// ReasonUpdating: some do not yet.
	ReasonUpdating = "Updating"
	// ReasonBadSettings: the settings of some can't be used.
	ReasonBadSettings = "BadSettings"
	// ReasonControllerOff: the controller of coordinators is switched off.
	ReasonControllerOff = "ControllerOff"

	// ReasonAllPools: all pools that are to have a YurtCoordinator have one.
	ReasonAllPools = "AllPools"
	// ReasonPoolsWithout: some have none.
	ReasonPoolsWithout = "PoolsWithout"
)

// site is what a PoolSettings' status says of a pool's coordinator.
type site struct {
	// settings are what all PoolSettings say of it.
	settings v1alpha1.CoordinatorSettings
	// coordinators are the pool's YurtCoordinators.
	coordinators []*v1alpha1.YurtCoordinator
}

// siteOf collects a site.
func (c *Controller) siteOf(
	pool *v1beta2.NodePool, all []v1alpha1.PoolSettings, made map[string][]*v1alpha1.YurtCoordinator,
) (site, error) {
	says, _, err := precedence.Coordinator(c.cfg.Base, precedence.Of(pool, all))
	return site{says, made[pool.Name]}, err
}

// coordinators returns all YurtCoordinators by their pools. They must not be changed.
func (c *Controller) coordinators(ctx context.Context) (map[string][]*v1alpha1.YurtCoordinator, error) {
	byPool := map[string][]*v1alpha1.YurtCoordinator{}
	if !c.cfg.Coordinators {
		return byPool, nil
	}
	var all v1alpha1.YurtCoordinatorList
	if err := c.cfg.Client.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list YurtCoordinators: %w", err)
	}
	for i := range all.Items {
		if yc := &all.Items[i]; yc.DeletionTimestamp.IsZero() {
			byPool[yc.Spec.NodePool] = append(byPool[yc.Spec.NodePool], yc)
		}
	}
	return byPool, nil
}

// ofCoordinators sets the conditions about coordinators, if the PoolSettings says something about them.
func ofCoordinators(f facts, conditions *[]metav1.Condition, set func(kind string, is bool, reason, message string)) {
	says := f.settings.Spec.Coordinator
	updated, created := v1alpha1.PoolSettingsCoordinatorsUpdated, v1alpha1.PoolSettingsCoordinatorsCreated
	if reflect.DeepEqual(says, v1alpha1.CoordinatorSettings{}) {
		meta.RemoveStatusCondition(conditions, updated)
	} else {
		reason, message := f.updated()
		set(updated, reason == ReasonAllCoordinators, reason, message)
	}
	if says.Create != v1alpha1.CreateAlways {
		meta.RemoveStatusCondition(conditions, created)
		return
	}
	reason, message := f.created()
	set(created, reason == ReasonAllPools, reason, message)
}

const off = "The controller of YurtCoordinators is switched off (controllers.yurtcoordinator)."

// updated returns why the coordinators of the selected pools run as their settings say, or do not.
func (f facts) updated() (reason, message string) {
	if !f.withCoordinators {
		return ReasonControllerOff, off
	}
	var bad, updating []string
	n := 0
	for _, p := range f.pools {
		for _, yc := range p.site.coordinators {
			its := func(kind v1alpha1.YurtCoordinatorConditionType) v1alpha1.YurtCoordinatorCondition {
				i := slices.IndexFunc(yc.Status.Conditions, func(c v1alpha1.YurtCoordinatorCondition) bool {
					return c.Type == kind
				})
				if i < 0 {
					return v1alpha1.YurtCoordinatorCondition{}
				}
				return yc.Status.Conditions[i]
			}
			knows := slices.Contains(yc.Status.Settings,
				v1alpha1.SettingsGeneration{Name: f.settings.Name, Generation: f.settings.Generation})
			reconciling, stalled := its(v1alpha1.YurtCoordinatorReconciling), its(v1alpha1.YurtCoordinatorStalled)
			switch n++; {
			case knows && stalled.Reason == ReasonBadSettings:
				bad = append(bad, fmt.Sprintf("%s (%s)", yc.Name, stalled.Message))
			case knows && its(v1alpha1.YurtCoordinatorPending).Status == v1alpha1.ConditionTrue:
				n-- // there is none
			case !knows || reconciling.Status != v1alpha1.ConditionFalse:
				updating = append(updating, fmt.Sprintf("%s (%s)", yc.Name, cmp.Or(reconciling.Reason, "not looked at yet")))
			}
		}
	}
	switch {
	case len(bad) > 0:
		return ReasonBadSettings, "The settings of these can't be used, and they stay as they are: " + edge.Some(bad)
	case len(updating) > 0:
		return ReasonUpdating, "These do not run with their settings yet; a tenth of all coordinators changes at a time: " +
			edge.Some(updating)
	}
	return ReasonAllCoordinators, fmt.Sprintf("All coordinators run with their settings: %d.", n)
}

// created returns why all pools that are to have a YurtCoordinator have one, or do not.
func (f facts) created() (reason, message string) {
	if !f.withCoordinators {
		return ReasonControllerOff, off
	}
	var without []string
	n := 0
	for _, p := range f.pools {
		says := p.site.settings
		if says.Create != v1alpha1.CreateAlways {
			continue
		}
		if n++; len(p.site.coordinators) > 0 {
			continue
		}
		why := "see its nodes' autonomy annotations, or the log of coordinator-controller"
		if needs := int(ptr.Deref(says.MinNodes, edge.MinPoolNodes)); len(p.nodes) < needs {
			why = fmt.Sprintf("it has %s, and needs %d", edge.Count(len(p.nodes), "node", "nodes"), needs)
		}
		without = append(without, fmt.Sprintf("%s (%s)", p.name, why))
	}
	if len(without) > 0 {
		return ReasonPoolsWithout, "These pools have no YurtCoordinator: " + edge.Some(without)
	}
	return ReasonAllPools, fmt.Sprintf("All pools have a YurtCoordinator: %d.", n)
}

// coordinatorChanged reports whether what a status says of a coordinator may have changed.
func coordinatorChanged(was, is *v1alpha1.YurtCoordinator) bool {
	of := func(yc *v1alpha1.YurtCoordinator) string {
		text := []string{yc.Spec.NodePool, fmt.Sprint(yc.DeletionTimestamp.IsZero()), fmt.Sprint(yc.Status.Settings)}
		for _, c := range yc.Status.Conditions {
			text = append(text, string(c.Type), string(c.Status), c.Reason)
		}
		return strings.Join(text, " ")
	}
	return of(was) != of(is)
}
