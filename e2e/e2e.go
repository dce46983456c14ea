// Package e2e joins the end-to-end scenarios: scripts that boot a lab of real Kubernetes components, break it, and
// compare what the cloud saw with what must be seen. `yurtlab run NAME` runs one; the tests of this package run them
// all. Each theme is a package that lists its scenarios. They are written with package kit.
//
// A scenario asserts on the history of the cloud (the watches of kit's chronicle.go), not on samples: "never NotReady" means
// that no watch event said so, not that a poll missed it.
package e2e

import (
	"fmt"
	"slices"
	"strings"

	"yurtcoordinator/e2e/cloud"
	"yurtcoordinator/e2e/install"
	"yurtcoordinator/e2e/kit"
	"yurtcoordinator/e2e/links"
	"yurtcoordinator/e2e/offline"
	"yurtcoordinator/e2e/ops"
	"yurtcoordinator/e2e/pool"
	"yurtcoordinator/e2e/thief"
)

// All returns the scenarios of all themes, in the order of their runs.
func All() []kit.Scenario {
	return slices.Concat(links.Scenarios(), pool.Scenarios(), offline.Scenarios(), install.Scenarios(), cloud.Scenarios(),
		ops.Scenarios(), thief.Scenarios())
}

// Find returns the scenario of that name.
func Find(name string) (kit.Scenario, error) {
	for _, s := range All() {
		if s.Name == name {
			return s, nil
		}
	}
	return kit.Scenario{}, fmt.Errorf("no scenario %q: want one of\n%s", name, List())
}

// List describes all scenarios, one per line.
func List() string {
	var b strings.Builder
	for _, s := range All() {
		fmt.Fprintf(&b, "  %-18s %s\n", s.Name, s.Doc)
	}
	return b.String()
}
