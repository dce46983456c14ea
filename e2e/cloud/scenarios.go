// Package cloud holds the scenarios about the cloud's side: coordinators that are made, moved and removed, what the cloud makes
// of nodes that are delegated or silent, certificates and authorities that change, and a cloud that tells wrong things.
package cloud

import (
	"slices"

	"yurtcoordinator/e2e/kit"
)

// Scenarios returns the scenarios of this theme, in the order in which they are run.
func Scenarios() []kit.Scenario {
	return slices.Concat(cloudLieScenarios, autonomyScenarios, installedScenarios, lifeScenarios, notReadyScenarios,
		rotationScenarios, poolCutScenarios, restoredScenarios)
}
