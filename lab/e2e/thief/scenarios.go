// Package thief holds the scenarios with a thief. He has got hold of something, such as a node, a key or a place on the LAN,
// and tries what he can with it, from where he would be and with real clients.
package thief

import (
	"slices"

	"yurtcoordinator/lab/e2e/kit"
)

// Scenarios returns the scenarios of this theme, in the order of their runs.
func Scenarios() []kit.Scenario {
	return slices.Concat(
		cacheScenarios,
		controllerScenarios,
		floodScenarios,
		kubeletScenarios,
		lanScenarios,
		leaseScenarios,
		linkScenarios,
		localScenarios,
		machineScenarios,
		nodeScenarios,
		operatorScenarios,
		stolenScenarios,
		viewerScenarios,
	)
}
