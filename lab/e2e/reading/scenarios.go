// Package reading holds the scenarios that run the commands of our pages, for those pages that no other scenario follows. A
// reader types the commands as they stand there. Pages about a node's own programs are followed in package install, and those
// about people on site in package ops.
package reading

import (
	"slices"

	"yurtcoordinator/lab/e2e/kit"
)

// Scenarios returns the scenarios of this theme, in the order of their runs.
func Scenarios() []kit.Scenario {
	return slices.Concat(cloudScenarios, exampleScenarios, labScenarios, benchScenarios)
}
