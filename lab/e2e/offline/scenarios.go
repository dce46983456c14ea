// Package offline holds the scenarios about nodes that can reach nothing: what a hub's disk and memory are for, and which
// programs they may answer.
package offline

import (
	"slices"

	"yurtcoordinator/lab/e2e/kit"
)

// Scenarios returns the scenarios of this theme, in the order of their runs.
func Scenarios() []kit.Scenario {
	return slices.Concat(offlineScenarios, endpointsScenarios, freshScenarios, identityScenarios, podScenarios, monthScenarios,
		revokedScenarios, rotatedScenarios)
}
