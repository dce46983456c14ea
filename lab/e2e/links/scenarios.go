// Package links holds the scenarios about links and heartbeats: what happens to a node's heartbeats when a link is cut, a node
// dies or a leader goes, and what the cloud sees of that.
package links

import (
	"slices"

	"yurtcoordinator/lab/e2e/kit"
)

// Scenarios returns the scenarios of this theme, in the order of their runs.
func Scenarios() []kit.Scenario {
	return slices.Concat(linkScenarios, relayScenarios, farScenarios,
		flappingScenarios, deathScenarios, leaderScenarios, standbyScenarios, grayScenarios,
		noisyScenarios, hundredScenarios)
}
