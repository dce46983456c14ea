// Package ops holds the scenarios about people on site: what they see and do while the cloud does not answer, and what the
// coordinator refuses.
package ops

import (
	"slices"

	"yurtcoordinator/lab/e2e/kit"
)

// Scenarios returns the scenarios of this theme, in the order of their runs.
func Scenarios() []kit.Scenario {
	return slices.Concat(accessScenarios, streamScenarios, ownObjectScenarios, opsScenarios, filledScenarios,
		failingScenarios, sickScenarios, aggregatedScenarios, etcdAwayScenarios, stormScenarios,
		familyScenarios)
}
