// Package reading holds the scenarios that run what our pages show, for those pages that no other scenario follows: a reader
// types the commands as they stand there. What a page shows about a node's own programs is in package install, what people on
// site do in package ops.
package reading

import (
	"slices"

	"yurtcoordinator/lab/e2e/kit"
)

// Scenarios returns the scenarios of this theme, in the order of their runs.
func Scenarios() []kit.Scenario {
	return slices.Concat(cloudScenarios, exampleScenarios, labScenarios, benchScenarios)
}
