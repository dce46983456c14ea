// Package pool holds the scenarios about what the nodes of a pool share: one copy over the WAN, watches that go on through
// every change of source, and answers that are the cloud's.
package pool

import (
	"slices"

	"yurtcoordinator/e2e/kit"
)

// Scenarios returns the scenarios of this theme, in the order in which they are run.
func Scenarios() []kit.Scenario {
	return slices.Concat(sharingScenarios, oneCopyScenarios, poolScopeScenarios, herdScenarios, machineryScenarios)
}
