// Package install holds the scenarios about installing, upgrading and removing: nodes that join and leave, kubeadm
// and the chart.
package install

import (
	"slices"

	"yurtcoordinator/lab/e2e/kit"
)

// Scenarios returns the scenarios of this theme, in the order of their runs.
func Scenarios() []kit.Scenario {
	return slices.Concat(installScenarios, hungScenarios, kubeadmScenarios, stockScenarios, helmScenarios,
		openYurtScenarios, proxyScenarios, fleetScenarios, releaseScenarios)
}
