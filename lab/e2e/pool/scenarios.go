// Package pool holds the scenarios about what the nodes of a pool share: one copy over the WAN, watches that survive
// every change of source, and answers equal to the cloud's.
package pool

import (
	"slices"

	"yurtcoordinator/lab/e2e/kit"
)

// Scenarios returns the scenarios of this theme, in the order of their runs.
func Scenarios() []kit.Scenario {
	return slices.Concat(sharingScenarios, oneCopyScenarios, topologyScenarios, herdScenarios,
		thinScenarios, firstListScenarios, machineryScenarios, faultsScenarios)
}
