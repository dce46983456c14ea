// Package links holds the scenarios about links and heartbeats: what a cut link, a dead node and a leader that goes make of a
// node's heartbeats, and what the cloud sees of it.
package links

import (
	"slices"

	"yurtcoordinator/e2e/kit"
)

// Scenarios returns the scenarios of this theme, in the order in which they are run.
func Scenarios() []kit.Scenario {
	return slices.Concat(linkScenarios, birthScenarios, shapedScenarios, deathScenarios, leaderScenarios, coordinatorScenarios)
}
