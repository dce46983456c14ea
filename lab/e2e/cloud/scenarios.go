// Package cloud holds the scenarios about the cloud's side: coordinators that are made, moved and removed, what the cloud
// concludes about delegated or silent nodes, certificates and authorities that change, and a cloud that says wrong things.
package cloud

import (
	"slices"

	"yurtcoordinator/lab/e2e/kit"
)

// Scenarios returns the scenarios of this theme, in the order of their runs.
func Scenarios() []kit.Scenario {
	return slices.Concat(cloudLieScenarios, autonomyScenarios, caChangeScenarios, installedScenarios,
		lifeScenarios, movedScenarios, leftScenarios, rotationScenarios, poolCutScenarios,
		restoredScenarios, storesScenarios, rolloutScenarios, dashboardScenarios, settingsScenarios, settingsReplacedScenarios,
		standbyScenarios)
}
