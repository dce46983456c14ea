package coordinator

import (
	"yurtcoordinator/apis/apps/v1alpha1"
	"yurtcoordinator/internal/cloud/roll"
	"yurtcoordinator/internal/edge"
)

// poolsRoll lists the pools that have a YurtCoordinator, each with the YurtCoordinator's name. The admission policy on nodes that
// become autonomous reads it.
func poolsRoll() roll.Roll[*v1alpha1.YurtCoordinator] {
	return roll.Roll[*v1alpha1.YurtCoordinator]{
		Name: "coordinator-roll", ConfigMap: edge.ConfigMapCoordinatedPools,
		Object: &v1alpha1.YurtCoordinator{}, List: &v1alpha1.YurtCoordinatorList{},
		Of: func(c *v1alpha1.YurtCoordinator) (roll.Entry, bool) {
			return roll.Entry{Key: c.Spec.NodePool, Value: c.Name}, true
		},
	}
}
